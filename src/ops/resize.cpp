// resize: interpolation to other extents. Where output elements stand in the input is resize_places.h; places outside
// the input take the nearest element. Scales, and the region of `crop`, are attributes or operands.
#include <array>
#include <cmath>

#include "arith/simplify.h"
#include "graph/adjoint.h"
#include "ops/index_gradients.h"
#include "ops/op_util.h"
#include "ops/primitives.h"
#include "ops/resize_places.h"

namespace tessera::inline ops {
namespace {

enum Mode : size_t { kNearest, kLinear, kCubic };

Mode mode_of(const OpContext& ctx) {
  return static_cast<Mode>(
      require_word(ctx, "mode", ctx.attrs.get<std::string>("mode"), {"nearest", "linear", "cubic"}));
}

std::vector<TensorType> infer(const OpContext& ctx) {
  if (mode_of(ctx) == kNearest) {
    require_dtype(ctx, 0, is_movable, kMovableTypes);
  } else {
    require_dtype(ctx, 0, is_real, kRealTypes);
  }
  return {TensorType{ctx.inputs[0].dtype, require_resize(ctx), {}}};
}

// One input index and its weight; a null weight is 1.
struct Tap {
  Expr index;
  Expr weight;
};

// The weights of the four elements around a place with fraction t, for the cubic with parameter a.
std::array<Expr, 4> cubic_weights(const Expr& t, double a) {
  const DType dtype = t.dtype();
  const auto c = [&](double value) { return const_float(dtype, value); };
  const auto far = [&](const Expr& d) { return ((c(a) * d - c(5 * a)) * d + c(8 * a)) * d - c(4 * a); };
  const auto near = [&](const Expr& d) { return (c(a + 2) * d - c(a + 3)) * d * d + c(1); };
  const Expr rest = c(1) - t;
  return {far(t + c(1)), near(t), near(rest), far(rest + c(1))};
}

std::vector<Tap> taps_of(const OpContext& ctx, const ResizedAxis& resized, const Axis& axis, DType dtype) {
  const Mode mode = mode_of(ctx);
  const ResizeCoordinate coordinate = resize_coordinate(ctx);
  const Expr &extent = resized.input, &output = resized.output;
  const bool is_same = equal_extents(extent, output) && (resized.scale == 1 || resized.scale == 0);
  if (ctx.inputs.size() > 1 && !resized.run_scale) return {{axis.var, {}}};  // not among the axes
  if (is_same && !resized.run_scale && coordinate != ResizeCoordinate::kTfHalfPixel) return {{axis.var, {}}};
  Bounds bounds;
  if (const auto most = size_range(output).hi) bounds.set(axis.var, 0, *most - 1);
  const auto clamp = [&](const Expr& i) { return simplify(min(max(i, 0), extent - Expr(1)), bounds); };
  const ResizePlace place = place_of(coordinate, axis.var, resized);
  if (mode == kNearest) {
    const ResizePlace meant = resized.run_scale ? place.rounded_to_single() : place;
    return {{clamp(meant.nearest(resize_rounding(ctx))), {}}};
  }
  const Expr first = place.floor();
  const Expr t = place.fraction(dtype);
  if (mode == kLinear) return {{clamp(first), const_float(dtype, 1) - t}, {clamp(first + Expr(1)), t}};
  std::array<Expr, 4> weights = cubic_weights(t, ctx.attrs.get_or<double>("cubic_coeff", -0.75));
  std::vector<Tap> taps;
  Expr total = const_float(dtype, 0);
  const bool exclude = ctx.attrs.get_or<bool>("exclude_outside", false);
  for (int i = 0; i < 4; ++i) {
    const Expr at = first + Expr(i - 1);
    Expr weight = weights[static_cast<size_t>(i)];
    if (exclude) weight = select(logical_and(Expr(0) <= at, at < extent), weight, const_float(dtype, 0));
    total = total + weight;
    taps.push_back({clamp(at), weight});
  }
  if (exclude)
    for (Tap& tap : taps) tap.weight = binary(BinaryOp::kDiv, tap.weight, total);
  return taps;
}

// The interpolation over dimensions d and later, with the earlier ones' indices chosen.
Expr interpolate(const BufferPtr& x, const std::vector<std::vector<Tap>>& taps, std::vector<Expr>& index, DType dtype) {
  const size_t d = index.size();
  if (d == taps.size()) return cast(dtype, load(x, index));
  Expr sum;
  for (const Tap& tap : taps[d]) {
    index.push_back(tap.index);
    Expr term = interpolate(x, taps, index, dtype);
    index.pop_back();
    if (tap.weight) term = term * tap.weight;
    sum = sum ? sum + term : term;
  }
  return sum;
}

Body body(const OpContext& ctx) {
  Body body = start_body(ctx);
  const DType stored = ctx.inputs[0].dtype;
  const bool narrow = mode_of(ctx) != kNearest && (stored == DType::kF16 || stored == DType::kBF16);
  const DType dtype = narrow ? DType::kF32 : stored;  // 16-bit data is interpolated in f32
  const std::vector<ResizedAxis> resized = resized_axes(ctx, body.inputs);
  std::vector<std::vector<Tap>> taps;
  for (size_t d = 0; d < body.axes.size(); ++d) taps.push_back(taps_of(ctx, resized[d], body.axes[d], dtype));
  std::vector<Expr> index;
  body.value = cast(stored, interpolate(body.inputs[0], taps, index, dtype));
  for (size_t d = 0; d < body.axes.size(); ++d) {
    if (!resized[d].begin) continue;
    const Expr place = place_of(ResizeCoordinate::kCrop, body.axes[d].var, resized[d]).real_value();
    const Expr last = cast(DType::kF64, resized[d].input - Expr(1));
    const Expr outside = logical_or(place < const_float(DType::kF64, 0), last < place);
    body.value = select(outside, const_of(stored, ctx.attrs.get_or<double>("extrapolation", 0)), body.value);
  }
  return body;
}

// Each dimension is a linear map of its own, whose matrix is what the operator makes of the identity along it.
std::vector<ValueId> gradient(Adjoint& a) {
  if (a.num_operands() > 1) a.fail("scales that only a run knows", "the attribute 'scales'");
  const Shape x = a.type(a.in(0)).shape, y = a.type(a.out()).shape;
  const auto& scales = a.attrs().get<std::vector<double>>("scales");
  if (a.attrs().get<std::string>("coordinate") == "tf_half_pixel_for_nn" &&
      a.attrs().get<std::string>("mode") != "nearest")
    a.fail("coordinate = \"tf_half_pixel_for_nn\" for what is not nearest", "another coordinate");
  ValueId g = a.gradient();
  for (size_t d = 0; d < x.size(); ++d) {
    if (equal_extents(x[d], y[d]) && (scales[d] == 1 || scales[d] == 0)) continue;
    const Shape square = {x[d], x[d]};
    const auto numbers = [&](int64_t axis) {
      return a.op("iota", {}, {{"shape", square}, {"axis", axis}, {"dtype", DType::kI64}});
    };
    const ValueId one = a.scalar(1, g), zero = a.scalar(0, g);
    const ValueId identity = a.select(a.op("eq", {numbers(0), numbers(1)}), one, zero);
    Attrs along = a.attrs();
    along.set("sizes", Shape{y[d], x[d]});
    along.set("scales", std::vector<double>{scales[d], 1});
    const ValueId matrix = a.op("resize", {identity}, along);
    Shape shape = a.type(g).shape;
    const Expr outer = elements_of(shape, 0, d), inner = elements_of(shape, d + 1, shape.size());
    shape[d] = x[d];
    g = a.reshape(
        a.op("matmul", {matrix, a.reshape(g, {outer, y[d], inner})}, {{"transpose_a", true}, {"transpose_b", false}}),
        shape);
  }
  return {g};
}

}  // namespace

const OpDef& resize_op() {
  static const OpDef op{
      .name = "resize",
      .doc = "x interpolated to other extents.",
      .min_inputs = 1,
      .max_inputs = 3,
      .attrs =
          {{"mode", AttrKind::kString, true, "nearest, linear or cubic"},
           {"coordinate", AttrKind::kString, true, "how output indices become input coordinates, see resize_places.h"},
           {"nearest_mode", AttrKind::kString, false,
            "round_prefer_floor (the default), round_prefer_ceil, floor or ceil"},
           {"scales", AttrKind::kFloats, false,
            "output extent per input extent, for every dimension; 0: the ratio of the two; or else operand 2"},
           {"axes", AttrKind::kInts, false,
            "the dimensions that operands 2, f64[n], and 3, f64[2n], are about; default all"},
           {"sizes", AttrKind::kSizes, true, "the result's extents, all of them"},
           {"extrapolation", AttrKind::kFloat, false,
            "crop: what stands outside the input; operand 3 is where the region begins, and where it ends, in each "
            "dimension"},
           {"cubic_coeff", AttrKind::kFloat, false, "the cubic's parameter; default -0.75"},
           {"exclude_outside", AttrKind::kBool, false,
            "cubic: places outside the input get no weight, instead of the nearest element's; default false"}},
      .infer = infer,
      .body = body,
      .gradient = gradient,
      .example = R"(
graph @main(%x: f32[1,1,2]) -> (%y: f32[1,1,4]) {
  %y = resize(%x) {coordinate = "half_pixel", mode = "linear", scales = [1.0, 1.0, 2.0], sizes = [1, 1, 4]} : f32[1,1,4]
}
run x = 1 3 -> y = 1 1.5 2.5 3
)",
  };
  return op;
}

}  // namespace tessera::inline ops
