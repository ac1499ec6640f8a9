// Resizing without aliasing.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ops/body_text.h"
#include "ops/composites/composites.h"
#include "ops/op_util.h"
#include "ops/resize_places.h"

namespace tessera::inline ops {
namespace {

Expr f64(double value) { return const_float(DType::kF64, value); }

// The weight of an element at a distance, in elements of the coarser of operand and result.
Expr weight_at(const Expr& distance, bool is_linear, double a) {
  if (is_linear) return max(f64(1) - distance, f64(0));
  const auto horner = [&](const std::vector<double>& coefficients) {
    Expr value = f64(coefficients[0]);
    for (size_t i = 1; i < coefficients.size(); ++i) value = value * distance + f64(coefficients[i]);
    return value;
  };
  const Expr near = horner({a + 2, -(a + 3), 0, 1}), far = horner({a, -5 * a, 8 * a, -4 * a});
  return select(distance <= f64(1), near, select(distance < f64(2), far, f64(0)));
}

// Along dimension `d` of y: each element of the result is a sum of `taps` elements, whose weights depend on the place
// along that dimension alone and add up to 1.
ValueId resized_along(CompositeBody& b, ValueId y, size_t d, bool is_linear) {
  const OpContext& ctx = b.context();
  std::vector<BufferPtr> operands = {make_buffer("y", b.type(y).dtype, b.type(y).shape)};
  std::vector<ValueId> values = {y};
  for (size_t i = 1; i < b.num_operands(); ++i) {
    operands.push_back(make_buffer(fmt::format("operand{}", i), DType::kF64, b.type(b.operand(i)).shape));
    values.push_back(b.operand(i));
  }
  const ResizedAxis axis = resized_axes(ctx, operands)[d];
  if (!axis.run_scale) return y;
  const int64_t input = b.static_extent(axis.input, fmt::format("dimension {} (without aliasing)", d));
  const int64_t output = b.static_extent(axis.output, fmt::format("dimension {} of the result (without aliasing)", d));
  // How far an element reaches: farther where the operand is denser than the result. The scale is not below this one,
  // where the result's extent follows from it.
  const double coarsest =
      output == 0 ? 1 : std::min(1.0, (static_cast<double>(output) - 0.5) / static_cast<double>(input));
  const double reach = std::ceil((is_linear ? 1 : 2) / coarsest);
  if (!(reach < 1e6))
    ctx.fail("TSR-2025", fmt::format("{} elements made of {}", output, input), "a result that is not so much coarser");
  const auto taps = static_cast<int64_t>(2 * reach);

  const auto place_at = [&](const Expr& o) { return place_of(resize_coordinate(ctx), o, axis).real_value(); };
  const auto element_at = [&](const Expr& o, const Expr& k) {  // f64: it may lie outside
    return unary(UnaryOp::kFloor, place_at(o)) - f64(reach - 1) + cast(DType::kF64, k);
  };
  const Expr last = f64(static_cast<double>(input - 1));
  Body weights;
  weights.inputs.assign(operands.begin() + 1, operands.end());
  weights.axes = make_axes("i", {Expr(output), Expr(taps)});
  const Expr o = weights.axes[0].var, k = weights.axes[1].var, element = element_at(o, k);
  const Expr distance = unary(UnaryOp::kAbs, element - place_at(o)) * min(axis.run_scale, f64(1));
  weights.value = weight_at(distance, is_linear, ctx.attrs.get_or<double>("cubic_coeff", -0.75));
  if (ctx.attrs.get_or<bool>("exclude_outside", false))
    weights.value = select(logical_and(f64(0) <= element, element <= last), weights.value, f64(0));
  const ValueId raw = b.add("compute", {values.begin() + 1, values.end()}, compute_attrs(weights));
  const ValueId total = b.reduce("sum", raw, {1});

  Body sum;
  sum.inputs = operands;
  sum.inputs.push_back(make_buffer("raw", DType::kF64, b.type(raw).shape));
  sum.inputs.push_back(make_buffer("total", DType::kF64, b.type(total).shape));
  Shape shape = b.type(y).shape;
  shape[d] = axis.output;
  sum.axes = make_axes("i", shape);
  sum.reduce_axes = make_axes("k", {Expr(taps)});
  sum.combiner = Combiner::kSum;
  const Expr at = sum.axes[d].var, tap = sum.reduce_axes[0].var;
  std::vector<Expr> index = sum.axis_vars();
  index[d] = min(max(cast(DType::kI64, element_at(at, tap)), 0), Expr(input - 1));
  const DType dtype = b.type(y).dtype;
  const Expr share =
      binary(BinaryOp::kDiv, load(sum.inputs[operands.size()], {at, tap}), load(sum.inputs.back(), {at, Expr(0)}));
  sum.value = load(sum.inputs[0], index) * cast(dtype, share);
  if (axis.begin) {
    const Expr outside = logical_or(place_at(at) < f64(0), last < place_at(at));
    const Expr constant = const_of(dtype, ctx.attrs.get_or<double>("extrapolation", 0));
    sum.value = select(outside, select(equal(tap, Expr(0)), constant, const_of(dtype, 0)), sum.value);
  }
  std::vector<ValueId> all = values;
  all.push_back(raw);
  all.push_back(total);
  return b.add("compute", all, compute_attrs(sum));
}

std::vector<ValueId> resize_antialiased(CompositeBody& b) {
  const OpContext& ctx = b.context();
  require_dtype(ctx, 0, is_real, kRealTypes);
  require_resize(ctx);
  const bool is_linear = require_word(ctx, "mode", ctx.attrs.get<std::string>("mode"), {"linear", "cubic"}) == 0;
  const DType stored = b.dtype();
  ValueId y = b.operand(0);
  if (dtype_bits(stored) < 32) y = b.add("cast", {y}, {{"to", DType::kF32}});  // summed in f32
  for (size_t d = 0; d < ctx.inputs[0].shape.size(); ++d) y = resized_along(b, y, d, is_linear);
  return {b.type(y).dtype == stored ? y : b.add("cast", {y}, {{"to", stored}})};
}

}  // namespace

const std::vector<CompositeDef>& resizing_composites() {
  static const std::vector<CompositeDef> list = {
      {"resize_antialiased",
       "x resized so that each element of a smaller result is a mean of all that it stands for.",
       2,
       3,
       {{"mode", AttrKind::kString, true, "linear or cubic"},
        {"coordinate", AttrKind::kString, true, "as for resize"},
        {"sizes", AttrKind::kSizes, true, "the result's extents, all of them"},
        {"axes", AttrKind::kInts, false, "the dimensions that the scales, f64[n], and the region, f64[2n], are about"},
        {"cubic_coeff", AttrKind::kFloat, false, "the cubic's parameter; default -0.75"},
        {"exclude_outside", AttrKind::kBool, false, "places outside the input get no weight; default false"},
        {"extrapolation", AttrKind::kFloat, false, "crop: what stands outside the input"}},
       resize_antialiased,
       "resize_antialiased(x: f32[4], s: f64[1]) {coordinate = \"half_pixel\", mode = \"linear\", sizes = [2]}\n"
       "run x = 1 2 3 4 ; s = 0.5 -> y = 1.625 3.375"},
  };
  return list;
}

}  // namespace tessera::inline ops
