// Operators on tensors with dimensions that only a run knows, when no step of a flow does their work: the node becomes
// pieces of its own, whose open dimensions are symbols (graph/flow.h), and the steps between those.
//
// Nobody says which of a node's open dimensions are equal. The node is imported for sizes that are all different; where
// its operator has no meaning for those, fewer different ones are tried, at last those that other operands have at the
// same place. A run whose operands are otherwise is refused.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "graph/evaluator.h"
#include "import/onnx/node_context.h"

namespace tessera::inline onnx_import {

// An operand of a node that is imported alone, under the name that the node has for it.
struct AloneOperand {
  std::string name;
  std::optional<Tensor> constant = {};
  DType dtype = DType::kF32;
  std::vector<int64_t> dims = {};
};

// The node as a block whose first slots are the operands that are no constants, in their order.
struct AloneNode {
  FlowBlock block;
  FlowParts parts;
  std::vector<SlotId> outputs;  // of each output; -1 for those that nobody asks for
};

// Imports a node for operands of fixed shapes.
using AloneOutcome = std::variant<AloneNode, UnsupportedNode>;
using ImportAlone =
    std::function<AloneOutcome(const FlatNode& node, const std::vector<AloneOperand>& operands, Evaluator& evaluator)>;

// The same for sizes that a run knows: steps with pieces that are among those of the import.
struct OpenNode {
  FlowBlock block;
  // Where the block has no meaning for a dimension of 0, but the operator has: what happens when that operand has no
  // elements.
  std::optional<FlowBlock> when_empty;
  SlotId decides = -1;
  std::vector<FlowType> slots;
  std::vector<SlotId> outputs;
};
// Nodes that do the same share their pieces.
using OpenNodes = std::map<std::string, std::shared_ptr<const OpenNode>>;

// Gives the node's results. UnsupportedNode: an operand's rank is not known, or (Refusal::kOpenDimensions) no choice of
// sizes has a meaning.
void import_open(NodeContext& c, Evaluator& evaluator, OpenNodes& known, const ImportAlone& alone);

}  // namespace tessera::inline onnx_import
