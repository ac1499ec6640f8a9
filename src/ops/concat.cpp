// concat: operands one after the other along an axis.
#include <fmt/format.h>

#include "arith/simplify.h"
#include "graph/adjoint.h"
#include "ops/op_util.h"
#include "ops/primitives.h"

namespace tessera::inline ops {
namespace {

std::vector<TensorType> infer(const OpContext& ctx) {
  const TensorType& first = ctx.inputs[0];
  require_dtype(ctx, 0, is_movable, kMovableTypes);
  require_same_dtype(ctx);
  const auto axis = static_cast<size_t>(require_int(ctx, "axis", 0, first.rank() - 1));
  Shape shape = first.shape;
  for (size_t i = 1; i < ctx.inputs.size(); ++i) {
    const Shape& next = ctx.inputs[i].shape;
    bool fits = next.size() == shape.size();
    for (size_t d = 0; fits && d < shape.size(); ++d) fits = d == axis || equal_extents(shape[d], next[d]);
    if (!fits)
      ctx.fail("TSR-2024", fmt::format("{} and {}", describe_operand(ctx, 0), describe_operand(ctx, i)),
               fmt::format("equal shapes except in dimension {}", axis));
    shape[axis] = shape[axis] + next[axis];
  }
  shape[axis] = simplify(shape[axis]);
  return {TensorType{first.dtype, shape, {}}};
}

// The value at `index` among operands begin .. end - 1, whose ranges along the axis start at `starts`: a balanced
// tree of comparisons, so that n operands cost log n of them.
Expr pick(const Body& body, const std::vector<Expr>& index, size_t axis, const std::vector<Expr>& starts, size_t begin,
          size_t end) {
  if (end - begin == 1) {
    std::vector<Expr> local = index;
    local[axis] = local[axis] - starts[begin];
    return load(body.inputs[begin], local);
  }
  const size_t middle = begin + (end - begin) / 2;
  return select(index[axis] < starts[middle], pick(body, index, axis, starts, begin, middle),
                pick(body, index, axis, starts, middle, end));
}

Body body(const OpContext& ctx) {
  Body body = start_body(ctx);
  const auto axis = static_cast<size_t>(ctx.attrs.get_int("axis"));
  std::vector<Expr> starts = {Expr(0)};
  for (const TensorType& input : ctx.inputs) starts.push_back(simplify(starts.back() + input.shape[axis]));
  body.value = pick(body, body.axis_vars(), axis, starts, 0, ctx.inputs.size());
  return body;
}

std::vector<ValueId> gradient(Adjoint& a) {
  const auto axis = static_cast<size_t>(a.attrs().get_int("axis"));
  const Shape whole = a.type(a.out()).shape;
  Shape starts(whole.size(), Expr(0));
  std::vector<ValueId> gradients;
  for (size_t i = 0; i < a.num_operands(); ++i) {
    const Shape sizes = a.type(a.in(i)).shape;
    gradients.push_back(
        !a.wants(i) ? Adjoint::kNone
                    : a.op("slice", {a.gradient()},
                           {{"starts", starts}, {"sizes", sizes}, {"steps", std::vector<int64_t>(whole.size(), 1)}}));
    starts[axis] = normalize_size(starts[axis] + sizes[axis]);
  }
  return gradients;
}

}  // namespace

const OpDef& concat_op() {
  static const OpDef op{
      .name = "concat",
      .doc = "The operands one after the other along `axis`.",
      .min_inputs = 1,
      .max_inputs = -1,
      .attrs = {{"axis", AttrKind::kInt, true, "the dimension along which they are joined"},
                {"in_place", AttrKind::kInt, false,
                 "1: set by the compiler where operands are computed into the result"}},
      .infer = infer,
      .body = body,
      .gradient = gradient,
      .example = R"(
graph @main(%a: f32[2,1], %b: f32[2,2]) -> (%y: f32[2,3]) {
  %y = concat(%a, %b) {axis = 1} : f32[2,3]
}
run a = 1 2 ; b = 3 4 5 6 -> y = 1 3 4 2 5 6
)",
  };
  return op;
}

}  // namespace tessera::inline ops
