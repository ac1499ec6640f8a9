// relayout: the same values in a buffer of another layout. Inference drops layouts, so the pass that inserts this
// node sets its result's layout to the attribute.
#include "graph/adjoint.h"
#include "ops/op_util.h"
#include "ops/primitives.h"

namespace tessera::inline ops {
namespace {

std::vector<TensorType> infer(const OpContext& ctx) {
  require_dtype(ctx, 0, is_movable, kMovableTypes);
  for (const LayoutDim& dim : ctx.attrs.get<Layout>("layout").dims)
    if (dim.axis < 0 || dim.axis >= ctx.inputs[0].rank() || dim.block < 1)
      ctx.fail("TSR-2025",
               "layout = " + ctx.attrs.get<Layout>("layout").to_string() + " for " + describe_operand(ctx, 0),
               "a layout of the operand's dimensions");
  return {TensorType{ctx.inputs[0].dtype, ctx.inputs[0].shape, {}}};
}

Body body(const OpContext& ctx) {
  return elementwise_body(ctx, [](const std::vector<Expr>& x) { return x[0]; });
}

std::vector<ValueId> gradient(Adjoint& a) { return {a.gradient()}; }

}  // namespace

const OpDef& relayout_op() {
  static const OpDef op{
      .name = "relayout",
      .doc = "x, stored in another layout.",
      .min_inputs = 1,
      .max_inputs = 1,
      .attrs = {{"layout", AttrKind::kLayout, true, "the result's layout"}},
      .infer = infer,
      .body = body,
      .gradient = gradient,
      .example = R"(
graph @main(%x: f32[1,4]) -> (%y: f32[1,4]{0,1/2,1%2}) {
  %y = relayout(%x) {layout = {0,1/2,1%2}} : f32[1,4]{0,1/2,1%2}
}
run x = 1 2 3 4 -> y = 1 2 3 4
)",
  };
  return op;
}

}  // namespace tessera::inline ops
