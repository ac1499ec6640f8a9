// What a graph pass is, and the one list of them.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "family/kernel_family.h"
#include "graph/evaluator.h"
#include "graph/graph.h"
#include "graph/op_def.h"
#include "support/remarks.h"
#include "types/numerics.h"
#include "types/precision_plan.h"

namespace tessera::inline graph_passes {

// What a device of the host's multiplies, whatever the host does: bytes of these types, where they are bytes.
struct DeviceProducts {
  DType x = DType::kI8, weights = DType::kI8;
  bool narrow_values = false;                   // two values of 16-bit floats, neither of which need be a weight
  int64_t least_summed = 1, least_outputs = 1;  // channels: the host takes what has fewer
};

struct PassContext {
  const OpTable& ops;
  Evaluator& evaluator;
  KernelFamily family;                      // of what will run the graph: asked about layouts and precision
  int opt_level = 3;                        // 0..3
  Remarks* remarks = nullptr;               // told what was decided and why; may be null
  DType precision = DType::kF32;            // of what convolutions and products read: f32, bf16 or f16
  Numerics loosest = Numerics::kAlgorithm;  // what rules of a pass may be applied
  const PrecisionPlan* plan = nullptr;      // of layers that have another precision; may be null

  // Of the device that takes the node; none where that is the host. May be null.
  std::function<std::optional<DeviceProducts>(const Node& node)> device_products = {};

  // Of what the node reads.
  DType precision_of(const Node& node) const {
    return plan ? plan->precision_of_location(node.loc).value_or(precision) : precision;
  }
};

// Whether an accelerator multiplies the node's bytes.
inline bool is_of_unit(const PassContext& ctx, const Node& node) {
  const auto device = ctx.device_products ? ctx.device_products(node) : std::nullopt;
  return device && dtype_bits(device->x) == 8;
}

// A pure function of the graph and the context. The result verifies, has the same inputs and outputs (names, types and
// order), states and checks, and computes the same values, as far as its row says.
struct GraphPass {
  std::string_view name;
  std::string_view summary;  // one sentence
  int min_level;             // the lowest optimisation level that runs it
  Numerics numerics;         // of the loosest thing that it does
  // Of one graph; nodes with control flow (graph/control_flow.h) are nodes like others.
  Graph (*rewrite)(const Graph& graph, const PassContext& ctx);

  // Its rules say each what they do (docs/passes.md), and it applies those that `PassContext::loosest` lets it.
  bool has_rules = false;

  // Whether it runs where nothing looser than `loosest` may.
  bool may_run(Numerics loosest) const { return has_rules || min_level == 0 || numerics <= loosest; }

  // `rewrite` of the graph, then of the regions of its control flow, however deep. Calls that share a region still do.
  Graph run(const Graph& graph, const PassContext& ctx) const;
};

// In execution order. A pass may stand in it more than once.
std::span<const GraphPass> graph_pipeline();
// By name; null when unknown.
const GraphPass* find_graph_pass(std::string_view name);

}  // namespace tessera::inline graph_passes
