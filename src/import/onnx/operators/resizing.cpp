// Resize and its predecessor Upsample.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "import/onnx/operators/handlers.h"
#include "import/onnx/tensor_reader.h"

namespace tessera {
namespace {

using Ints = std::vector<int64_t>;

struct Target {
  std::vector<double> scales;  // of every dimension
  Ints sizes;
};

[[noreturn]] void bad_scales(NodeContext& c, const std::vector<double>& scales, size_t count) {
  c.malformed(fmt::format("scales = [{}]", fmt::join(scales, ",")), fmt::format("{} finite numbers above 0", count));
}

// Extents are floor(extent * scale) in single precision, as the exporters that choose scales compute it.
Target from_scales(NodeContext& c, const Ints& dims, const Ints& axes, const std::vector<double>& scales) {
  if (scales.size() != axes.size()) bad_scales(c, scales, axes.size());
  Target target{std::vector<double>(dims.size(), 1.0), dims};
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto d = static_cast<size_t>(axes[i]);
    const float extent = std::floor(static_cast<float>(dims[d]) * static_cast<float>(scales[i]));
    if (!(scales[i] > 0) || !(extent < 1e12f)) bad_scales(c, scales, axes.size());
    target.scales[d] = scales[i];
    target.sizes[d] = static_cast<int64_t>(extent);
  }
  return target;
}

Target from_sizes(NodeContext& c, const Ints& dims, const Ints& axes, const Ints& sizes) {
  const std::string policy = c.attrs.get_string("keep_aspect_ratio_policy", "stretch");
  if (policy != "stretch" && policy != "not_larger" && policy != "not_smaller")
    c.malformed(fmt::format("keep_aspect_ratio_policy is '{}'", policy), "stretch, not_larger or not_smaller");
  if (sizes.size() != axes.size() || !checked_num_elements(sizes))
    c.malformed(fmt::format("sizes = [{}]", fmt::join(sizes, ",")),
                fmt::format("{} extents of at least 0", axes.size()));
  Target target{std::vector<double>(dims.size(), 1.0), dims};
  std::vector<double> ratios;
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto d = static_cast<size_t>(axes[i]);
    target.sizes[d] = sizes[i];
    if (dims[d] > 0) target.scales[d] = static_cast<double>(sizes[i]) / static_cast<double>(dims[d]);
    ratios.push_back(target.scales[d]);
  }
  if (policy == "stretch" || ratios.empty()) return target;
  const double scale = policy == "not_larger" ? *std::min_element(ratios.begin(), ratios.end())
                                              : *std::max_element(ratios.begin(), ratios.end());
  for (const int64_t axis : axes) {
    const auto d = static_cast<size_t>(axis);
    target.scales[d] = scale;
    target.sizes[d] = static_cast<int64_t>(std::floor(scale * static_cast<double>(dims[d]) + 0.5));
  }
  return target;
}

// Attributes that have no meaning in a mode are left out, so that equal operations are equal nodes.
ValueId resize(NodeContext& c, ValueId x, const Target& target, const std::string& mode, const std::string& coordinate,
               const std::string& nearest_mode, double cubic_coeff = -0.75, bool exclude_outside = false) {
  if (target.sizes == c.dims(x) &&
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

std::string read_mode(NodeContext& c) {
  const std::string mode = c.attrs.get_string("mode", "nearest");
  return mode == "bilinear" || mode == "trilinear" ? "linear" : mode;
}

Ints all_axes(int rank) {
  Ints axes(static_cast<size_t>(rank));
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

}  // namespace

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
    scales = c.const_floats(1, "scales");
  }
  const std::string mode = read_mode(c);
  c.out(0, resize(c, x, from_scales(c, c.dims(x), all_axes(c.rank(x)), scales), mode, "asymmetric", "floor"));
}

void import_resize(NodeContext& c) {
  c.require_inputs(1, 4);
  const ValueId x = c.in(0);
  const Ints dims = c.dims(x);
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
  c.attrs.ignore("extrapolation_value");  // of tf_crop_and_resize, the only mode that uses roi as well
  if (coordinate == "tf_crop_and_resize") c.unsupported("coordinate_transformation_mode 'tf_crop_and_resize'");
  Ints axes = c.attrs.get_ints("axes");
  axes = axes.empty() ? all_axes(c.rank(x)) : c.axes(axes, c.rank(x));

  // Exactly one of scales and sizes counts; the other is left out or empty.
  const auto given = [&](int i) { return c.has(i) && c.type(c.in(i)).num_elements() > 0; };
  if (given(2) == given(3) && !axes.empty())
    c.malformed(given(2) ? "both scales and sizes are given" : "neither scales nor sizes is given", "one of the two");
  Target target;
  if (given(3)) {
    target = from_sizes(c, dims, axes, c.const_ints(3, "sizes"));
  } else {
    c.attrs.ignore("keep_aspect_ratio_policy");
    target = from_scales(c, dims, axes, c.const_floats(2, "scales"));
  }
  const bool shrinks = std::any_of(target.scales.begin(), target.scales.end(), [](double s) { return s < 1; });
  if (c.attrs.get_int("antialias", 0) != 0 && shrinks && mode != "nearest")
    c.unsupported("antialias = 1 when an image shrinks");
  c.out(0, resize(c, x, target, mode, coordinate, nearest, c.attrs.get_float("cubic_coeff_a", -0.75),
                  c.attrs.get_int("exclude_outside", 0) != 0));
}

}  // namespace tessera
