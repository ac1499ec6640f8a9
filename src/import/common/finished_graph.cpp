#include "import/common/finished_graph.h"

#include <algorithm>
#include <functional>
#include <unordered_set>
#include <variant>

#include "graph/data_sizes.h"

namespace tessera::inline import_common {

Graph needed_part(const Graph& graph) {
  std::vector<bool> live(graph.nodes().size(), false), needed(graph.values().size(), false);
  for (const ValueId output : graph.outputs) needed[static_cast<size_t>(output)] = true;
  NeededSizes sizes(graph);
  for (size_t i = graph.nodes().size(); i-- > 0;) {
    const Node& node = graph.nodes()[i];
    const auto is_needed = [&](ValueId output) { return needed[static_cast<size_t>(output)]; };
    live[i] = sizes.needs(node) || std::any_of(node.outputs.begin(), node.outputs.end(), is_needed);
    if (!live[i]) continue;
    for (const ValueId input : node.inputs) needed[static_cast<size_t>(input)] = true;
    sizes.keep(node);
  }
  Graph result;
  result.symbols = graph.symbols;
  std::vector<ValueId> map(graph.values().size(), -1);
  for (const ValueId id : graph.inputs)
    map[static_cast<size_t>(id)] = result.add_input(graph.value(id).name, graph.type(id));
  for (size_t i = 0; i < live.size(); ++i) {
    if (!live[i]) continue;
    Node node = graph.nodes()[i];
    std::vector<TensorType> types;
    std::vector<std::string> names;
    for (ValueId& input : node.inputs) input = map[static_cast<size_t>(input)];
    for (const ValueId output : node.outputs) {
      types.push_back(graph.type(output));
      names.push_back(graph.value(output).name);
    }
    const std::vector<ValueId> outputs = node.outputs;
    const auto copies = result.node(result.add_node(std::move(node), std::move(types), std::move(names))).outputs;
    for (size_t k = 0; k < outputs.size(); ++k) map[static_cast<size_t>(outputs[k])] = copies[k];
  }
  for (const ValueId output : graph.outputs) result.outputs.push_back(map[static_cast<size_t>(output)]);
  result.states = graph.states;
  result.checks = graph.checks;
  return result;
}

std::optional<std::string> keep_bound_symbols(Graph& graph) {
  std::unordered_set<const ExprNode*> used, bound;
  const auto read = [&](const Shape& shape) {
    for (const Expr& size : shape)
      walk(size, [&](const Expr& e) {
        if (e->kind == ExprKind::kVar) used.insert(e.get());
      });
  };
  const std::function<void(const Graph&)> read_graph = [&](const Graph& part) {
    for (const Value& value : part.values()) read(value.type.shape);
    for (const Node& node : part.nodes()) {
      for (const auto& [name, attr] : node.attrs.all())
        if (const Shape* sizes = std::get_if<Shape>(&attr)) read(*sizes);
      for (const GraphPtr& region : node.regions) read_graph(*region);
    }
  };
  read_graph(graph);
  for (size_t i = graph.symbols.size(); i-- > 0;)
    if (const SymbolRange& symbol = graph.symbols[i]; symbol.is_data() && used.count(symbol.var.get()))
      read({symbol.bound});
  for (const ValueId input : graph.inputs)
    for (const Expr& size : graph.type(input).shape)
      if (size->kind == ExprKind::kVar) bound.insert(size.get());
  std::erase_if(graph.symbols, [&](const SymbolRange& symbol) { return !used.count(symbol.var.get()); });
  for (const SymbolRange& symbol : graph.symbols)
    if (!symbol.is_data() && !bound.count(symbol.var.get())) return symbol.var->name;
  return std::nullopt;
}

}  // namespace tessera::inline import_common
