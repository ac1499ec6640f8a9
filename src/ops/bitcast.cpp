// bitcast: the same bits as another element type of the same width.
#include <fmt/format.h>

#include "graph/adjoint.h"
#include "ops/op_util.h"
#include "ops/primitives.h"

namespace tessera::inline ops {
namespace {

std::vector<TensorType> infer(const OpContext& ctx) {
  require_dtype(ctx, 0, is_movable, kMovableTypes);
  const DType to = ctx.attrs.get<DType>("to");
  if (!is_movable(to) || dtype_bits(to) != dtype_bits(ctx.inputs[0].dtype))
    ctx.fail("TSR-2020", fmt::format("{} as {}", describe_operand(ctx, 0), dtype_name(to)),
             "an element type of as many bits");
  return {TensorType{to, ctx.inputs[0].shape, {}}};
}

Body body(const OpContext& ctx) {
  const DType to = ctx.attrs.get<DType>("to");
  return elementwise_body(ctx,
                          [&](const std::vector<Expr>& x) { return to == x[0].dtype() ? x[0] : bitcast(to, x[0]); });
}

}  // namespace

const OpDef& bitcast_op() {
  static const OpDef op{
      .name = "bitcast",
      .doc =
          "The bits of x as another element type of the same width. Floats of 16 bits and fewer may get another NaN "
          "for a NaN.",
      .min_inputs = 1,
      .max_inputs = 1,
      .attrs = {{"to", AttrKind::kDType, true, "the result's element type"}},
      .infer = infer,
      .body = body,
      .gradient = no_gradient("bits taken for another type change in jumps"),
      .example = R"(
graph @main(%x: f32[3]) -> (%y: i32[3]) {
  %y = bitcast(%x) {to = i32} : i32[3]
}
run x = 1 -2 0 -> y = 1065353216 -1073741824 0
)",
  };
  return op;
}

}  // namespace tessera::inline ops
