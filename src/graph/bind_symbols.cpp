#include "graph/bind_symbols.h"

#include <algorithm>

#include "arith/simplify.h"
#include "graph/op_def.h"
#include "support/error.h"

namespace tessera::inline graph {
namespace {

Shape bound_shape(Shape shape, const VarMap& values) {
  for (Expr& dim : shape) dim = simplify(substitute(dim, values));
  return shape;
}

TensorType bound_type(TensorType type, const VarMap& values) {
  type.shape = bound_shape(std::move(type.shape), values);
  return type;
}

Attrs bound_attrs(const Attrs& attrs, const VarMap& values) {
  Attrs result = attrs;
  for (const auto& [name, attr] : attrs.all())
    if (const Shape* sizes = std::get_if<Shape>(&attr)) result.set(name, bound_shape(*sizes, values));
  return result;
}

// What a data symbol does not exceed may have become a number.
SymbolRange bound_symbol(SymbolRange symbol, const VarMap& values) {
  if (!symbol.is_data()) return symbol;
  symbol.bound = simplify(substitute(symbol.bound, values));
  if (const auto most = as_int(symbol.bound)) symbol.hi = std::max<int64_t>(*most, 0);
  return symbol;
}

Graph bound_graph(const Graph& source, const VarMap& values) {
  Graph result;
  result.name = source.name;
  result.states = source.states;
  for (const SymbolRange& symbol : source.symbols)
    if (!values.count(symbol.var.get())) result.symbols.push_back(bound_symbol(symbol, values));
  const KnownSymbols known(result.symbols);
  std::vector<ValueId> map(source.values().size(), -1);
  for (const ValueId input : source.inputs)
    map[static_cast<size_t>(input)] =
        result.add_input(source.value(input).name, bound_type(source.type(input), values));
  GraphBuilder builder(result);
  for (const Node& node : source.nodes()) {
    std::vector<ValueId> inputs;
    for (const ValueId input : node.inputs) inputs.push_back(map[static_cast<size_t>(input)]);
    std::vector<GraphPtr> regions;
    for (const GraphPtr& region : node.regions)
      regions.push_back(std::make_shared<const Graph>(bound_graph(*region, values)));
    std::vector<std::string> names;
    for (const ValueId output : node.outputs) names.push_back(source.value(output).name);
    builder.set_loc(node.loc);
    const std::vector<ValueId> outputs = builder.add_multi(*node.op, std::move(inputs), bound_attrs(node.attrs, values),
                                                           std::move(regions), std::move(names));
    for (size_t i = 0; i < outputs.size(); ++i) map[static_cast<size_t>(node.outputs[i])] = outputs[i];
  }
  for (const ValueId output : source.outputs) result.outputs.push_back(map[static_cast<size_t>(output)]);
  result.checks = source.checks;
  return result;
}

}  // namespace

Graph bind_symbols(const Graph& graph, const std::map<std::string, int64_t>& values) {
  VarMap by_variable;
  for (const SymbolRange& symbol : graph.symbols)
    if (const auto it = values.find(symbol.var->name); it != values.end())
      by_variable.emplace(symbol.var.get(), Expr(it->second));
  return by_variable.empty() ? graph : bound_graph(graph, by_variable);
}

Graph bind_symbols(const Graph& graph, const std::vector<int64_t>& values) {
  check(values.size() == graph.symbols.size(), "a value for each symbol");
  std::map<std::string, int64_t> by_name;
  for (size_t i = 0; i < values.size(); ++i) by_name[graph.symbols[i].var->name] = values[i];
  return bind_symbols(graph, by_name);
}

}  // namespace tessera::inline graph
