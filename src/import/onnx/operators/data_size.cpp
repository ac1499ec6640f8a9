#include "import/onnx/operators/data_size.h"

#include <algorithm>

#include <fmt/format.h>

#include "arith/data_symbols.h"
#include "arith/simplify.h"
#include "graph/data_sizes.h"
#include "graph/printer.h"
#include "import/onnx/dynamic/runtime_parameter.h"

namespace tessera::inline onnx_import {
namespace {

// That nothing else in the graph has.
std::string symbol_name(const Graph& graph) {
  for (size_t number = graph.symbols.size();; ++number) {
    std::string name = fmt::format("c{}", number);
    const auto same = [&](const SymbolRange& symbol) { return symbol.var->name == name; };
    if (std::none_of(graph.symbols.begin(), graph.symbols.end(), same)) return name;
  }
}

// Whether two values are computed in the same way from the same ones.
bool compute_the_same(const Graph& graph, ValueId a, ValueId b, int depth = 24) {
  if (a == b) return true;
  const Node *x = graph.producer(a), *y = graph.producer(b);
  if (depth == 0 || !x || !y || x->op != y->op || x->inputs.size() != y->inputs.size() || !x->regions.empty() ||
      x->outputs.size() != 1 || x->attrs.all().size() != y->attrs.all().size() || !(graph.type(a) == graph.type(b)))
    return false;
  for (const auto& [name, attr] : x->attrs.all()) {
    const auto other = y->attrs.all().find(name);
    if (other == y->attrs.all().end()) return false;
    const auto *one = std::get_if<TensorPtr>(&attr), *two = std::get_if<TensorPtr>(&other->second);
    if (one && two ? *one != *two && !((*one)->num_elements() <= 64 && attr_text(attr) == attr_text(other->second))
                   : attr_text(attr) != attr_text(other->second))
      return false;
  }
  for (size_t i = 0; i < x->inputs.size(); ++i)
    if (!compute_the_same(graph, x->inputs[i], y->inputs[i], depth - 1)) return false;
  return true;
}

class LargestElement {
 public:
  explicit LargestElement(NodeContext& c) : c_(c), graph_(c.state().graph) {}

  Expr of(ValueId v, int depth = 32) {
    if (graph_.type(v).dtype == DType::kBool) return 1;
    if (depth == 0 || !is_int(graph_.type(v).dtype)) return {};
    if (const Expr known = of_known(v)) return known;
    const Node* node = graph_.producer(v);
    if (!node) return {};
    const std::string& op = node->op->name;
    const auto operand = [&](size_t i) { return of(node->inputs.at(i), depth - 1); };
    const auto both = [&](size_t i, size_t j, const auto& join) {
      const Expr a = operand(i), b = a ? operand(j) : Expr();
      return b ? normalize_size(join(a, b)) : Expr();
    };
    if (op == "reshape" || op == "transpose" || op == "slice" || op == "broadcast" || op == "gather" ||
        op == "gather_elements")
      return operand(0);
    if (op == "bind_size") return KnownSymbols::find(bound_symbol(*node).get())->bound;
    if (op == "cast") return is_float(graph_.type(node->inputs[0]).dtype) ? Expr() : operand(0);
    if (op == "select") return both(1, 2, [](const Expr& a, const Expr& b) { return max(a, b); });
    if (op == "max" || op == "concat") {
      Expr most = operand(0);
      for (size_t i = 1; most && i < node->inputs.size(); ++i) {
        const Expr next = operand(i);
        most = next ? normalize_size(max(most, next)) : Expr();
      }
      return most;
    }
    if (op == "min") {
      const Expr a = operand(0), b = operand(1);
      return a && b ? normalize_size(min(a, b)) : a ? a : b;
    }
    if (op == "add") return both(0, 1, [](const Expr& a, const Expr& b) { return a + b; });
    if (op == "sub") {
      const Expr less = of_known(node->inputs[1], true);
      const Expr a = less ? operand(0) : Expr();
      return a ? normalize_size(a - less) : Expr();
    }
    if (op == "iota") return normalize_size(graph_.type(v).shape[static_cast<size_t>(node->attrs.get_int("axis"))] - 1);
    if (op == "reduce") {
      const std::string kind = node->attrs.get<std::string>("kind");
      const Expr each = operand(0);
      if (kind == "max" || kind == "min") return each;
      if (kind != "sum" || !each || !size_at_most(0, each)) return {};
      Expr count = each;
      for (const int64_t axis : node->attrs.get_ints("axes"))
        count = count * graph_.type(node->inputs[0]).shape[static_cast<size_t>(axis)];
      return normalize_size(count);
    }
    return {};
  }

 private:
  // The largest, or the least, of elements that are all known.
  Expr of_known(ValueId v, bool least = false) {
    const auto sizes = c_.known_sizes(v);
    if (!sizes || sizes->empty()) return {};
    Expr end = (*sizes)[0];
    for (const Expr& size : *sizes) end = least ? min(end, size) : max(end, size);
    return normalize_size(end);
  }

  NodeContext& c_;
  const Graph& graph_;
};

}  // namespace

Expr largest_element(NodeContext& c, ValueId v) { return LargestElement(c).of(v); }

Shape bound_sizes(NodeContext& c, int i, const std::string& name) {
  const ValueId list = runtime_ints(c, i, name);
  const auto known = c.state().constants.find_some_sizes(list);
  Shape sizes;
  for (int64_t k = 0; k < c.num_elements(list); ++k) {
    if (const Expr size = known ? (*known)[static_cast<size_t>(k)] : Expr()) {
      sizes.push_back(size);
      continue;
    }
    const ValueId count = element(c, list, k);
    const Expr most = largest_element(c, count);
    if (!most) c.unsupported(fmt::format("nothing bounds element {} of {}", k, c.input_name(i, name)));
    sizes.push_back(bind_size(c, count, most));
  }
  return sizes;
}

bool may_bind_sizes(NodeContext& c) { return c.state().known_symbols != nullptr && c.state().conditions.empty(); }

Expr bind_size(NodeContext& c, ValueId count, const Expr& bound) {
  constexpr int64_t kMost = int64_t{1} << 36;  // memory is laid out for as many
  ImportState& state = c.state();
  for (const auto& [other, size] : state.bound_sizes)
    if (compute_the_same(state.graph, count, other)) return size;
  const Expr most = normalize_size(bound);
  if (is_const_int(most, 0)) return 0;
  SymbolRange symbol = data_symbol(symbol_name(state.graph), most);
  if (symbol.hi > kMost) c.unsupported(fmt::format("a size that data decide, of up to {}", to_string(most)));
  state.graph.symbols.push_back(symbol);
  state.known_symbols->add(symbol);
  c.op("bind_size", {count}, {{"size", Shape{symbol.var}}});
  return state.bound_sizes[count] = symbol.var;
}

bool require_at_least(NodeContext& c, const Expr& size, int64_t least) {
  if (!may_bind_sizes(c)) return false;
  ImportState& state = c.state();
  for (const auto& [count, bound_size] : state.bound_sizes) {
    if (!bound_size.same_node(size)) continue;
    for (SymbolRange& symbol : state.graph.symbols) {
      if (!symbol.var.same_node(size) || symbol.lo >= least || !size_at_most(least, symbol.bound)) continue;
      symbol.lo = least;
      state.known_symbols->add(symbol);
      c.check_when_run(fmt::format("the number of elements that '{}' works on", c.label()),
                       c.op("ge", {count, c.integer(least)}), c.reshape(count, {1}),
                       fmt::format("{} to {}", least, to_string(symbol.bound)));
      return true;
    }
  }
  return false;
}

bool require_elements(NodeContext& c, const std::vector<ValueId>& operands) {
  std::vector<Expr> sizes;
  for (const ValueId operand : operands)
    for (const Expr& dim : c.type(operand).shape)
      walk(dim, [&](const Expr& e) {
        if (e->kind == ExprKind::kVar) sizes.push_back(e);
      });
  bool any = false;
  for (const Expr& size : sizes) any = require_at_least(c, size, 1) || any;
  return any;
}

ValueId first_slices(NodeContext& c, ValueId v, int64_t axis, const Expr& size) {
  Shape sizes = c.shape(v);
  const Shape starts(sizes.size(), 0);
  sizes[static_cast<size_t>(axis)] = size;
  return c.slice(v, starts, sizes, std::vector<int64_t>(sizes.size(), 1));
}

}  // namespace tessera::inline onnx_import
