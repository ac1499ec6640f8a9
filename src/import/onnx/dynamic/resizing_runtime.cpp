#include "import/onnx/dynamic/resizing_runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "import/onnx/dynamic/runtime_parameter.h"
#include "import/onnx/read/tensor_reader.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;

// One axis of a resize.
class AxisResize {
 public:
  AxisResize(NodeContext& c, const RuntimeResize& r, size_t k, int64_t extent)
      : c_(c),
        r_(r),
        k_(static_cast<int64_t>(k)),
        axis_(r.axes[k]),
        extent_(extent),
        output_(r.sizes[static_cast<size_t>(axis_)]),
        scale_(element(c, r.scales, k_)) {}

  ValueId run(ValueId x) {
    const ValueId place = places();
    ValueId y = r_.mode == "nearest" ? take_clamped(c_, x, axis_, nearest(place)) : interpolated(x, place);
    if (r_.coordinate != "tf_crop_and_resize") return y;
    const ValueId outside = c_.op(
        "logical_or", {c_.op("lt", {place, real(0)}), c_.op("gt", {place, real(static_cast<double>(extent_ - 1))})});
    return c_.op("select", {along_axis(outside, c_.rank(x), {output_}), c_.scalar_like(y, r_.extrapolation), y});
  }

 private:
  ValueId real(double value) { return c_.scalar(DType::kF64, value); }

  // v, a vector or matrix, as a tensor of rank `rank` that varies along the axis (and the ones behind it).
  ValueId along_axis(ValueId v, int rank, const Ints& own) {
    Ints dims(static_cast<size_t>(rank), 1);
    dims.erase(dims.begin() + axis_);
    dims.insert(dims.begin() + axis_, own.begin(), own.end());
    return c_.reshape(v, dims);
  }

  // The input coordinate of each output index, f64[output].
  ValueId places() {
    const ValueId o = c_.iota({output_}, 0, DType::kF64);
    const ValueId width = c_.mul(scale_, real(static_cast<double>(extent_)));  // of the output, before it was rounded
    const auto last = static_cast<double>(extent_ - 1);
    const std::string& mode = r_.coordinate;
    if (mode == "asymmetric") return c_.div(o, scale_);
    if (mode == "align_corners" && output_ == 1) return o;
    if (mode == "align_corners") return c_.div(c_.mul(o, real(last)), c_.sub(width, real(1)));
    if (mode == "tf_crop_and_resize") {
      const ValueId begin = element(c_, *r_.roi, k_), end = element(c_, *r_.roi, k_ + std::ssize(r_.axes));
      if (output_ == 1) return c_.add(o, c_.mul(c_.add(begin, end), real(last / 2)));
      const ValueId step = c_.div(c_.mul(c_.sub(end, begin), real(last)), c_.sub(width, real(1)));
      return c_.add(c_.mul(o, step), c_.mul(begin, real(last)));
    }
    const ValueId middle = c_.div(c_.add(o, real(0.5)), scale_);
    if (mode == "tf_half_pixel_for_nn") return middle;
    if (mode == "pytorch_half_pixel" && output_ == 1) return o;
    if (mode == "half_pixel" || mode == "pytorch_half_pixel") return c_.sub(middle, real(0.5));
    if (mode != "half_pixel_symmetric")
      c_.malformed(fmt::format("coordinate_transformation_mode is '{}'", mode),
                   "half_pixel, half_pixel_symmetric, pytorch_half_pixel, align_corners, asymmetric, "
                   "tf_half_pixel_for_nn or tf_crop_and_resize");
    // The middles of both agree, whatever was rounded off.
    const ValueId covered = c_.div(real(static_cast<double>(output_)), width);
    const ValueId offset = c_.mul(real(static_cast<double>(extent_) / 2), c_.sub(real(1), covered));
    return c_.sub(c_.add(offset, middle), real(0.5));
  }

  // A scale of 2.4 comes as the f32 next to it; to the precision of an f32, places that are meant to be whole are
  // whole.
  ValueId nearest(ValueId exact) {
    const ValueId place = c_.cast(c_.cast(exact, DType::kF32), DType::kF64);
    const std::string& mode = r_.nearest_mode;
    ValueId rounded = -1;
    if (mode == "floor") rounded = c_.op("floor", {place});
    else if (mode == "ceil") rounded = c_.op("ceil", {place});
    else if (mode == "round_prefer_floor") rounded = c_.op("ceil", {c_.sub(place, real(0.5))});
    else if (mode == "round_prefer_ceil") rounded = c_.op("floor", {c_.add(place, real(0.5))});
    else
      c_.malformed(fmt::format("nearest_mode is '{}'", mode), "round_prefer_floor, round_prefer_ceil, floor or ceil");
    return c_.cast(rounded, DType::kI64);
  }

  // The weight of an element at a distance, in elements of the coarser of operand and result.
  ValueId weight(ValueId distance) {
    if (r_.mode == "linear") return c_.op("max", {c_.sub(real(1), distance), real(0)});
    const double a = r_.cubic_coeff;
    const auto horner = [&](std::vector<double> coefficients) {
      ValueId value = real(coefficients[0]);
      for (size_t i = 1; i < coefficients.size(); ++i) value = c_.add(c_.mul(value, distance), real(coefficients[i]));
      return value;
    };
    const ValueId near = horner({a + 2, -(a + 3), 0, 1}), far = horner({a, -5 * a, 8 * a, -4 * a});
    const ValueId outer = c_.op("select", {c_.op("lt", {distance, real(2)}), far, real(0)});
    return c_.op("select", {c_.op("le", {distance, real(1)}), near, outer});
  }

  ValueId interpolated(ValueId x, ValueId place) {
    if (r_.mode != "linear" && r_.mode != "cubic")
      c_.malformed(fmt::format("mode is '{}'", r_.mode), "nearest, linear or cubic");
    // How far an element reaches: farther where the operand is denser than the result. A run's scale is not below this
    // one, because the extents of its result are checked.
    const double coarsest =
        r_.antialias ? std::min(1.0, (static_cast<double>(output_) - 0.5) / static_cast<double>(extent_)) : 1.0;
    const double reach = std::ceil((r_.mode == "linear" ? 1 : 2) / coarsest);
    if (!(reach < 1e6)) c_.unsupported(fmt::format("{} elements made of {}", output_, extent_));
    const auto taps = static_cast<int64_t>(2 * reach);

    const ValueId first = c_.sub(c_.op("floor", {c_.reshape(place, {output_, 1})}), real(reach - 1));
    const ValueId at = c_.add(c_.iota({1, taps}, 1, DType::kF64), first);  // [output, taps]
    ValueId distance = c_.op("abs", {c_.sub(at, c_.reshape(place, {output_, 1}))});
    if (r_.antialias) distance = c_.mul(distance, c_.op("min", {scale_, real(1)}));
    ValueId weights = weight(distance);
    if (r_.exclude_outside) {
      const ValueId last = real(static_cast<double>(extent_ - 1));
      const ValueId inside = c_.op("logical_and", {c_.op("ge", {at, real(0)}), c_.op("le", {at, last})});
      weights = c_.op("select", {inside, weights, real(0)});
    }
    if (r_.exclude_outside || r_.antialias) weights = c_.div(weights, c_.reduce("sum", weights, {1}, true));

    const ValueId values = take_clamped(c_, x, axis_, c_.cast(at, DType::kI64));
    const ValueId shaped = along_axis(c_.cast(weights, c_.dtype(x)), c_.rank(x), {output_, taps});
    return c_.reduce("sum", c_.mul(values, shaped), {axis_ + 1}, false);
  }

  NodeContext& c_;
  const RuntimeResize& r_;
  const int64_t k_, axis_, extent_, output_;
  const ValueId scale_;
};

}  // namespace

ValueId resize_when_run(NodeContext& c, ValueId x, const RuntimeResize& r) {
  const DType stored = c.dtype(x);
  const Ints dims = c.dims(x);
  if (checked_num_elements(r.sizes) == 0) return c.broadcast(c.scalar(stored, 0), r.sizes);
  if (c.num_elements(x) == 0)
    c.unsupported(fmt::format("an operand of type {} for the shape {}", c.type(x).to_string(), dims_text(r.sizes)));
  if (r.mode != "nearest" && (!is_float(stored) || dtype_bits(stored) < 16))
    c.unsupported(fmt::format("mode {} for elements of type {}", r.mode, dtype_name(stored)));
  if (r.mode != "nearest" && dtype_bits(stored) < 32) x = c.cast(x, DType::kF32);
  for (size_t k = 0; k < r.axes.size(); ++k) x = AxisResize(c, r, k, dims[static_cast<size_t>(r.axes[k])]).run(x);
  return c.cast(x, stored);
}

}  // namespace tessera::inline onnx_import
