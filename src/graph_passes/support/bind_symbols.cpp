#include "graph_passes/support/bind_symbols.h"

#include "arith/simplify.h"
#include "support/error.h"

namespace tessera::inline graph_passes {
namespace {

Shape bound(const Shape& shape, const VarMap& values) {
  Shape result;
  for (const Expr& size : shape) result.push_back(simplify(substitute(size, values)));
  return result;
}

Graph bound(const Graph& graph, const VarMap& values) {
  Graph result = graph;
  result.symbols.clear();
  for (size_t i = 0; i < graph.values().size(); ++i) {
    TensorType& type = result.value(static_cast<ValueId>(i)).type;
    type.shape = bound(type.shape, values);
  }
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    Node& node = result.node(static_cast<NodeId>(i));
    for (const auto& [name, attr] : graph.nodes()[i].attrs.all())
      if (const Shape* sizes = std::get_if<Shape>(&attr)) node.attrs.set(name, bound(*sizes, values));
    for (GraphPtr& region : node.regions) region = std::make_shared<const Graph>(bound(*region, values));
  }
  return result;
}

}  // namespace

Graph bind_symbols(const Graph& graph, const std::vector<int64_t>& values) {
  check(values.size() == graph.symbols.size(), "a value for each symbol");
  VarMap map;
  for (size_t i = 0; i < values.size(); ++i) map[graph.symbols[i].var.get()] = values[i];
  return bound(graph, map);
}

}  // namespace tessera::inline graph_passes
