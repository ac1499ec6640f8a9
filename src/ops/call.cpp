// call: a region that several nodes share. Unlike a composite it is not opened: it is one function of the compiled
// code.
#include "ops/control_flow.h"
#include "ops/primitives.h"

namespace tessera::inline ops {

const OpDef& call_op() {
  static const OpDef op{
      .name = "call",
      .doc = "The results of a function on the operands.",
      .kind = OpKind::kCall,
      .min_inputs = 0,
      .max_inputs = -1,
      .attrs = {{"name", AttrKind::kString, true, "the function's name"}},
      .infer = [](const OpContext& ctx) { return region_results(*ctx.regions[0]); },
      .body = {},
      .example = R"(
graph @main(%x: f32[2]) -> (%z: f32[2]) {
  %y = call(%x) {name = "square"} ({
    graph @square(%a: f32[2]) -> (%b: f32[2]) {
      %b = mul(%a, %a) : f32[2]
    }
  }) : f32[2]
  %z = call(%y) {name = "square"} ({
    graph @square(%a: f32[2]) -> (%b: f32[2]) {
      %b = mul(%a, %a) : f32[2]
    }
  }) : f32[2]
}
run x = 1 -3 -> z = 1 81
)",
  };
  return op;
}

}  // namespace tessera::inline ops
