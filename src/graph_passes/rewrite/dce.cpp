#include "graph_passes/rewrite/dce.h"

#include <algorithm>

#include "graph/data_sizes.h"
#include "graph_passes/support/regions.h"
#include "types/collective.h"

namespace tessera::inline graph_passes {

Graph dce(const Graph& graph, const PassContext&) {
  std::vector<bool> needed(graph.values().size(), false);
  for (const ValueId output : graph.outputs) needed[static_cast<size_t>(output)] = true;
  std::vector<std::optional<TrimmedNode>> kept(graph.nodes().size());
  NeededSizes sizes(graph);
  for (size_t i = graph.nodes().size(); i-- > 0;) {
    const Node& node = graph.nodes()[i];
    std::vector<bool> used;
    for (const ValueId output : node.outputs) used.push_back(needed[static_cast<size_t>(output)]);
    // Ranks at an end read nothing of a shift that the others wait for.
    if (find_collective_kind(node.op->name) == CollectiveKind::kShift) used.assign(used.size(), true);
    const bool binds = sizes.needs(node);
    if (!binds && std::find(used.begin(), used.end(), true) == used.end()) continue;
    kept[i] = trim(node, used);
    sizes.keep(node);
    for (const ValueId input : kept[i]->node.inputs) needed[static_cast<size_t>(input)] = true;
  }

  Graph result;
  result.copy_header(graph);
  std::vector<ValueId> map(graph.values().size(), -1);
  for (const ValueId input : graph.inputs)
    map[static_cast<size_t>(input)] = result.add_input(graph.value(input).name, graph.type(input));
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    if (!kept[i]) continue;
    Node node = std::move(kept[i]->node);
    std::vector<TensorType> types;
    std::vector<std::string> names;
    std::vector<ValueId> old_outputs;
    for (const size_t place : kept[i]->results) {
      const ValueId output = graph.nodes()[i].outputs[place];
      old_outputs.push_back(output);
      types.push_back(graph.type(output));
      names.push_back(graph.value(output).name);
    }
    for (ValueId& input : node.inputs) input = map[static_cast<size_t>(input)];
    const auto outputs = result.node(result.add_node(std::move(node), std::move(types), std::move(names))).outputs;
    for (size_t k = 0; k < outputs.size(); ++k) map[static_cast<size_t>(old_outputs[k])] = outputs[k];
  }
  for (const ValueId output : graph.outputs) result.outputs.push_back(map[static_cast<size_t>(output)]);
  // A size that no node binds is none.
  std::erase_if(result.symbols, [&](const SymbolRange& symbol) { return symbol.is_data() && !sizes.has(symbol.var); });
  return result;
}

}  // namespace tessera::inline graph_passes
