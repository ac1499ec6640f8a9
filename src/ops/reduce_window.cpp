// reduce_window: the sum, maximum or minimum of every window; padding does not take part.
#include "ops/primitives.h"
#include "ops/window.h"

namespace tessera::inline ops {
namespace {

constexpr Combiner kCombiners[] = {Combiner::kSum, Combiner::kMax, Combiner::kMin};

Combiner combiner_of(const OpContext& ctx) {
  return kCombiners[require_word(ctx, "kind", ctx.attrs.get<std::string>("kind"), {"sum", "max", "min"})];
}

std::vector<WindowDim> dims_of(const OpContext& ctx) {
  const Shape& x = ctx.inputs[0].shape;
  const Shape extents(x.begin() + 2, x.end());
  const auto& window = require_ints(ctx, "window", extents.size(), 1, kMaxWindowInt);
  return window_dims(ctx, extents, make_shape(window));
}

std::vector<TensorType> infer(const OpContext& ctx) {
  const TensorType& x = ctx.inputs[0];
  combiner_of(ctx);
  require_dtype(ctx, 0, is_arithmetic, kArithmeticTypes);
  require_rank(ctx, 0, 3, 5);
  Shape shape = {x.shape[0], x.shape[1]};
  const auto dims = dims_of(ctx);
  for (size_t d = 0; d < dims.size(); ++d) shape.push_back(window_count(ctx, dims[d], d));
  return {TensorType{x.dtype, shape, {}}};
}

Body body(const OpContext& ctx) {
  Body body = start_body(ctx);
  const auto dims = dims_of(ctx);
  body.combiner = combiner_of(ctx);
  std::vector<Expr> index = {body.axes[0].var, body.axes[1].var};
  Expr inside = const_int(DType::kBool, 1);
  for (size_t d = 0; d < dims.size(); ++d) {
    const Axis k{make_var("k" + std::to_string(d)), dims[d].window};
    const WindowPlace place = window_place(dims[d], body.axes[d + 2].var, k.var, body.axes[d + 2].extent);
    body.reduce_axes.push_back(k);
    index.push_back(place.index);
    inside = logical_and(inside, place.inside);
  }
  body.value = select(inside, load(body.inputs[0], index), combiner_identity(body.combiner, ctx.inputs[0].dtype));
  return body;
}

std::vector<AttrDef> attrs() {
  std::vector<AttrDef> list = window_attrs();
  list.push_back({"kind", AttrKind::kString, true, "sum, max or min"});
  list.push_back({"window", AttrKind::kInts, true, "the window's extents, per spatial dimension"});
  return list;
}

}  // namespace

const OpDef& reduce_window_op() {
  static const OpDef op{
      .name = "reduce_window",
      .doc =
          "The sum, maximum or minimum over a window that slides over the spatial dimensions of x[N,C,spatial...]; "
          "padded places do not take part.",
      .min_inputs = 1,
      .max_inputs = 1,
      .attrs = attrs(),
      .infer = infer,
      .body = body,
      .example = R"(
graph @main(%x: f32[1,1,4]) -> (%y: f32[1,1,2]) {
  %y = reduce_window(%x) {dilations = [1], kind = "max", pads_begin = [1], pads_end = [1], strides = [3], window = [3]} : f32[1,1,2]
}
run x = -1 -2 -3 -4 -> y = -1 -3
)",
  };
  return op;
}

}  // namespace tessera::inline ops
