#include "graph/data_sizes.h"

#include <algorithm>

#include <fmt/format.h>

#include "arith/simplify.h"
#include "graph/op_def.h"

namespace tessera::inline graph {

bool has_data_symbols(const Graph& graph) {
  return std::any_of(graph.symbols.begin(), graph.symbols.end(),
                     [](const SymbolRange& symbol) { return symbol.is_data(); });
}

Var bound_symbol(const Node& node) { return node.attrs.get_sizes("size").at(0); }

void add_symbols(const Shape& shape, SymbolSet& symbols) {
  for (const Expr& size : shape)
    walk(size, [&](const Expr& e) {
      if (e->kind == ExprKind::kVar) symbols.insert(e.get());
    });
}

void add_symbols(const Graph& graph, const Node& node, SymbolSet& symbols) {
  for (const ValueId output : node.outputs) add_symbols(graph.type(output).shape, symbols);
  if (node.op->kind != OpKind::kBindSize)
    for (const auto& [name, attr] : node.attrs.all())
      if (const Shape* sizes = std::get_if<Shape>(&attr)) add_symbols(*sizes, symbols);
  for (const GraphPtr& region : node.regions) {
    for (const Value& value : region->values()) add_symbols(value.type.shape, symbols);
    for (const Node& inner : region->nodes()) add_symbols(*region, inner, symbols);
  }
}

void add_symbols_of_bounds(SymbolSet& symbols) {
  for (bool changed = true; changed;) {
    const SymbolSet before = symbols;
    for (const ExprNode* symbol : before)
      if (const SymbolRange* known = KnownSymbols::find(symbol); known && known->is_data())
        add_symbols(Shape{known->bound}, symbols);
    changed = symbols.size() != before.size();
  }
}

NeededSizes::NeededSizes(const Graph& graph) : graph_(graph) {
  // In a region, the symbols are those of the graph around it.
  const auto binds = [](const Node& node) { return node.op->kind == OpKind::kBindSize; };
  any_ = std::any_of(graph.nodes().begin(), graph.nodes().end(), binds);
  if (!any_) return;
  for (const ValueId output : graph.outputs) add_symbols(graph.type(output).shape, symbols_);
  add_symbols_of_bounds(symbols_);
}

bool NeededSizes::needs(const Node& node) const {
  return any_ && node.op->kind == OpKind::kBindSize && symbols_.contains(bound_symbol(node).get());
}

void NeededSizes::keep(const Node& node) {
  if (!any_) return;
  add_symbols(graph_, node, symbols_);
  add_symbols_of_bounds(symbols_);
}

namespace {

class DataSizeVerifier {
 public:
  explicit DataSizeVerifier(const Graph& graph) : symbols_(graph.symbols) {
    for (const SymbolRange& symbol : graph.symbols)
      if (symbol.is_data()) data_.insert(symbol.var.get());
  }

  std::vector<std::string> run(const Graph& graph) {
    if (data_.empty()) return {};
    for (const ValueId input : graph.inputs) use("input %" + graph.value(input).name, shape_of(graph, input), {});
    graph_of(graph, {}, false);
    for (const SymbolRange& symbol : symbols_)
      if (symbol.is_data() && !bound_.contains(symbol.var.get()))
        report(fmt::format("no node binds symbol {}", symbol.var->name));
    return std::move(problems_);
  }

 private:
  using Bound = SymbolSet;

  void report(std::string problem) { problems_.push_back(std::move(problem)); }
  static Shape shape_of(const Graph& graph, ValueId value) { return graph.type(value).shape; }

  void use(const std::string& who, const SymbolSet& symbols, const Bound& bound) {
    for (const ExprNode* symbol : symbols)
      if (data_.contains(symbol) && !bound.contains(symbol))
        report(fmt::format("{} has the size {} before a node binds it", who, symbol->name));
  }
  void use(const std::string& who, const Shape& shape, const Bound& bound) {
    SymbolSet symbols;
    add_symbols(shape, symbols);
    use(who, symbols, bound);
  }

  void graph_of(const Graph& graph, Bound bound, bool is_region) {
    for (const Node& node : graph.nodes()) {
      const std::string who =
          fmt::format("node {} %{}", node.op->name, node.outputs.empty() ? "" : graph.value(node.outputs[0]).name);
      if (node.op->kind == OpKind::kBindSize) {
        if (is_region) {
          report(who + " binds a size in a region");
          continue;
        }
        const Var symbol = bound_symbol(node);
        if (!data_.contains(symbol.get())) {
          report(fmt::format("{} binds {}, which is no symbol declared with `upto`", who, to_string(symbol)));
          continue;
        }
        for (const SymbolRange& declared : symbols_)
          if (declared.var.same_node(symbol)) use("the bound of " + symbol->name, Shape{declared.bound}, bound);
        if (!bound_.insert(symbol.get()).second) report(fmt::format("{} binds {} a second time", who, symbol->name));
        bound.insert(symbol.get());
        continue;
      }
      for (const ValueId output : node.outputs) use(who, shape_of(graph, output), bound);
      for (const auto& [name, attr] : node.attrs.all())
        if (const Shape* sizes = std::get_if<Shape>(&attr)) use(who, *sizes, bound);
      for (const GraphPtr& region : node.regions) {
        for (const ValueId input : region->inputs) use(who, shape_of(*region, input), bound);
        graph_of(*region, bound, true);
      }
    }
  }

  const std::vector<SymbolRange>& symbols_;
  SymbolSet data_, bound_;
  std::vector<std::string> problems_;
};

}  // namespace

std::vector<std::string> verify_data_sizes(const Graph& graph) { return DataSizeVerifier(graph).run(graph); }

}  // namespace tessera::inline graph
