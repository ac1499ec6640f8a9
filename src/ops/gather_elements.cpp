// gather_elements: for every element of the result, one element of x along an axis.
#include "ops/op_util.h"
#include "ops/primitives.h"

namespace tessera::inline ops {
namespace {

std::vector<TensorType> infer(const OpContext& ctx) {
  const TensorType& x = ctx.inputs[0];
  const TensorType& indices = ctx.inputs[1];
  require_dtype(ctx, 0, is_movable, kMovableTypes);
  require_dtype(ctx, 1, is_index, kIndexTypes);
  require_rank(ctx, 1, x.rank(), x.rank());
  const auto axis = static_cast<size_t>(require_int(ctx, "axis", 0, x.rank() - 1));
  for (size_t d = 0; d < x.shape.size(); ++d) {
    if (d == axis) continue;
    const auto have = as_int(x.shape[d]);
    const auto want = as_int(indices.shape[d]);
    if (have && want ? *want > *have : !equal_extents(x.shape[d], indices.shape[d]))
      ctx.fail("TSR-2024", describe_operand(ctx, 1) + " for " + describe_operand(ctx, 0),
               "indices no larger than the operand except in dimension " + std::to_string(axis));
  }
  require_elements(ctx, axis, indices.shape);
  return {TensorType{x.dtype, indices.shape, {}}};
}

Body body(const OpContext& ctx) {
  Body body = start_body(ctx);
  const auto axis = static_cast<size_t>(ctx.attrs.get_int("axis"));
  std::vector<Expr> index = body.axis_vars();
  index[axis] = index_in_range(load(body.inputs[1], body.axis_vars()), ctx.inputs[0].shape[axis]);
  body.value = load(body.inputs[0], index);
  return body;
}

}  // namespace

const OpDef& gather_elements_op() {
  static const OpDef op{
      .name = "gather_elements",
      .doc =
          "y[i, j, ...] = x[indices[i, j, ...], j, ...] for axis 0, and so on. A negative index counts from the end; "
          "what is still outside is clamped into the range.",
      .min_inputs = 2,
      .max_inputs = 2,
      .attrs = {{"axis", AttrKind::kInt, true, "the dimension of x that is indexed"}},
      .infer = infer,
      .body = body,
      .example = R"(
graph @main(%x: f32[2,3], %i: i64[2,2]) -> (%y: f32[2,2]) {
  %y = gather_elements(%x, %i) {axis = 1} : f32[2,2]
}
run x = 1 2 3 4 5 6 ; i = 2 0 -1 99 -> y = 3 1 6 6
)",
  };
  return op;
}

}  // namespace tessera::inline ops
