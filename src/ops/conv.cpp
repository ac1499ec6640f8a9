// conv: convolution (as neural networks use the word: cross-correlation) over one to three spatial dimensions, with
// padding, both dilations and groups. A bias is an addition of its own.
#include <fmt/format.h>

#include "ops/conv_gradients.h"
#include "ops/primitives.h"
#include "ops/window.h"

namespace tessera::inline ops {
namespace {

Shape spatial(const Shape& shape) { return Shape(shape.begin() + 2, shape.end()); }

std::vector<TensorType> infer(const OpContext& ctx) {
  const TensorType& x = ctx.inputs[0];
  const TensorType& w = ctx.inputs[1];
  require_dtype(ctx, 0, is_arithmetic, kArithmeticTypes);
  require_same_dtype(ctx);
  require_rank(ctx, 0, 3, 5);
  require_rank(ctx, 1, x.rank(), x.rank());
  const int64_t groups = require_int(ctx, "groups", 1, kMaxWindowInt);
  if (!equal_extents(x.shape[1], w.shape[1] * Expr(groups)))
    ctx.fail("TSR-2024",
             fmt::format("{} with weights {} in {}", describe_operand(ctx, 0), to_string(w.shape),
                         plural(static_cast<size_t>(groups), "group", "groups")),
             fmt::format("{} input channels: dimension 1 of the weights times the groups",
                         to_string(w.shape[1] * Expr(groups))));
  if (const auto out = as_int(w.shape[0]); out && *out % groups != 0)
    ctx.fail("TSR-2024", fmt::format("{} output channels in {} groups", *out, groups),
             "a number of output channels that the groups divide");
  Shape shape = {x.shape[0], w.shape[0]};
  const auto dims = window_dims(ctx, spatial(x.shape), spatial(w.shape));
  for (size_t d = 0; d < dims.size(); ++d) {
    if (is_const_int(dims[d].window, 0))
      ctx.fail("TSR-2024", fmt::format("weights {}", to_string(w.shape)), "kernel extents of at least 1");
    shape.push_back(window_count(ctx, dims[d], d));
  }
  return {TensorType{x.dtype, shape, {}}};
}

Body body(const OpContext& ctx) {
  Body body = start_body(ctx);
  const Shape& x = ctx.inputs[0].shape;
  const Shape& w = ctx.inputs[1].shape;
  const int64_t groups = ctx.attrs.get_int("groups");
  const auto dims = window_dims(ctx, spatial(x), spatial(w));
  const Expr batch = body.axes[0].var;
  const Expr channel = body.axes[1].var;

  body.reduce_axes.push_back({make_var("ic"), w[1]});
  const Expr ic = body.reduce_axes[0].var;
  // Output channel o belongs to group o / (channels per group) and sees that group's input channels. A depthwise
  // convolution with as many outputs as inputs has one channel on either side, and no division.
  Expr in_channel = ic;
  if (groups > 1) {
    const Expr per_group = floordiv(w[0], groups);
    const Expr first = floordiv(channel, per_group) * w[1];
    in_channel = is_const_int(w[1], 1) ? first : first + ic;
  }
  std::vector<Expr> x_index = {batch, in_channel};
  std::vector<Expr> w_index = {channel, ic};
  Expr inside = const_int(DType::kBool, 1);
  for (size_t d = 0; d < dims.size(); ++d) {
    const Axis k{make_var("k" + std::to_string(d)), dims[d].window};
    const WindowPlace place = window_place(dims[d], body.axes[d + 2].var, k.var, body.axes[d + 2].extent);
    body.reduce_axes.push_back(k);
    x_index.push_back(place.index);
    w_index.push_back(k.var);
    inside = logical_and(inside, place.inside);
  }
  body.combiner = Combiner::kSum;
  const Expr zero = const_of(ctx.inputs[0].dtype, 0);
  body.value = select(inside, load(body.inputs[0], x_index), zero) * load(body.inputs[1], w_index);
  return body;
}

std::vector<ValueId> gradient(Adjoint& a) {
  std::vector<ValueId> gradients(2, Adjoint::kNone);
  if (a.wants(0)) gradients[0] = conv_image_gradient(a, a.in(0), a.in(1), a.gradient());
  if (a.wants(1)) {
    const Shape& w = a.type(a.in(1)).shape;
    std::vector<int64_t> window;
    for (size_t d = 2; d < w.size(); ++d) {
      const auto extent = as_int(w[d]);
      if (!extent) a.fail("weights " + to_string(w), "windows whose sizes are numbers");
      window.push_back(*extent);
    }
    gradients[1] = conv_weights_gradient(a, a.in(0), a.gradient(), window);
  }
  return gradients;
}

}  // namespace

const OpDef& conv_op() {
  static const OpDef op{
      .name = "conv",
      .doc =
          "The convolution of x[N,C,spatial...] with the weights w[O,C/groups,kernel...]: "
          "y[n,o,p...] = sum over c, k of x[n, c of o's group, p * stride + k * dilation - pad] * w[o,c,k...].",
      .min_inputs = 2,
      .max_inputs = 2,
      .attrs = conv_attr_defs(),
      .infer = infer,
      .body = body,
      .gradient = gradient,
      .example = R"(
graph @main(%x: f32[1,1,3,3], %w: f32[1,1,2,2]) -> (%y: f32[1,1,2,2]) {
  %y = conv(%x, %w) {dilations = [1, 1], groups = 1, input_dilations = [1, 1],
                     pads_begin = [1, 1], pads_end = [0, 0], strides = [2, 2]} : f32[1,1,2,2]
}
run x = 1 2 3 4 5 6 7 8 9 ; w = 1 10 100 1000 -> y = 1000 3200 7040 9865
)",
  };
  return op;
}

}  // namespace tessera::inline ops
