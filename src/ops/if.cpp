// if: one of two regions.
#include <fmt/format.h>

#include "ops/control_flow.h"
#include "ops/op_util.h"
#include "ops/primitives.h"

namespace tessera::inline ops {

std::vector<TensorType> region_results(const Graph& region) {
  std::vector<TensorType> types;
  for (const ValueId output : region.outputs) {
    types.push_back(region.type(output));
    types.back().layout = {};
  }
  return types;
}

bool same_types(const TensorType& a, const TensorType& b) {
  if (a.dtype != b.dtype || a.rank() != b.rank()) return false;
  for (size_t i = 0; i < a.shape.size(); ++i)
    if (!equal_extents(a.shape[i], b.shape[i])) return false;
  return true;
}

namespace {

std::vector<TensorType> infer(const OpContext& ctx) {
  const TensorType& condition = ctx.inputs[0];
  if (condition.dtype != DType::kBool || !condition.is_static() || condition.num_elements() != 1)
    ctx.fail("TSR-2020", "the condition is " + condition.to_string(), "one bool");
  const std::vector<TensorType> types = region_results(*ctx.regions[0]), other = region_results(*ctx.regions[1]);
  if (types.size() != other.size())
    ctx.fail("TSR-2005", fmt::format("regions of {} and {} results", types.size(), other.size()), "as many in both");
  if (types.empty()) ctx.fail("TSR-2005", "regions without results", "one result or more");
  for (size_t i = 0; i < types.size(); ++i)
    if (!same_types(types[i], other[i]))
      ctx.fail(
          "TSR-2005",
          fmt::format("result {} is {} in one region, {} in the other", i, types[i].to_string(), other[i].to_string()),
          "results of the same types");
  return types;
}

}  // namespace

const OpDef& if_op() {
  static const OpDef op{
      .name = "if",
      .doc = "The results of the first region when the condition is true, else those of the second.",
      .kind = OpKind::kIf,
      .min_inputs = 1,
      .max_inputs = -1,
      .attrs = {},
      .infer = infer,
      .body = {},
      .example = R"(
graph @main(%c: bool[], %x: f32[2]) -> (%y: f32[2]) {
  %y = if(%c, %x) ({
    graph @then(%a: f32[2]) -> (%b: f32[2]) {
      %b = neg(%a) : f32[2]
    }
    graph @else(%a: f32[2]) -> (%b: f32[2]) {
      %b = add(%a, %a) : f32[2]
    }
  }) : f32[2]
}
run c = 1 ; x = 1 -2 -> y = -1 2
run c = 0 ; x = 1 -2 -> y = 2 -4
)",
  };
  return op;
}

}  // namespace tessera::inline ops
