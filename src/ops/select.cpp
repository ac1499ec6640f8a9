// select: one of two tensors, element by element.
#include "graph/adjoint.h"
#include "ops/op_util.h"
#include "ops/primitives.h"

namespace tessera::inline ops {
namespace {

std::vector<TensorType> infer(const OpContext& ctx) {
  require_dtype(ctx, 0, [](DType dtype) { return dtype == DType::kBool; }, "bool");
  require_dtype(ctx, 1, is_movable, kMovableTypes);
  require_same_dtype(ctx, 1);
  const Shape arms = broadcast_shapes(ctx, ctx.inputs[1].shape, ctx.inputs[2].shape);
  return {TensorType{ctx.inputs[1].dtype, broadcast_shapes(ctx, ctx.inputs[0].shape, arms), {}}};
}

Body body(const OpContext& ctx) {
  return elementwise_body(ctx, [](const std::vector<Expr>& x) { return select(x[0], x[1], x[2]); });
}

// The arm that is not taken has the gradient 0, whatever it is: nothing is multiplied by a mask.
std::vector<ValueId> gradient(Adjoint& a) {
  const ValueId g = a.gradient(), zero = a.scalar(0, g);
  std::vector<ValueId> gradients(3, Adjoint::kNone);
  if (a.wants(1)) gradients[1] = a.sum_to(a.op("select", {a.in(0), g, zero}), a.in(1));
  if (a.wants(2)) gradients[2] = a.sum_to(a.op("select", {a.in(0), zero, g}), a.in(2));
  return gradients;
}

}  // namespace

const OpDef& select_op() {
  static const OpDef op{
      .name = "select",
      .doc = "a where cond holds, else b; the three broadcast.",
      .min_inputs = 3,
      .max_inputs = 3,
      .attrs = {},
      .infer = infer,
      .body = body,
      .gradient = gradient,
      .example = R"(
graph @main(%c: bool[3], %a: f32[3], %b: f32[]) -> (%y: f32[3]) {
  %y = select(%c, %a, %b) : f32[3]
}
run c = 1 0 1 ; a = 1 2 3 ; b = 9 -> y = 1 9 3
)",
  };
  return op;
}

}  // namespace tessera::inline ops
