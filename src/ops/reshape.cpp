// reshape: the same row-major elements under another shape. No data moves.
#include <fmt/format.h>

#include "arith/simplify.h"
#include "graph/adjoint.h"
#include "ops/op_util.h"
#include "ops/primitives.h"

namespace tessera::inline ops {
namespace {

std::vector<TensorType> infer(const OpContext& ctx) {
  const Shape shape = require_sizes(ctx, "shape", ctx.attrs.get_sizes("shape").size(), 0, kMaxExtent);
  Expr from = 1;
  for (const Expr& dim : ctx.inputs[0].shape) from = from * dim;
  Expr to = 1;
  for (const Expr& dim : shape) to = to * dim;
  if (!equal_extents(from, to))
    ctx.fail("TSR-2028",
             fmt::format("shape = {} ({} elements) for {} ({} elements)", join(shape), to_string(normalize_size(to)),
                         describe_operand(ctx, 0), to_string(normalize_size(from))),
             "a shape of as many elements as the operand's");
  return {TensorType{ctx.inputs[0].dtype, shape, {}}};
}

std::vector<ValueId> gradient(Adjoint& a) { return {a.reshape(a.gradient(), a.type(a.in(0)).shape)}; }

}  // namespace

const OpDef& reshape_op() {
  static const OpDef op{
      .name = "reshape",
      .doc = "The elements of x in row-major order under another shape.",
      .kind = OpKind::kView,
      .min_inputs = 1,
      .max_inputs = 1,
      .attrs = {{"shape", AttrKind::kSizes, true, "the result's extents, all given"}},
      .infer = infer,
      .body = {},
      .gradient = gradient,
      .example = R"(
graph @main(%x: f32[2,3]) -> (%y: f32[3,1,2]) {
  %y = reshape(%x) {shape = [3, 1, 2]} : f32[3,1,2]
}
run x = 1 2 3 4 5 6 -> y = 1 2 3 4 5 6
)",
  };
  return op;
}

}  // namespace tessera::inline ops
