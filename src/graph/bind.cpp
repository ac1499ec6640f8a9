#include "graph/bind.h"

#include "arith/simplify.h"
#include "support/error.h"

namespace tessera::inline graph {
namespace {

Shape bound(const Shape& shape, const VarMap& map) {
  Shape result;
  for (const Expr& size : shape) result.push_back(as_int(size) ? size : simplify(substitute(size, map)));
  return result;
}

Graph bound(const Graph& graph, const VarMap& map) {
  Graph result;
  result.name = graph.name;
  result.checks = graph.checks;
  const auto type_of = [&](ValueId id) {
    TensorType type = graph.type(id);
    type.shape = bound(type.shape, map);
    return type;
  };
  std::vector<ValueId> values(graph.values().size(), -1);
  for (const ValueId input : graph.inputs)
    values[static_cast<size_t>(input)] = result.add_input(graph.value(input).name, type_of(input));
  for (const Node& node : graph.nodes()) {
    Node copy = node;
    for (ValueId& input : copy.inputs) input = values[static_cast<size_t>(input)];
    for (const auto& [name, attr] : node.attrs.all())
      if (const Shape* sizes = std::get_if<Shape>(&attr)) copy.attrs.set(name, bound(*sizes, map));
    for (GraphPtr& region : copy.regions)
      if (region) region = std::make_shared<const Graph>(bound(*region, map));
    std::vector<TensorType> types;
    std::vector<std::string> names;
    for (const ValueId output : node.outputs) {
      types.push_back(type_of(output));
      names.push_back(graph.value(output).name);
    }
    const NodeId id = result.add_node(std::move(copy), std::move(types), std::move(names));
    for (size_t i = 0; i < node.outputs.size(); ++i)
      values[static_cast<size_t>(node.outputs[i])] = result.node(id).outputs[i];
  }
  for (const ValueId output : graph.outputs) result.outputs.push_back(values[static_cast<size_t>(output)]);
  return result;
}

}  // namespace

Graph bind_symbols(const Graph& graph, const std::vector<int64_t>& values) {
  check(values.size() == graph.symbols.size(), "one value for each symbol of a graph");
  VarMap map;
  for (size_t i = 0; i < values.size(); ++i) {
    const SymbolRange& symbol = graph.symbols[i];
    check(values[i] >= symbol.lo && values[i] <= symbol.hi, "a value of a symbol outside its range");
    map[symbol.var.get()] = Expr(values[i]);
  }
  return bound(graph, map);
}

}  // namespace tessera::inline graph
