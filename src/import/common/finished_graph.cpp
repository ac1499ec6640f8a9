#include "import/common/finished_graph.h"

#include <algorithm>
#include <unordered_set>

#include "graph/data_sizes.h"
#include "graph/subgraph.h"

namespace tessera::inline import_common {

OutputList::OutputList(GraphBuilder& builder, const OpTable& ops)
    : builder_(builder), ops_(ops), taken_(builder.graph().inputs.begin(), builder.graph().inputs.end()) {}

void OutputList::add(ValueId value, const std::string& name, bool named) {
  Graph& graph = builder_.graph();
  if (!taken_.insert(value).second) {
    builder_.set_loc(name);
    value = builder_.add(ops_.get("reshape"), {value}, {{"shape", graph.type(value).shape}},
                         named ? graph.unique_name(name) : std::string());
    taken_.insert(value);
  }
  graph.outputs.push_back(value);
}

Graph needed_part(const Graph& graph) {
  Subgraph part{{}, graph.inputs, graph.outputs};
  std::vector<bool> needed(graph.values().size(), false);
  for (const ValueId output : graph.outputs) needed[static_cast<size_t>(output)] = true;
  NeededSizes sizes(graph);
  for (auto id = static_cast<NodeId>(graph.nodes().size()); id-- > 0;) {
    const Node& node = graph.node(id);
    const auto is_needed = [&](ValueId output) { return needed[static_cast<size_t>(output)]; };
    if (!sizes.needs(node) && std::none_of(node.outputs.begin(), node.outputs.end(), is_needed)) continue;
    part.nodes.insert(id);
    for (const ValueId input : node.inputs) needed[static_cast<size_t>(input)] = true;
    sizes.keep(node);
  }
  Graph result = extract(graph, part);
  result.states = graph.states;
  result.checks = graph.checks;
  return result;
}

std::optional<std::string> unlearned_symbol(const Graph& graph) {
  std::unordered_set<const ExprNode*> learned;
  for (const ValueId input : graph.inputs)
    for (const Expr& size : graph.type(input).shape)
      if (size->kind == ExprKind::kVar) learned.insert(size.get());
  for (const SymbolRange& symbol : graph.symbols)
    if (!symbol.is_data() && !learned.count(symbol.var.get())) return symbol.var->name;
  return std::nullopt;
}

}  // namespace tessera::inline import_common
