// If, Loop and Scan as nodes with regions (graph/control_flow.h).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "import/onnx/failure_list.h"
#include "import/onnx/node_context.h"

namespace tessera::inline onnx_import {

// Runs `build`, which adds a node with regions, when the import asks for such nodes. False, with everything that it did
// taken back, when a region cannot say what the operator does.
template <typename Build>
bool as_regions(NodeContext& c, const Build& build) {
  if (!c.state().control_flow) return false;
  const auto restore = c.checkpoint();
  try {
    build();
    return true;
  } catch (const NeedsBlock&) {
  } catch (const UnsupportedNode&) {
  } catch (const UnsupportedSubgraph&) {
  } catch (const UserError&) {
  } catch (const NeedsFixedSizes&) {
  }
  restore();
  c.forget_results();
  return false;
}

// Each throws UnsupportedNode, or what importing a subgraph throws, for what regions cannot say.

// `condition`: one bool.
void if_node(NodeContext& c, ValueId condition, const onnx::GraphProto& then_branch,
             const onnx::GraphProto& else_branch);
// A Loop of this node's operands.
void loop_node(NodeContext& c, const onnx::GraphProto& body);

// A Scan from opset 9 on: the states, then the sequences; axes are those of the sequences, from the front, and those of
// the outputs, which may count from the end.
struct ScanShape {
  std::vector<ValueId> states, sequences;
  std::vector<int64_t> input_axes, output_axes, input_backwards, output_backwards;
};
void scan_node(NodeContext& c, const onnx::GraphProto& body, const ScanShape& scan);

}  // namespace tessera::inline onnx_import
