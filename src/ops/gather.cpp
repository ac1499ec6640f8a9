// gather: slices of x along an axis, chosen by a tensor of indices.
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
  const auto axis = require_int(ctx, "axis", 0, x.rank() - 1);
  require_elements(ctx, static_cast<size_t>(axis), indices.shape);
  Shape shape(x.shape.begin(), x.shape.begin() + axis);
  shape.insert(shape.end(), indices.shape.begin(), indices.shape.end());
  shape.insert(shape.end(), x.shape.begin() + axis + 1, x.shape.end());
  return {TensorType{x.dtype, shape, {}}};
}

Body body(const OpContext& ctx) {
  Body body = start_body(ctx);
  const auto axis = static_cast<size_t>(ctx.attrs.get_int("axis"));
  const size_t count = ctx.inputs[1].shape.size();
  const std::vector<Expr> out = body.axis_vars();
  const auto begin = out.begin() + static_cast<std::ptrdiff_t>(axis);
  const auto end = begin + static_cast<std::ptrdiff_t>(count);
  std::vector<Expr> index(out.begin(), begin);
  index.push_back(index_in_range(load(body.inputs[1], {begin, end}), ctx.inputs[0].shape[axis]));
  index.insert(index.end(), end, out.end());
  body.value = load(body.inputs[0], index);
  return body;
}

std::vector<ValueId> gradient(Adjoint& a) {
  const Shape x = a.type(a.in(0)).shape;
  const auto axis = static_cast<size_t>(a.attrs().get_int("axis"));
  return {added_at(a, a.gradient(), places_in_range(a, a.in(1), x[axis]), x, axis), Adjoint::kNone};
}

}  // namespace

const OpDef& gather_op() {
  static const OpDef op{
      .name = "gather",
      .doc =
          "Slices of x along `axis`, one per element of indices, whose dimensions take the axis's place. A negative "
          "index counts from the end; what is still outside is clamped into the range.",
      .min_inputs = 2,
      .max_inputs = 2,
      .attrs = {{"axis", AttrKind::kInt, true, "the dimension of x that is indexed"}},
      .infer = infer,
      .body = body,
      .gradient = gradient,
      .example = R"(
graph @main(%x: f32[3,2], %i: i64[3]) -> (%y: f32[3,2]) {
  %y = gather(%x, %i) {axis = 0} : f32[3,2]
}
run x = 1 2 3 4 5 6 ; i = 2 -3 99 -> y = 5 6 1 2 5 6
)",
  };
  return op;
}

}  // namespace tessera::inline ops
