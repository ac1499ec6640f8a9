#include "graph_passes/rewrite/dce.h"

#include <algorithm>

namespace tessera::inline graph_passes {

Graph dce(const Graph& graph, const PassContext&) {
  std::vector<bool> needed(graph.values().size(), false);
  for (const ValueId output : graph.outputs) needed[static_cast<size_t>(output)] = true;
  std::vector<bool> keep(graph.nodes().size(), false);
  for (size_t i = graph.nodes().size(); i-- > 0;) {
    const Node& node = graph.nodes()[i];
    keep[i] = std::any_of(node.outputs.begin(), node.outputs.end(),
                          [&](ValueId v) { return needed[static_cast<size_t>(v)]; });
    if (!keep[i]) continue;
    for (const ValueId input : node.inputs) needed[static_cast<size_t>(input)] = true;
  }

  Graph result;
  result.name = graph.name;
  result.symbols = graph.symbols;
  result.checks = graph.checks;
  std::vector<ValueId> map(graph.values().size(), -1);
  for (const ValueId input : graph.inputs)
    map[static_cast<size_t>(input)] = result.add_input(graph.value(input).name, graph.type(input));
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    if (!keep[i]) continue;
    Node node = graph.nodes()[i];
    std::vector<TensorType> types;
    std::vector<std::string> names;
    const std::vector<ValueId> old_outputs = node.outputs;
    for (const ValueId output : old_outputs) {
      types.push_back(graph.type(output));
      names.push_back(graph.value(output).name);
    }
    for (ValueId& input : node.inputs) input = map[static_cast<size_t>(input)];
    const auto outputs = result.node(result.add_node(std::move(node), std::move(types), std::move(names))).outputs;
    for (size_t k = 0; k < outputs.size(); ++k) map[static_cast<size_t>(old_outputs[k])] = outputs[k];
  }
  for (const ValueId output : graph.outputs) result.outputs.push_back(map[static_cast<size_t>(output)]);
  return result;
}

}  // namespace tessera::inline graph_passes
