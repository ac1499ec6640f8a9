// composite and group: nodes whose meaning is their region. A composite keeps a larger operator recognisable (softmax);
// a group is what fusion makes one kernel of.
#include <fmt/format.h>

#include "ops/control_flow.h"
#include "ops/primitives.h"

namespace tessera::inline ops {
namespace {

// That the operands fit the region's inputs has been checked for every operator with a region (graph/op_def.cpp).
std::vector<TensorType> infer(const OpContext& ctx) { return region_results(*ctx.regions[0]); }

// A kernel stores its results in one pass over their common index.
std::vector<TensorType> infer_group(const OpContext& ctx) {
  const Graph& region = *ctx.regions[0];
  std::vector<TensorType> types = region_results(region);
  for (size_t i = 1; i < types.size(); ++i) {
    if (region.value(region.outputs[i]).producer <= region.value(region.outputs[i - 1]).producer)
      ctx.fail("TSR-2005", fmt::format("result {} of the region comes before result {}", i, i - 1),
               "results of different nodes, in the order of these");
    if (!same_shape(types[i].shape, types[0].shape) || !(types[i].layout == types[0].layout))
      ctx.fail("TSR-2005", fmt::format("results {} and {}", types[0].to_string(), types[i].to_string()),
               "results of one shape and one layout");
  }
  return types;
}

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
      .doc = "Operators that become one kernel. Its results have one shape and one layout.",
      .kind = OpKind::kGroup,
      .min_inputs = 0,
      .max_inputs = -1,
      .attrs = {},
      .infer = infer_group,
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
