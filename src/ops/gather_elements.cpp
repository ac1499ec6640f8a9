// gather_elements: for every element of the result, one element of x along an axis.
#include "arith/simplify.h"
#include "graph/adjoint.h"
#include "ops/index_gradients.h"
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

std::vector<ValueId> gradient(Adjoint& a) {
  const Shape x = a.type(a.in(0)).shape, read = a.type(a.in(1)).shape;
  const auto axis = static_cast<size_t>(a.attrs().get_int("axis"));
  const ValueId g = a.gradient(), places = places_in_range(a, a.in(1), x[axis]), zero = a.scalar(0, g);
  Shape part = read;  // of x
  part[axis] = x[axis];
  ValueId sum;
  if (is_const_int(read[axis], 1)) {  // one element of each line: nothing is added
    const ValueId number =
        a.op("iota", {}, {{"shape", part}, {"axis", static_cast<int64_t>(axis)}, {"dtype", DType::kI64}});
    sum = a.select(a.op("eq", {number, places}), g, zero);
  } else {
    const std::vector<int64_t> perm = moved_axis(x.size(), axis, x.size() - 1);
    const Expr lines = normalize_size(elements_of(read, 0, axis) * elements_of(read, axis + 1, read.size()));
    const ValueId updates = a.reshape(a.transpose(g, perm), {lines, read[axis], 1});
    const ValueId added = a.op("scatter",
                               {a.filled(0, a.type(g).dtype, {lines, x[axis], 1}),
                                a.reshape(a.transpose(places, perm), {lines, read[axis]}), updates},
                               {{"join", std::string("add")}});
    Shape moved;
    for (const int64_t d : perm) moved.push_back(part[static_cast<size_t>(d)]);
    sum = a.transpose(a.reshape(added, moved), inverse_of(perm));
  }
  Shape behind;
  bool pads = false;
  for (size_t d = 0; d < x.size(); ++d) {
    behind.push_back(normalize_size(x[d] - part[d]));
    pads |= !is_const_int(behind[d], 0);
  }
  if (pads)
    sum = a.op("pad", {sum, zero},
               {{"low", Shape(x.size(), Expr(0))}, {"high", behind}, {"mode", std::string("constant")}});
  return {sum, Adjoint::kNone};
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
      .gradient = gradient,
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
