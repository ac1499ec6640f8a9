// compute: a node with a body of its own, for what no operator of the list says: an adjoint, a gather with a mask, a
// contraction of another reader's format.
#include <fmt/format.h>

#include "ops/body_gradient.h"
#include "ops/body_text.h"
#include "ops/op_util.h"
#include "ops/primitives.h"

namespace tessera::inline ops {
namespace {

Body parsed(const OpContext& ctx) {
  Shape sizes;
  if (ctx.attrs.has("sizes")) sizes = ctx.attrs.get_sizes("sizes");
  std::vector<BufferPtr> operands;
  for (size_t i = 0; i < ctx.inputs.size(); ++i)
    operands.push_back(make_buffer(fmt::format("x{}", i), ctx.inputs[i].dtype, ctx.inputs[i].shape));
  return parse_body(ctx.attrs.get<std::string>("body"), operands, sizes);
}

std::vector<TensorType> infer(const OpContext& ctx) {
  const Body body = parsed(ctx);
  if (const std::string load = load_that_may_be_outside(body); !load.empty())
    ctx.fail("TSR-2035", fmt::format("{} may lie outside of its operand", load),
             "indices that provably stay inside, or stand under a select that says so",
             "clamp it: min(max(i, 0), extent - 1)");
  Shape shape;
  for (const Axis& axis : body.axes) shape.push_back(axis.extent);
  return {TensorType{body.value.dtype(), shape, {}}};
}

}  // namespace

const OpDef& compute_op() {
  static const OpDef op{
      .name = "compute",
      .doc = "A body of one's own over the operands x0, x1, ...",
      .min_inputs = 0,
      .max_inputs = -1,
      .attrs = {{"body", AttrKind::kString, true,
                 "\"out[i<4] = expression\" or \"out[i<4] = sum[k<3] expression\" (also prod, min, max)"},
                {"sizes", AttrKind::kSizes, false, "what s0, s1, ... in the body are; default none"}},
      .infer = infer,
      .body = parsed,
      .gradient = body_gradient,
      .example = R"text(
graph @main(%x: f32[3], %w: f32[3,2]) -> (%y: f32[2]) {
  %y = compute(%x, %w) {body = "out[j<2] = sum[k<3] (x0[k] * select((k < 2), x1[(k + 1), j], 0:f32))"} : f32[2]
}
run x = 1 2 3 ; w = 9 9 1 2 3 4 -> y = 7 10
)text",
  };
  return op;
}

}  // namespace tessera::inline ops
