// broadcast: a tensor stretched to a larger shape by numpy's rule.
#include <fmt/format.h>

#include "graph/adjoint.h"
#include "ops/op_util.h"
#include "ops/primitives.h"

namespace tessera::inline ops {
namespace {

std::vector<TensorType> infer(const OpContext& ctx) {
  require_dtype(ctx, 0, is_movable, kMovableTypes);
  const Shape target = require_sizes(ctx, "shape", ctx.attrs.get_sizes("shape").size(), 0, kMaxExtent);
  const Shape joint = broadcast_shapes(ctx, ctx.inputs[0].shape, target);
  bool fits = joint.size() == target.size();
  for (size_t d = 0; fits && d < joint.size(); ++d) fits = equal_extents(joint[d], target[d]);
  if (!fits)
    ctx.fail("TSR-2023", fmt::format("{} to be stretched to {}", describe_operand(ctx, 0), join(target)),
             "extents of the operand that are 1 or those of `shape`");
  return {TensorType{ctx.inputs[0].dtype, target, {}}};
}

Body body(const OpContext& ctx) {
  return elementwise_body(ctx, [](const std::vector<Expr>& x) { return x[0]; });
}

std::vector<ValueId> gradient(Adjoint& a) { return {a.sum_to(a.gradient(), a.in(0))}; }

}  // namespace

const OpDef& broadcast_op() {
  static const OpDef op{
      .name = "broadcast",
      .doc = "x stretched to `shape` by numpy's rule.",
      .min_inputs = 1,
      .max_inputs = 1,
      .attrs = {{"shape", AttrKind::kSizes, true, "the result's extents"}},
      .infer = infer,
      .body = body,
      .gradient = gradient,
      .example = R"(
graph @main(%x: f32[2,1]) -> (%y: f32[2,2,2]) {
  %y = broadcast(%x) {shape = [2, 2, 2]} : f32[2,2,2]
}
run x = 1 2 -> y = 1 1 2 2 1 1 2 2
)",
  };
  return op;
}

}  // namespace tessera::inline ops
