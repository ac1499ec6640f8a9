// dynamic_slice, dynamic_update_slice: a box of a tensor at a place that a run knows, read and written. The box is
// moved to lie inside the tensor, so no place is an error.
#include "arith/simplify.h"
#include "graph/adjoint.h"
#include "ops/op_util.h"
#include "ops/primitives.h"

namespace tessera::inline ops {
namespace {

// Operand `operand` is a list with one start for each dimension of x.
void require_starts(const OpContext& ctx, size_t operand) {
  require_dtype(ctx, operand, is_index, kIndexTypes);
  require_rank(ctx, operand, 1, 1);
  if (!is_const_int(ctx.inputs[operand].shape[0], ctx.inputs[0].rank()))
    ctx.fail("TSR-2024", describe_operand(ctx, operand),
             plural(static_cast<size_t>(ctx.inputs[0].rank()), "start, one for each dimension of x",
                    "starts, one for each dimension of x"));
}

void require_inside(const OpContext& ctx, const Shape& sizes, const std::string& what) {
  for (size_t d = 0; d < sizes.size(); ++d)
    if (!size_at_most(sizes[d], ctx.inputs[0].shape[d]))
      ctx.fail("TSR-2024", what + " for " + describe_operand(ctx, 0), "a box that is no larger than x");
}

// The first index of the box in dimension d, at a place in 0 .. extent - size.
Expr start_in_range(const OpContext& ctx, const Body& body, size_t operand, const Shape& sizes, size_t d) {
  const Expr start = cast(DType::kI64, load(body.inputs[operand], {Expr(static_cast<int64_t>(d))}));
  return max(min(start, ctx.inputs[0].shape[d] - sizes[d]), 0);
}

std::vector<TensorType> infer_slice(const OpContext& ctx) {
  require_dtype(ctx, 0, is_movable, kMovableTypes);
  require_starts(ctx, 1);
  const Shape sizes = require_sizes(ctx, "sizes", ctx.inputs[0].shape.size(), 0, kMaxExtent);
  require_inside(ctx, sizes, "sizes = " + join(sizes));
  return {TensorType{ctx.inputs[0].dtype, sizes, {}}};
}

Body slice_body(const OpContext& ctx) {
  Body body = start_body(ctx);
  const Shape sizes = ctx.attrs.get_sizes("sizes");
  std::vector<Expr> index;
  for (size_t d = 0; d < sizes.size(); ++d) index.push_back(start_in_range(ctx, body, 1, sizes, d) + body.axes[d].var);
  body.value = load(body.inputs[0], index);
  return body;
}

std::vector<TensorType> infer_update(const OpContext& ctx) {
  const TensorType &x = ctx.inputs[0], &update = ctx.inputs[1];
  require_dtype(ctx, 0, is_movable, kMovableTypes);
  if (update.dtype != x.dtype)
    ctx.fail("TSR-2021", describe_operand(ctx, 1) + " for " + describe_operand(ctx, 0), "equal element types");
  require_rank(ctx, 1, x.rank(), x.rank());
  require_starts(ctx, 2);
  require_inside(ctx, update.shape, describe_operand(ctx, 1));
  return {TensorType{x.dtype, x.shape, {}}};
}

Body update_body(const OpContext& ctx) {
  Body body = start_body(ctx);
  const Shape& sizes = ctx.inputs[1].shape;
  Expr inside = const_of(DType::kBool, 1);
  std::vector<Expr> index;
  for (size_t d = 0; d < sizes.size(); ++d) {
    index.push_back(body.axes[d].var - start_in_range(ctx, body, 2, sizes, d));
    inside = logical_and(inside, logical_and(Expr(0) <= index[d], index[d] < sizes[d]));
  }
  body.value = select(inside, load(body.inputs[1], index), load(body.inputs[0], body.axis_vars()));
  return body;
}

std::vector<ValueId> slice_gradient(Adjoint& a) {
  const TensorType x = a.type(a.in(0));
  return {a.op("dynamic_update_slice", {a.filled(0, x.dtype, x.shape), a.gradient(), a.in(1)}), Adjoint::kNone};
}

std::vector<ValueId> update_gradient(Adjoint& a) {
  const TensorType update = a.type(a.in(1));
  const ValueId g = a.gradient();
  return {
      a.wants(0) ? a.op("dynamic_update_slice", {g, a.filled(0, update.dtype, update.shape), a.in(2)}) : Adjoint::kNone,
      a.wants(1) ? a.op("dynamic_slice", {g, a.in(2)}, {{"sizes", update.shape}}) : Adjoint::kNone, Adjoint::kNone};
}

}  // namespace

const OpDef& dynamic_slice_op() {
  static const OpDef op{
      .name = "dynamic_slice",
      .doc = "A box of x from the place `starts` on, moved to lie inside x.",
      .min_inputs = 2,
      .max_inputs = 2,
      .attrs = {{"sizes", AttrKind::kSizes, true, "the box's extents, those of the result"}},
      .infer = infer_slice,
      .body = slice_body,
      .gradient = slice_gradient,
      .example = R"(
graph @main(%x: f32[2,3], %s: i64[2]) -> (%y: f32[1,2]) {
  %y = dynamic_slice(%x, %s) {sizes = [1, 2]} : f32[1,2]
}
run x = 1 2 3 4 5 6 ; s = 1 0 -> y = 4 5
run x = 1 2 3 4 5 6 ; s = -7 2 -> y = 2 3
)",
  };
  return op;
}

const OpDef& dynamic_update_slice_op() {
  static const OpDef op{
      .name = "dynamic_update_slice",
      .doc = "x with the second operand in a box from the place `starts`, the third, on, moved to lie inside x.",
      .min_inputs = 3,
      .max_inputs = 3,
      .attrs = {},
      .infer = infer_update,
      .body = update_body,
      .gradient = update_gradient,
      .example = R"(
graph @main(%x: f32[2,3], %u: f32[1,2], %s: i64[2]) -> (%y: f32[2,3]) {
  %y = dynamic_update_slice(%x, %u, %s) : f32[2,3]
}
run x = 1 2 3 4 5 6 ; u = 8 9 ; s = 1 0 -> y = 1 2 3 8 9 6
run x = 1 2 3 4 5 6 ; u = 8 9 ; s = -7 2 -> y = 1 8 9 4 5 6
)",
  };
  return op;
}

}  // namespace tessera::inline ops
