// conv_weights: the gradient of a convolution's weights, a convolution's image and the gradient of its result given.
#include <fmt/format.h>

#include "arith/simplify.h"
#include "ops/conv_gradients.h"
#include "ops/primitives.h"
#include "ops/window.h"

namespace tessera::inline ops {
namespace {

Shape spatial(const Shape& shape) { return Shape(shape.begin() + 2, shape.end()); }

std::vector<TensorType> infer(const OpContext& ctx) {
  const TensorType& x = ctx.inputs[0];
  const TensorType& dy = ctx.inputs[1];
  require_dtype(ctx, 0, is_arithmetic, kArithmeticTypes);
  require_same_dtype(ctx);
  require_rank(ctx, 0, 3, 5);
  require_rank(ctx, 1, x.rank(), x.rank());
  const int64_t groups = require_int(ctx, "groups", 1, kMaxWindowInt);
  const auto& window = require_ints(ctx, "window", x.shape.size() - 2, 1, kMaxWindowInt);
  if (!equal_extents(x.shape[0], dy.shape[0]))
    ctx.fail("TSR-2024", fmt::format("{} beside {}", describe_operand(ctx, 0), describe_operand(ctx, 1)),
             "equal extents of dimension 0, the batch");
  const auto per_group = [&](const Expr& channels, size_t operand) {
    if (const auto count = as_int(channels); count && *count % groups != 0)
      ctx.fail("TSR-2024", fmt::format("{} in {} groups", describe_operand(ctx, operand), groups),
               "a number of channels (dimension 1) that the groups divide");
    return normalize_size(floordiv(channels, groups));
  };
  per_group(dy.shape[1], 1);
  Shape shape = {dy.shape[1], per_group(x.shape[1], 0)};
  const auto dims = window_dims(ctx, spatial(x.shape), make_shape(window));
  for (size_t d = 0; d < dims.size(); ++d) {
    const Expr count = window_count(ctx, dims[d], d);
    if (!equal_extents(count, dy.shape[d + 2]))
      ctx.fail("TSR-2024",
               fmt::format("spatial dimension {}: {} windows, and {}", d, to_string(count), describe_operand(ctx, 1)),
               "as many places of the gradient as the convolution has windows");
    shape.push_back(window[d]);
  }
  return {TensorType{x.dtype, shape, {}}};
}

Body body(const OpContext& ctx) {
  Body body = start_body(ctx);
  const Shape& x = ctx.inputs[0].shape;
  const Shape& dy = ctx.inputs[1].shape;
  const int64_t groups = ctx.attrs.get_int("groups");
  const auto dims = window_dims(ctx, spatial(x), make_shape(ctx.attrs.get_ints("window")));
  const Expr out = body.axes[0].var;
  const Expr in = body.axes[1].var;
  const Expr per_group = body.axes[1].extent;

  body.reduce_axes.push_back({make_var("n"), x[0]});
  const Expr n = body.reduce_axes[0].var;
  Expr channel = in;
  if (groups > 1) {
    const Expr first = floordiv(out, floordiv(dy[1], groups)) * per_group;
    channel = is_const_int(per_group, 1) ? first : first + in;
  }
  std::vector<Expr> x_index = {n, channel};
  std::vector<Expr> dy_index = {n, out};
  Expr inside = const_int(DType::kBool, 1);
  for (size_t d = 0; d < dims.size(); ++d) {
    const Axis p{make_var("p" + std::to_string(d)), dy[d + 2]};
    const WindowPlace place = window_place(dims[d], p.var, body.axes[d + 2].var, p.extent);
    body.reduce_axes.push_back(p);
    x_index.push_back(place.index);
    dy_index.push_back(p.var);
    inside = logical_and(inside, place.inside);
  }
  body.combiner = Combiner::kSum;
  const Expr zero = const_of(ctx.inputs[0].dtype, 0);
  body.value = select(inside, load(body.inputs[0], x_index), zero) * load(body.inputs[1], dy_index);
  return body;
}

std::vector<AttrDef> attrs() {
  std::vector<AttrDef> list = conv_attr_defs();
  list.push_back({"window", AttrKind::kInts, true, "extents of the weights, per spatial dimension"});
  return list;
}

// dw is linear in the image and in the convolution's gradient. With dw's gradient g as weights, the one is the
// transposed convolution of dy, the other the convolution of x.
std::vector<ValueId> gradient(Adjoint& a) {
  std::vector<ValueId> gradients(2, Adjoint::kNone);
  if (a.wants(0)) gradients[0] = conv_image_gradient(a, a.in(0), a.gradient(), a.in(1));
  if (a.wants(1)) gradients[1] = a.op("conv", {a.in(0), a.gradient()}, conv_attrs(a.attrs()));
  return gradients;
}

}  // namespace

const OpDef& conv_weights_op() {
  static const OpDef op{
      .name = "conv_weights",
      .doc =
          "The gradient of the weights of conv, from its input x[N,C,spatial...] and its result's gradient "
          "dy[N,O,places...]: dw[o,c,k...] = sum over n, p of x[n, c of o's group, p * stride + k * dilation - pad] * "
          "dy[n,o,p...].",
      .min_inputs = 2,
      .max_inputs = 2,
      .attrs = attrs(),
      .infer = infer,
      .body = body,
      .gradient = gradient,
      .example = R"(
graph @main(%x: f32[1,1,3,3], %dy: f32[1,1,2,2]) -> (%dw: f32[1,1,2,2]) {
  %dw = conv_weights(%x, %dy) {dilations = [1, 1], groups = 1, input_dilations = [1, 1], pads_begin = [1, 1],
                               pads_end = [0, 0], strides = [2, 2], window = [2, 2]} : f32[1,1,2,2]
}
run x = 1 2 3 4 5 6 7 8 9 ; dy = 1 10 100 1000 -> dw = 5000 6400 8020 9731
)",
  };
  return op;
}

}  // namespace tessera::inline ops
