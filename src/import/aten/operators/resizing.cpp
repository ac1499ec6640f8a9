// Images interpolated to other sizes.
#include <fmt/format.h>

#include <algorithm>

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

}  // namespace

std::span<const AtenOperator> resizing_operators() {
  static constexpr AtenOperator table[] = {
      {"upsample_bicubic2d", import_cubic},       {"upsample_bilinear2d", import_linear<2>},
      {"upsample_linear1d", import_linear<1>},    {"upsample_nearest1d", import_nearest<1>},
      {"upsample_nearest2d", import_nearest<2>},  {"upsample_nearest3d", import_nearest<3>},
      {"upsample_trilinear3d", import_linear<3>},
  };
  return table;
}

}  // namespace tessera::inline aten
