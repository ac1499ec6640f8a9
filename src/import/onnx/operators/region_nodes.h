// If, Loop and Scan as nodes with regions (graph/control_flow.h). What a run has to check in a region becomes a result
// of the node.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "import/onnx/node_context.h"

namespace tessera::inline onnx_import {

// Each gives the node's results, or answers why there is no such node; what it has added to the graph by then is dead.

// `condition`: one bool. A branch that contradicts the shapes that the model is compiled for cannot be taken with them:
// the results are those of the other, and a run that asks for it fails.
std::optional<NotInGraph> if_node(NodeContext& c, ValueId condition, const onnx::GraphProto& then_branch,
                                  const onnx::GraphProto& else_branch);
// A Loop of this node's operands. REQUIRES: as many inputs and results of the body as that has.
std::optional<NotInGraph> loop_node(NodeContext& c, const onnx::GraphProto& body);

// A Scan from opset 9 on: the states, then the sequences; axes are those of the sequences, from the front, and those of
// the outputs, which may count from the end.
struct ScanShape {
  std::vector<ValueId> states, sequences;
  std::vector<int64_t> input_axes, output_axes, input_backwards, output_backwards;
};
// REQUIRES: as above.
std::optional<NotInGraph> scan_node(NodeContext& c, const onnx::GraphProto& body, const ScanShape& scan);

}  // namespace tessera::inline onnx_import
