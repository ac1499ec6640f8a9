// fma: a product and a sum, element by element.
#include "graph/adjoint.h"
#include "ops/op_util.h"
#include "ops/primitives.h"

namespace tessera::inline ops {
namespace {

std::vector<TensorType> infer(const OpContext& ctx) {
  require_dtype(ctx, 0, is_float, "a float type");
  require_same_dtype(ctx, 0);
  const Shape product = broadcast_shapes(ctx, ctx.inputs[0].shape, ctx.inputs[1].shape);
  return {TensorType{ctx.inputs[0].dtype, broadcast_shapes(ctx, product, ctx.inputs[2].shape), {}}};
}

Body body(const OpContext& ctx) {
  return elementwise_body(ctx, [](const std::vector<Expr>& x) { return fma(x[0], x[1], x[2]); });
}

std::vector<ValueId> gradient(Adjoint& a) {
  const ValueId g = a.gradient();
  std::vector<ValueId> gradients(3, Adjoint::kNone);
  if (a.wants(0)) gradients[0] = a.sum_to(a.mul(g, a.in(1)), a.in(0));
  if (a.wants(1)) gradients[1] = a.sum_to(a.mul(g, a.in(0)), a.in(1));
  if (a.wants(2)) gradients[2] = a.sum_to(g, a.in(2));
  return gradients;
}

}  // namespace

const OpDef& fma_op() {
  static const OpDef op{
      .name = "fma",
      .doc = "a * b + c, rounded once where the machine has such an instruction; the three broadcast.",
      .min_inputs = 3,
      .max_inputs = 3,
      .attrs = {},
      .infer = infer,
      .body = body,
      .gradient = gradient,
      .example = R"(
graph @main(%a: f32[3], %b: f32[3], %c: f32[]) -> (%y: f32[3]) {
  %y = fma(%a, %b, %c) : f32[3]
}
run a = 1 2 3 ; b = 2 -1 4 ; c = 9 -> y = 11 7 21
)",
  };
  return op;
}

}  // namespace tessera::inline ops
