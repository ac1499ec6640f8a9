// constant: a tensor known at compile time.
#include "graph/adjoint.h"
#include "ops/op_util.h"
#include "ops/primitives.h"

namespace tessera::inline ops {
namespace {

std::vector<TensorType> infer(const OpContext& ctx) {
  const TensorPtr& value = ctx.attrs.get<TensorPtr>("value");
  return {TensorType{value->dtype(), make_shape(value->dims()), {}}};
}

}  // namespace

const OpDef& constant_op() {
  static const OpDef op{
      .name = "constant",
      .doc = "The tensor of attribute `value`.",
      .kind = OpKind::kConstant,
      .min_inputs = 0,
      .max_inputs = 0,
      .attrs = {{"value", AttrKind::kTensor, true, "the tensor"}},
      .infer = infer,
      .body = {},
      .gradient = no_gradient("it has no operands"),
      .example = R"(
graph @main() -> (%y: f32[2,2]) {
  %y = constant {value = dense<f32[2,2] 1 -2.5 3 4>} : f32[2,2]
}
run -> y = 1 -2.5 3 4
)",
  };
  return op;
}

}  // namespace tessera::inline ops
