// transpose: the dimensions in another order.
#include "graph/adjoint.h"
#include "ops/op_util.h"
#include "ops/primitives.h"

namespace tessera::inline ops {
namespace {

std::vector<TensorType> infer(const OpContext& ctx) {
  const TensorType& x = ctx.inputs[0];
  require_dtype(ctx, 0, is_movable, kMovableTypes);
  const auto& perm = require_ints(ctx, "perm", x.shape.size(), 0, x.rank() - 1);
  require_axes(ctx, "perm", x.rank());
  Shape shape;
  for (int64_t axis : perm) shape.push_back(x.shape[static_cast<size_t>(axis)]);
  return {TensorType{x.dtype, shape, {}}};
}

Body body(const OpContext& ctx) {
  Body body = start_body(ctx);
  const auto& perm = ctx.attrs.get_ints("perm");
  std::vector<Expr> index(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) index[static_cast<size_t>(perm[i])] = body.axes[i].var;
  body.value = load(body.inputs[0], index);
  return body;
}

std::vector<ValueId> gradient(Adjoint& a) {
  const auto& perm = a.attrs().get_ints("perm");
  std::vector<int64_t> inverse(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) inverse[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  return {a.op("transpose", {a.gradient()}, {{"perm", inverse}})};
}

}  // namespace

const OpDef& transpose_op() {
  static const OpDef op{
      .name = "transpose",
      .doc = "Dimension i of the result is dimension perm[i] of x.",
      .min_inputs = 1,
      .max_inputs = 1,
      .attrs = {{"perm", AttrKind::kInts, true, "a permutation of the dimensions"}},
      .infer = infer,
      .body = body,
      .gradient = gradient,
      .example = R"(
graph @main(%x: f32[2,3]) -> (%y: f32[3,2]) {
  %y = transpose(%x) {perm = [1, 0]} : f32[3,2]
}
run x = 1 2 3 4 5 6 -> y = 1 4 2 5 3 6
)",
  };
  return op;
}

}  // namespace tessera::inline ops
