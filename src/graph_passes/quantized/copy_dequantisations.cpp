#include "graph_passes/quantized/copy_dequantisations.h"

#include <algorithm>

namespace tessera::inline graph_passes {

bool dequantizes_weights(const Graph& graph, const Node& node) {
  return node.op->name == "dequantize_blocks" &&
         std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) {
           const Node* producer = graph.producer(input);
           return producer && producer->op->kind == OpKind::kConstant;
         });
}

bool reads_as_weights(const Graph& graph, ValueId weights, const Node& reader) {
  if (graph.type(weights).rank() != 2) return false;
  if (reader.op->name == "gather") return reader.inputs[0] == weights && reader.attrs.get_int("axis") == 0;
  if (reader.op->name == "scaled_matmul") return reader.inputs[2] == weights;
  return reader.op->name == "matmul" && reader.inputs[1] == weights && reader.inputs[0] != weights &&
         reader.attrs.get_or<bool>("transpose_b", false);
}

bool reads_in_blocks(const Graph& graph, const Node& node, const Node& reader) {
  // Rounding (lower_precision) is a part of making numbers.
  return dequantizes_weights(graph, node) &&
         (reader.op->name == "cast" || reads_as_weights(graph, node.outputs[0], reader));
}

Graph copy_dequantisations(const Graph& graph, const PassContext&) {
  std::vector<bool> taken(graph.nodes().size(), false);  // by a reader before
  return GraphRewriter(graph).run(
      [&](GraphRewriter& rewriter, const Node& node, const std::vector<ValueId>& inputs) -> std::vector<ValueId> {
        std::vector<ValueId> own = inputs;
        for (size_t i = 0; i < inputs.size(); ++i) {
          const NodeId made_by = graph.value(node.inputs[i]).producer;
          if (made_by < 0 || !reads_in_blocks(graph, graph.node(made_by), node)) continue;
          if (!taken[static_cast<size_t>(made_by)]) {
            taken[static_cast<size_t>(made_by)] = true;
            continue;
          }
          const Node& source = graph.node(made_by);
          std::vector<ValueId> operands;
          for (const ValueId input : source.inputs) operands.push_back(rewriter.mapped(input));
          own[i] = rewriter.copy(source, operands)[0];
        }
        return own == inputs ? std::vector<ValueId>() : rewriter.copy(node, own);
      });
}

}  // namespace tessera::inline graph_passes
