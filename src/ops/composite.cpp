// composite and group: nodes whose meaning is their region. A composite keeps a larger operator recognisable (softmax);
// a group is what fusion makes one kernel of.
#include "ops/control_flow.h"
#include "ops/primitives.h"

namespace tessera::inline ops {
namespace {

// That the operands fit the region's inputs has been checked for every operator with a region (graph/op_def.cpp).
std::vector<TensorType> infer(const OpContext& ctx) { return region_results(*ctx.regions[0]); }

}  // namespace

const OpDef& composite_op() {
  static const OpDef op{
      .name = "composite",
      .doc = "A larger operator: its region of primitives says what it computes, its name what it is.",
      .kind = OpKind::kComposite,
      .min_inputs = 0,
      .max_inputs = -1,
      .attrs = {{"name", AttrKind::kString, true, "the composite's name; its own attributes stand beside it"}},
      .infer = infer,
      .body = {},
      .example = R"(
graph @main(%x: f32[2]) -> (%y: f32[2]) {
  %y = composite(%x) {name = "twice"} ({
    graph @twice(%a: f32[2]) -> (%b: f32[2]) {
      %b = add(%a, %a) : f32[2]
    }
  }) : f32[2]
}
run x = 1 -2 -> y = 2 -4
)",
  };
  return op;
}

const OpDef& group_op() {
  static const OpDef op{
      .name = "group",
      .doc = "Operators that become one kernel.",
      .kind = OpKind::kGroup,
      .min_inputs = 0,
      .max_inputs = -1,
      .attrs = {},
      .infer = infer,
      .body = {},
      .example = R"(
graph @main(%x: f32[2]) -> (%y: f32[2]) {
  %y = group(%x) ({
    graph @group(%a: f32[2]) -> (%c: f32[2]) {
      %b = neg(%a) : f32[2]
      %c = mul(%b, %a) : f32[2]
    }
  }) : f32[2]
}
run x = 1 -2 -> y = -1 -4
)",
  };
  return op;
}

}  // namespace tessera::inline ops
