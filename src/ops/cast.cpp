// cast: another element type. The conversion's rules are those of arith/expr.h.
#include "graph/adjoint.h"
#include "ops/op_util.h"
#include "ops/primitives.h"

namespace tessera::inline ops {
namespace {

std::vector<TensorType> infer(const OpContext& ctx) {
  require_dtype(ctx, 0, is_movable, kMovableTypes);
  const DType to = ctx.attrs.get<DType>("to");
  if (!is_movable(to)) ctx.fail("TSR-2020", "to = string", kMovableTypes);
  return {TensorType{to, ctx.inputs[0].shape, {}}};
}

Body body(const OpContext& ctx) {
  const DType to = ctx.attrs.get<DType>("to");
  return elementwise_body(ctx, [&](const std::vector<Expr>& x) { return cast(to, x[0]); });
}

std::vector<ValueId> gradient(Adjoint& a) { return {a.op("cast", {a.gradient()}, {{"to", a.type(a.in(0)).dtype}})}; }

}  // namespace

const OpDef& cast_op() {
  static const OpDef op{
      .name = "cast",
      .doc = "x converted to another element type.",
      .min_inputs = 1,
      .max_inputs = 1,
      .attrs = {{"to", AttrKind::kDType, true, "the result's element type"}},
      .infer = infer,
      .body = body,
      .gradient = gradient,
      .example = R"(
graph @main(%x: f32[5]) -> (%y: i8[5]) {
  %y = cast(%x) {to = i8} : i8[5]
}
run x = 1.9 -1.9 300 -300 nan -> y = 1 -1 127 -128 0
)",
  };
  return op;
}

}  // namespace tessera::inline ops
