// Images interpolated to other sizes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "arith/simplify.h"
#include "import/aten/operators/handlers.h"

namespace tessera::inline aten {
namespace {

using Ints = std::vector<int64_t>;

// Factors per spatial dimension that the program gives; 0 where it gives none.
std::vector<double> given_factors(AtenContext& c, size_t spatial) {
  std::vector<double> factors(spatial, 0);
  if (c.has("scale_factors")) {
    const auto& items = c.argument("scale_factors")->items;
    for (size_t d = 0; d < std::min(spatial, items.size()); ++d) factors[d] = items[d].real;
    return factors;
  }
  static constexpr const char* kNames[3][3] = {
      {"scales", "", ""}, {"scales_h", "scales_w", ""}, {"scales_d", "scales_h", "scales_w"}};
  for (size_t d = 0; d < spatial; ++d) factors[d] = c.number(kNames[spatial - 1][d], 0);
  return factors;
}

void resized(AtenContext& c, const std::string& mode, const std::string& coordinate, size_t spatial) {
  const ValueId x = c.tensor(c.has("self") ? "self" : "input");
  const auto declared = c.result_shape();
  Shape sizes = c.shape(x);
  if (sizes.size() != spatial + 2) c.malformed(fmt::format("an operand of type {}", c.type(x).to_string()), "images");
  const std::vector<double> factors = given_factors(c, spatial);
  std::vector<double> scales(sizes.size(), 1.0);
  // PyTorch leaves a dimension alone whose size stays, though a factor of 1.1 would move its places: in these modes
  // only.
  const bool keeps = mode == "linear" || (mode == "nearest" && spatial == 2);
  const Shape wanted = c.has("output_size") ? c.sizes("output_size") : Shape{};
  for (size_t d = 0; d < spatial; ++d) {
    const auto extent = as_int(sizes[d + 2]);
    Expr result = wanted.empty() ? (declared ? (*declared)[d + 2] : Expr(-1)) : wanted[d];
    const auto count = as_int(result);
    if (keeps && equal_sizes(result, sizes[d + 2])) scales[d + 2] = 1;
    else if (factors[d] > 0 && coordinate != "align_corners") scales[d + 2] = factors[d];
    else if (extent && count && *extent > 0) scales[d + 2] = static_cast<double>(*count) / static_cast<double>(*extent);
    else if (factors[d] > 0) scales[d + 2] = 0;
    else c.unsupported("sizes that are open, without a factor");
    if (count && *count < 0) c.unsupported("sizes that the program does not declare");
    sizes[d + 2] = result;
  }
  const bool in_place = coordinate == "align_corners" ||
                        std::all_of(scales.begin(), scales.end(), [](double scale) { return scale == 1; });
  if (in_place && same_shape(sizes, c.shape(x))) return c.out(x);
  Attrs attrs = {{"mode", mode}, {"coordinate", coordinate}, {"scales", scales}, {"sizes", sizes}};
  if (mode == "nearest") attrs.set("nearest_mode", std::string("floor"));
  if (mode == "cubic") {
    attrs.set("cubic_coeff", -0.75);
    attrs.set("exclude_outside", false);
  }
  c.out(c.op("resize", {x}, attrs));
}

template <size_t kSpatial>
void import_nearest(AtenContext& c) {
  resized(c, "nearest", "asymmetric", kSpatial);
}
template <size_t kSpatial>
void import_linear(AtenContext& c) {
  resized(c, "linear", c.truth("align_corners", false) ? "align_corners" : "half_pixel", kSpatial);
}
void import_cubic(AtenContext& c) {
  resized(c, "cubic", c.truth("align_corners", false) ? "align_corners" : "half_pixel", 2);
}

// ---- with a filter as wide as the factor: means of what a smaller image's pixel covers ----

double linear_filter(double x) { return std::max(0.0, 1 - std::abs(x)); }
double cubic_filter(double given) {
  constexpr double kA = -0.5;
  const double x = std::abs(given);
  if (x < 1) return ((kA + 2) * x - (kA + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * kA : 0;
}

// Weights [extent, count] of the pixels of one dimension. `factor` is the program's, or 0.
Tensor filter_weights(DType dtype, int64_t extent, int64_t count, double factor, bool align_corners, bool cubic) {
  const auto in = static_cast<double>(extent), out = static_cast<double>(count);
  const double scale = align_corners ? (count > 1 ? (in - 1) / (out - 1) : 0) : factor > 0 ? 1 / factor : in / out;
  const double radius = cubic ? 2 : 1, support = scale >= 1 ? radius * scale : radius;
  const double inverse = scale >= 1 ? 1 / scale : 1;
  Tensor weights(dtype, {extent, count});
  for (int64_t i = 0; i < count; ++i) {
    const double centre = scale * (static_cast<double>(i) + 0.5);
    const auto begin = std::max<int64_t>(static_cast<int64_t>(centre - support + 0.5), 0);
    const auto end = std::min<int64_t>(static_cast<int64_t>(centre + support + 0.5), extent);
    const auto weight = [&](int64_t place) {
      const double x = (static_cast<double>(place) - centre + 0.5) * inverse;
      return cubic ? cubic_filter(x) : linear_filter(x);
    };
    double total = 0;
    for (int64_t place = begin; place < end; ++place) total += weight(place);
    for (int64_t place = begin; place < end; ++place)
      weights.set_double(place * count + i, total == 0 ? weight(place) : weight(place) / total);
  }
  return weights;
}

template <bool kCubic>
void import_filtered(AtenContext& c) {
  ValueId x = c.tensor(c.has("self") ? "self" : "input");
  const auto declared = c.result_shape();
  const Ints dims = c.dims(x);
  if (dims.size() != 4 || !declared) c.unsupported("images of such a shape");
  const std::vector<double> factors = given_factors(c, 2);
  const DType dtype = c.dtype(x);
  if (!is_float(dtype)) c.unsupported("images of integers");
  x = in_wide_float(c, x);
  for (const int64_t axis : {2, 3}) {
    const auto count = as_int((*declared)[static_cast<size_t>(axis)]);
    if (!count) c.unsupported("a size that is open");
    Tensor weights = filter_weights(c.dtype(x), dims[static_cast<size_t>(axis)], *count,
                                    factors[static_cast<size_t>(axis - 2)], c.truth("align_corners", false), kCubic);
    const Ints order = axis_last(4, axis);
    x = c.transpose(c.op("matmul", {c.transpose(x, order), c.constant_value(std::move(weights))}), order);
  }
  c.out(c.cast(x, dtype));
}

}  // namespace

std::span<const AtenOperator> resizing_operators() {
  static constexpr AtenOperator table[] = {
      {"_upsample_bicubic2d_aa", import_filtered<true>},
      {"_upsample_bilinear2d_aa", import_filtered<false>},
      {"upsample_bicubic2d", import_cubic},
      {"upsample_bilinear2d", import_linear<2>},
      {"upsample_linear1d", import_linear<1>},
      {"upsample_nearest1d", import_nearest<1>},
      {"upsample_nearest2d", import_nearest<2>},
      {"upsample_nearest3d", import_nearest<3>},
      {"upsample_trilinear3d", import_linear<3>},
  };
  return table;
}

}  // namespace tessera::inline aten
