// Resize and its predecessor Upsample.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "arith/simplify.h"
#include "import/onnx/dynamic/runtime_parameter.h"
#include "import/onnx/operators/handlers.h"
#include "import/onnx/read/tensor_reader.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;

struct Target {
  std::vector<double> scales;  // of every dimension; 0 for the ratio of symbolic extents
  Shape sizes;
};

// The extents of a form that is made for numbers.
Ints fixed_sizes(NodeContext& c, const Shape& sizes) {
  if (auto dims = static_dims(sizes)) return *std::move(dims);
  c.unsupported(fmt::format("this form of {} needs the extents {} as numbers", c.op_type(), to_string(sizes)));
}

// floor(extent * scale) where single precision computes it without rounding; empty elsewhere.
std::optional<Expr> scaled_extent(const Expr& extent, double scale) {
  int64_t divisor = 1;
  double factor = static_cast<double>(static_cast<float>(scale));
  for (; factor != std::floor(factor) && divisor < 4096; factor *= 2) divisor *= 2;
  if (factor != std::floor(factor) || factor > 4096) return std::nullopt;
  const Expr product = extent * Expr(static_cast<int64_t>(factor));
  if (size_range(product).hi.value_or(INT64_MAX) > (1 << 24)) return std::nullopt;
  return normalize_size(floordiv(product, divisor));
}

// size / extent; 0 where it is no number.
double ratio_of(const Expr& size, const Expr& extent) {
  const auto s = as_int(size), e = as_int(extent);
  if (s && e) return *e > 0 ? static_cast<double>(*s) / static_cast<double>(*e) : 1;
  if (equal_sizes(size, extent)) return 1;
  const auto times = as_int(normalize_size(floordiv(size, max(extent, 1))));
  if (times && *times > 0 && equal_sizes(size, extent * Expr(*times))) return static_cast<double>(*times);
  const auto part = as_int(normalize_size(floordiv(extent, max(size, 1))));
  if (part && *part > 0 && equal_sizes(extent, size * Expr(*part))) return 1 / static_cast<double>(*part);
  return 0;
}

[[noreturn]] void bad_scales(NodeContext& c, const std::vector<double>& scales, size_t count) {
  c.malformed(fmt::format("scales = [{}]", fmt::join(scales, ",")), fmt::format("{} finite numbers above 0", count));
}

// Extents are floor(extent * scale) in single precision, as the exporters that choose scales compute it.
Target from_scales(NodeContext& c, const Shape& dims, const Ints& axes, const std::vector<double>& scales) {
  if (scales.size() != axes.size()) bad_scales(c, scales, axes.size());
  Target target{std::vector<double>(dims.size(), 1.0), dims};
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto d = static_cast<size_t>(axes[i]);
    if (!as_int(dims[d]) && scales[i] > 0) {
      const auto extent = scaled_extent(dims[d], scales[i]);
      if (!extent) c.unsupported(fmt::format("the extent {} times {} may be rounded", to_string(dims[d]), scales[i]));
      target.scales[d] = scales[i];
      target.sizes[d] = *extent;
      continue;
    }
    const float extent = std::floor(static_cast<float>(as_int(dims[d]).value_or(0)) * static_cast<float>(scales[i]));
    if (!(scales[i] > 0) || !(extent < 1e12f)) bad_scales(c, scales, axes.size());
    target.scales[d] = scales[i];
    target.sizes[d] = static_cast<int64_t>(extent);
  }
  return target;
}

Target from_sizes(NodeContext& c, const Shape& dims, const Ints& axes, const Shape& sizes) {
  const std::string policy = c.attrs.get_string("keep_aspect_ratio_policy", "stretch");
  if (policy != "stretch" && policy != "not_larger" && policy != "not_smaller")
    c.malformed(fmt::format("keep_aspect_ratio_policy is '{}'", policy), "stretch, not_larger or not_smaller");
  Ints least;
  for (const Expr& size : sizes) least.push_back(as_int(size).value_or(size_range(size).lo.value_or(-1)));
  if (sizes.size() != axes.size() || !checked_num_elements(least))
    c.malformed(fmt::format("sizes = {}", to_string(sizes)), fmt::format("{} extents of at least 0", axes.size()));
  Target target{std::vector<double>(dims.size(), 1.0), dims};
  std::vector<double> ratios;
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto d = static_cast<size_t>(axes[i]);
    target.sizes[d] = sizes[i];
    target.scales[d] = ratio_of(sizes[i], dims[d]);
    ratios.push_back(target.scales[d]);
  }
  if (policy == "stretch" || ratios.empty()) return target;
  const double scale = policy == "not_larger" ? *std::min_element(ratios.begin(), ratios.end())
                                              : *std::max_element(ratios.begin(), ratios.end());
  const Ints known = fixed_sizes(c, dims);
  fixed_sizes(c, sizes);
  for (const int64_t axis : axes) {
    const auto d = static_cast<size_t>(axis);
    const double extent = std::floor(scale * static_cast<double>(known[d]) + 0.5);
    if (!(extent <= static_cast<double>(kMaxTensorElements)))
      c.malformed(fmt::format("sizes = {} for {} with keep_aspect_ratio_policy = {}", to_string(sizes), to_string(dims),
                              policy),
                  "extents of up to 2^40");
    target.scales[d] = scale;
    target.sizes[d] = static_cast<int64_t>(extent);
  }
  return target;
}

// Attributes that have no meaning in a mode are left out, so that equal operations are equal nodes.
ValueId resize(NodeContext& c, ValueId x, const Target& target, const std::string& mode, const std::string& coordinate,
               const std::string& nearest_mode, double cubic_coeff = -0.75, bool exclude_outside = false) {
  if (same_shape(target.sizes, c.shape(x)) &&
      std::all_of(target.scales.begin(), target.scales.end(), [](double s) { return s == 1; }))
    return x;
  Attrs attrs = {{"mode", mode}, {"coordinate", coordinate}, {"scales", target.scales}, {"sizes", target.sizes}};
  if (mode == "nearest") attrs.set("nearest_mode", nearest_mode);
  if (mode == "cubic") {
    attrs.set("cubic_coeff", cubic_coeff);
    attrs.set("exclude_outside", exclude_outside);
  }
  return c.op("resize", {x}, std::move(attrs));
}

// With scales that only a run knows, or of a part of the operand.
struct RunResize {
  Ints axes;            // that are resized
  Shape sizes;          // of the result, for every dimension
  ValueId scales = -1;  // f64[axes]: output extent per input extent
  std::string coordinate, nearest_mode;
  double cubic_coeff = -0.75;
  bool exclude_outside = false, antialias = false;
  std::optional<ValueId> region = {};  // f64[2 * axes], of "crop": where it begins, then where it ends
  double extrapolation = 0;            // of "crop"
};

ValueId resize(NodeContext& c, ValueId x, const RunResize& r, const std::string& mode) {
  if (mode != "nearest" && (!is_float(c.dtype(x)) || dtype_bits(c.dtype(x)) < 16))
    c.unsupported(fmt::format("mode {} for elements of type {}", mode, dtype_name(c.dtype(x))));
  Attrs attrs = {{"mode", mode}, {"coordinate", r.coordinate}, {"axes", r.axes}, {"sizes", r.sizes}};
  if (mode == "nearest") attrs.set("nearest_mode", r.nearest_mode);
  if (mode == "cubic" || r.antialias) {
    attrs.set("cubic_coeff", r.cubic_coeff);
    attrs.set("exclude_outside", r.exclude_outside);
  }
  if (r.region) attrs.set("extrapolation", r.extrapolation);
  std::vector<ValueId> operands = {x, r.scales};
  if (r.region) operands.push_back(*r.region);
  if (r.antialias) return c.composite("resize_antialiased", operands, std::move(attrs));
  return c.op("resize", operands, std::move(attrs));
}

std::string read_mode(NodeContext& c) {
  const std::string mode = c.attrs.get_string("mode", "nearest");
  return mode == "bilinear" || mode == "trilinear" ? "linear" : mode;
}

Ints all_axes(int rank) {
  Ints axes(static_cast<size_t>(rank));
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

// The extents of the axes, i64[axes], must be those of the declared shape when the model runs.
void require_extents(NodeContext& c, int i, const std::string& name, const Ints& axes, const Ints& declared,
                     ValueId extents) {
  Ints wanted;
  for (const int64_t axis : axes) wanted.push_back(declared[static_cast<size_t>(axis)]);
  c.check_when_run(fmt::format("what {} asks for", c.input_name(i, name)), all_equal(c, extents, c.ints(wanted)),
                   extents,
                   fmt::format("[{}], for the declared shape {} of '{}'", fmt::join(wanted, ", "), dims_text(declared),
                               c.output_name(0)));
}

Ints declared_sizes(NodeContext& c, int i, const std::string& name, const Ints& dims, const Ints& axes) {
  const Ints declared = c.require_declared(i, name);
  bool fits = declared.size() == dims.size();
  for (size_t d = 0; fits && d < dims.size(); ++d)
    fits = dims[d] == declared[d] || std::find(axes.begin(), axes.end(), static_cast<int64_t>(d)) != axes.end();
  if (!fits)
    c.unsupported(fmt::format("the declared shape {} of '{}' for an operand of shape {}", dims_text(declared),
                              c.output_name(0), dims_text(dims)));
  return declared;
}

// Operand `i`, one scale for each axis, as f64[axes], for the declared shape.
ValueId runtime_scales(NodeContext& c, int i, const Ints& dims, const Ints& axes, const Ints& declared) {
  const auto count = std::ssize(axes);
  if (c.num_elements(c.in(i)) != count || !is_float(c.dtype(c.in(i))))
    c.malformed(fmt::format("{} is {}", c.input_name(i, "scales"), c.type(c.in(i)).to_string()),
                fmt::format("{} numbers", count));
  Tensor extents(DType::kF32, {count});  // as from_scales computes them
  for (int64_t k = 0; k < count; ++k)
    extents.set_double(k, static_cast<double>(dims[static_cast<size_t>(axes[static_cast<size_t>(k)])]));
  const ValueId scales = c.reshape(c.in(i), {count});
  const ValueId sizes = c.op("floor", {c.mul(c.constant_value(extents), c.cast(scales, DType::kF32))});
  require_extents(c, i, "scales", axes, declared, c.cast(sizes, DType::kI64));
  return c.cast(scales, DType::kF64);
}

// Operand `i`, one extent for each axis, of which a policy makes one scale for all: f64[axes], for the declared shape.
ValueId runtime_aspect_scales(NodeContext& c, int i, const Ints& dims, const Ints& axes, const Ints& declared,
                              bool smallest) {
  const auto count = std::ssize(axes);
  const ValueId wanted = runtime_ints(c, i, "sizes");
  if (c.num_elements(wanted) != count)
    c.malformed(fmt::format("{} is {}", c.input_name(i, "sizes"), c.type(c.in(i)).to_string()),
                fmt::format("{} extents", count));
  Tensor extents(DType::kF64, {count});
  for (int64_t k = 0; k < count; ++k)
    extents.set_double(k, static_cast<double>(dims[static_cast<size_t>(axes[static_cast<size_t>(k)])]));
  const ValueId own = c.constant_value(extents);
  const ValueId ratios = c.div(c.cast(wanted, DType::kF64), own);
  const ValueId scale = c.reduce(smallest ? "min" : "max", ratios, {0}, true);
  const ValueId sizes = c.op("floor", {c.add(c.mul(own, scale), c.scalar(DType::kF64, 0.5))});
  require_extents(c, i, "sizes", axes, declared, c.cast(sizes, DType::kI64));
  return c.broadcast(scale, {count});
}

void import_upsample(NodeContext& c) {
  const ValueId x = c.in(0);
  std::vector<double> scales;
  if (c.version() < 7) {
    for (const char* name : {"height_scale", "width_scale"})
      if (!c.attrs.has(name)) c.malformed(fmt::format("no attribute '{}'", name), "height_scale and width_scale");
    scales = {1, 1, c.attrs.get_float("height_scale", 1), c.attrs.get_float("width_scale", 1)};
  } else if (c.version() < 9) {
    scales = c.attrs.get_floats("scales");
  } else {
    c.require_inputs(2, 2);
    if (c.is_runtime(1)) {
      const Ints dims = c.dims(x), axes = all_axes(c.rank(x)), declared = declared_sizes(c, 1, "scales", dims, axes);
      const ValueId known = runtime_scales(c, 1, dims, axes, declared);
      RunResize r{axes, make_shape(declared), known};
      r.coordinate = "asymmetric";
      r.nearest_mode = "floor";
      return c.out(0, resize(c, x, r, read_mode(c)));
    }
    scales = c.const_floats(1, "scales");
  }
  const std::string mode = read_mode(c);
  c.out(0, resize(c, x, from_scales(c, c.shape(x), all_axes(c.rank(x)), scales), mode, "asymmetric", "floor"));
}

void import_resize(NodeContext& c) {
  c.require_inputs(1, 4);
  const ValueId x = c.in(0);
  const Shape dims = c.shape(x);
  const std::string mode = read_mode(c);
  if (c.version() < 11) {
    c.require_inputs(2, 2);
    const Target target = from_scales(c, dims, all_axes(c.rank(x)), c.const_floats(1, "scales"));
    // Opset 10 leaves the rounding open; ONNX Runtime takes the upper neighbour when an image shrinks.
    const bool shrinks = std::any_of(target.scales.begin(), target.scales.end(), [](double s) { return s < 1; });
    return c.out(0, resize(c, x, target, mode, "asymmetric", shrinks ? "ceil" : "floor"));
  }

  const std::string coordinate = c.attrs.get_string("coordinate_transformation_mode", "half_pixel");
  const std::string nearest = c.attrs.get_string("nearest_mode", "round_prefer_floor");
  Ints axes = c.attrs.get_ints("axes");
  axes = axes.empty() ? all_axes(c.rank(x)) : c.axes(axes, c.rank(x));

  // Exactly one of scales and sizes counts; the other is left out or empty.
  const auto given = [&](int i) { return c.has(i) && c.num_elements(c.in(i)) > 0; };
  if (given(2) == given(3) && !axes.empty())
    c.malformed(given(2) ? "both scales and sizes are given" : "neither scales nor sizes is given", "one of the two");
  Target target;
  std::optional<ValueId> scales;  // that only a run knows
  if (!given(3)) c.attrs.ignore("keep_aspect_ratio_policy");
  const std::string policy = given(3) ? c.attrs.get_string("keep_aspect_ratio_policy", "stretch") : "";
  if (given(3) && c.is_runtime(3) && (policy == "not_larger" || policy == "not_smaller")) {
    const Ints known = fixed_sizes(c, dims), declared = declared_sizes(c, 3, "sizes", known, axes);
    target = {{}, make_shape(declared)};
    scales = runtime_aspect_scales(c, 3, known, axes, declared, policy == "not_larger");
  } else if (given(3)) {
    const auto expected = [&] {
      const Ints declared = declared_sizes(c, 3, "sizes", fixed_sizes(c, dims), axes);
      Ints sizes;
      for (const int64_t axis : axes) sizes.push_back(declared[static_cast<size_t>(axis)]);
      return sizes;
    };
    target = from_sizes(c, dims, axes, sizes_or_expected(c, 3, "sizes", expected));
  } else if (given(2) && c.is_runtime(2)) {
    const Ints known = fixed_sizes(c, dims), declared = declared_sizes(c, 2, "scales", known, axes);
    target = {{}, make_shape(declared)};
    scales = runtime_scales(c, 2, known, axes, declared);
  } else {
    target = from_scales(c, dims, axes, c.const_floats(2, "scales"));
  }
  const bool shrinks = std::any_of(target.scales.begin(), target.scales.end(), [](double s) { return s < 1; });
  const bool antialias = c.attrs.get_int("antialias", 0) != 0 && mode != "nearest";
  const bool crops = coordinate == "tf_crop_and_resize";
  const double extrapolation = c.attrs.get_float("extrapolation_value", 0);
  const double cubic_coeff = c.attrs.get_float("cubic_coeff_a", -0.75);
  const bool exclude_outside = c.attrs.get_int("exclude_outside", 0) != 0;
  if (!scales && !crops && !(antialias && shrinks))
    return c.out(0, resize(c, x, target, mode, coordinate, nearest, cubic_coeff, exclude_outside));
  if (!scales) {
    Tensor known(DType::kF64, {std::ssize(axes)});
    for (size_t k = 0; k < axes.size(); ++k)
      known.set_double(static_cast<int64_t>(k), target.scales[static_cast<size_t>(axes[k])]);
    scales = c.constant_value(known);
  }
  RunResize r{axes,    target.sizes, *scales,         coordinate,
              nearest, cubic_coeff,  exclude_outside, antialias && mode != "nearest"};
  if (crops) {
    if (!given(1) || c.num_elements(c.in(1)) != 2 * std::ssize(axes) || !is_float(c.dtype(c.in(1))))
      c.malformed(given(1) ? fmt::format("roi is {}", c.type(c.in(1)).to_string()) : "no roi",
                  fmt::format("{} numbers: where each axis starts, then where each ends", 2 * axes.size()));
    r.region = c.cast(c.reshape(c.in(1), {2 * std::ssize(axes)}), DType::kF64);
    r.coordinate = "crop";
    r.extrapolation = extrapolation;
  }
  c.out(0, resize(c, x, r, mode));
}

}  // namespace

OperatorFamily resizing_operators() {
  static constexpr OperatorImporter standard[] = {
      OperatorImporter{"Resize", 10, import_resize},
      OperatorImporter{"Upsample", 1, import_upsample, "", 9},
  };
  return {{"", standard}};
}

}  // namespace tessera::inline onnx_import
