#include <algorithm>
#include <cmath>

#include "graph_passes/rewrite/recognizers.h"
#include "graph_passes/support/graph_util.h"

namespace tessera::inline graph_passes {
namespace {

constexpr int kMaxDegree = 4;
constexpr int kMaxDepth = 8;
constexpr size_t kMaxBases = 12;

bool is_arithmetic_op(const Node& node) {
  const std::string& op = node.op->name;
  return op == "add" || op == "sub" || op == "mul" || op == "div" || op == "neg" || op == "pow";
}

Polynomial sum(Polynomial a, const Polynomial& b, double factor) {
  for (const auto& [exponents, coefficient] : b) a[exponents] += factor * coefficient;
  return a;
}

std::optional<Polynomial> product(const Polynomial& a, const Polynomial& b) {
  Polynomial result;
  for (const auto& [ea, ca] : a)
    for (const auto& [eb, cb] : b) {
      const std::pair exponents{ea.first + eb.first, ea.second + eb.second};
      if (exponents.first + exponents.second > kMaxDegree) return std::nullopt;
      result[exponents] += ca * cb;
    }
  return result;
}

std::optional<Polynomial> expand(const Graph& graph, ValueId id, ValueId x, ValueId t, int depth) {
  if (id == x) return Polynomial{{{1, 0}, 1.0}};
  if (id == t) return Polynomial{{{0, 1}, 1.0}};
  if (const auto number = splat_number(graph, id)) return Polynomial{{{0, 0}, *number}};
  const Node* node = graph.producer(id);
  if (!node || depth == 0 || !is_arithmetic_op(*node)) return std::nullopt;
  const std::string& op = node->op->name;
  const auto operand = [&](size_t i) { return expand(graph, node->inputs[i], x, t, depth - 1); };
  const auto a = operand(0);
  if (!a) return std::nullopt;
  if (op == "neg") return sum({}, *a, -1);
  if (op == "div" || op == "pow") {
    const auto number = splat_number(graph, node->inputs[1]);
    if (!number || *number == 0) return std::nullopt;
    if (op == "div") return sum({}, *a, 1 / *number);
    if (*number != 2 && *number != 3) return std::nullopt;
    const auto square = product(*a, *a);
    return *number == 2 || !square ? square : product(*square, *a);
  }
  const auto b = operand(1);
  if (!b) return std::nullopt;
  if (op == "mul") return product(*a, *b);
  return sum(*a, *b, op == "add" ? 1 : -1);
}

// The nodes of these operators from which `id` comes by arithmetic alone, nearest first.
std::vector<ValueId> nearest(const Graph& graph, ValueId id, std::initializer_list<std::string_view> ops) {
  std::vector<ValueId> front = {id}, seen, found;
  for (int depth = 0; depth < kMaxDepth && !front.empty(); ++depth) {
    std::vector<ValueId> next;
    for (const ValueId value : front) {
      const Node* node = graph.producer(value);
      if (!node || std::find(seen.begin(), seen.end(), value) != seen.end() || seen.size() > kMaxBases) continue;
      seen.push_back(value);
      if (std::find(ops.begin(), ops.end(), node->op->name) != ops.end()) found.push_back(value);
      else if (is_arithmetic_op(*node)) next.insert(next.end(), node->inputs.begin(), node->inputs.end());
    }
    front = std::move(next);
  }
  return found;
}

std::optional<Recognized> gelu(const Graph& graph, const Node& node) {
  const ValueId root = node.outputs[0];
  const DType dtype = graph.type(root).dtype;
  for (const ValueId t : nearest(graph, root, {"erf", "tanh"})) {
    const bool erf = is_op(graph.producer(t), "erf");
    const ValueId argument = graph.producer(t)->inputs[0];
    for (const ValueId x : bases_of(graph, argument)) {
      auto inner = as_polynomial(graph, argument, x, -1);
      const auto outer = as_polynomial(graph, root, x, t);
      if (!inner || !outer) continue;
      // erf and tanh are odd: the sign of the argument may have moved in front of them.
      const double sign = (*inner)[{1, 0}] < 0 ? -1 : 1;
      const Polynomial gate = {{{1, 0}, 0.5}, {{1, 1}, 0.5 * sign}};
      const double k = sign * std::sqrt(2 / M_PI);
      const Polynomial line =
          erf ? Polynomial{{{1, 0}, sign * std::sqrt(0.5)}} : Polynomial{{{1, 0}, k}, {{3, 0}, k * 0.044715}};
      if (!near(*inner, line, dtype) || !near(*outer, gate, dtype)) continue;
      return Recognized{"gelu", {x}, {{"approximate", std::string(erf ? "none" : "tanh")}}};
    }
  }
  return std::nullopt;
}

// 1 + exp(e): e.
std::optional<ValueId> one_plus_exp(const Graph& graph, ValueId id) {
  const Node* node = graph.producer(id);
  if (!is_op(node, "add")) return std::nullopt;
  for (size_t i = 0; i < 2; ++i) {
    const Node* exp = graph.producer(node->inputs[i]);
    if (is_op(exp, "exp") && splat_number(graph, node->inputs[1 - i]) == 1.0) return exp->inputs[0];
  }
  return std::nullopt;
}

std::optional<Recognized> sigmoid(const Graph& graph, const Node& node) {
  if (!is_op(&node, "div")) return std::nullopt;
  const auto exponent = one_plus_exp(graph, node.inputs[1]);
  const Node* negation = exponent ? graph.producer(*exponent) : nullptr;
  if (!is_op(negation, "neg")) return std::nullopt;
  const ValueId x = negation->inputs[0];
  if (node.inputs[0] == x) return Recognized{"silu", {x}, {}};
  if (splat_number(graph, node.inputs[0]) == 1.0) return Recognized{"sigmoid", {x}, {}};
  return std::nullopt;
}

// A product of x with a function of x that is a composite already.
std::optional<Recognized> gated(const Graph& graph, const Node& node) {
  if (!is_op(&node, "mul")) return std::nullopt;
  const DType dtype = graph.type(node.outputs[0]).dtype;
  for (size_t i = 0; i < 2; ++i) {
    const ValueId x = node.inputs[i];
    const Node* gate = graph.producer(node.inputs[1 - i]);
    if (!gate || gate->inputs.empty()) continue;
    if (is_op(gate, "tanh")) {
      const Node* softplus = graph.producer(gate->inputs[0]);
      if (is_composite(softplus, "softplus") && softplus->inputs[0] == x) return Recognized{"mish", {x}, {}};
    }
    if (gate->inputs[0] != x) continue;
    if (is_composite(gate, "sigmoid")) return Recognized{"silu", {x}, {}};
    if (is_composite(gate, "hard_sigmoid") && near(gate->attrs.get<double>("alpha"), 1.0 / 6, dtype) &&
        near(gate->attrs.get<double>("beta"), 0.5, dtype))
      return Recognized{"hard_swish", {x}, {}};
  }
  return std::nullopt;
}

struct Bounded {
  ValueId line;
  double low, high;
};

// min(max(line, low), high) or max(min(line, high), low) with low < high.
std::optional<Bounded> bounded(const Graph& graph, ValueId id) {
  const Node* outer = graph.producer(id);
  if (!is_op(outer, "min") && !is_op(outer, "max")) return std::nullopt;
  const bool min_outside = outer->op->name == "min";
  for (size_t i = 0; i < 2; ++i) {
    const Node* inner = graph.producer(outer->inputs[i]);
    const auto outer_bound = splat_number(graph, outer->inputs[1 - i]);
    if (!outer_bound || !is_op(inner, min_outside ? "max" : "min")) continue;
    for (size_t k = 0; k < 2; ++k)
      if (const auto inner_bound = splat_number(graph, inner->inputs[1 - k])) {
        const double low = min_outside ? *inner_bound : *outer_bound, high = min_outside ? *outer_bound : *inner_bound;
        if (low < high) return Bounded{inner->inputs[k], low, high};
      }
  }
  return std::nullopt;
}

std::optional<Recognized> hard(const Graph& graph, const Node& node) {
  const ValueId root = node.outputs[0];
  const DType dtype = graph.type(root).dtype;
  for (const ValueId t : nearest(graph, root, {"min", "max"})) {
    const auto clip = bounded(graph, t);
    if (!clip) continue;
    std::vector<ValueId> bases = bases_of(graph, clip->line);
    std::reverse(bases.begin(), bases.end());  // the whole line belongs to the operator
    for (const ValueId x : bases) {
      auto line = as_polynomial(graph, clip->line, x, -1);
      auto outer = as_polynomial(graph, root, x, t);
      if (!line || !outer || !near(*line, {{{0, 0}, (*line)[{0, 0}]}, {{1, 0}, (*line)[{1, 0}]}}, dtype)) continue;
      const double a = (*line)[{1, 0}], b = (*line)[{0, 0}];
      for (const bool swish : {false, true}) {
        // gate = p * clip + q, held within 0 and 1
        const double p = (*outer)[{swish ? 1 : 0, 1}], q = (*outer)[{swish ? 1 : 0, 0}];
        const Polynomial gate = {{{swish ? 1 : 0, 1}, p}, {{swish ? 1 : 0, 0}, q}};
        if (!near(*outer, gate, dtype) || std::fabs(p * clip->low + q) > 1e-6 || !near(p * clip->high + q, 1, dtype))
          continue;
        const double alpha = p * a, beta = p * b + q;
        if (alpha == 0 || (alpha == 1 && beta == 0)) continue;  // a plain clip
        if (!swish) return Recognized{"hard_sigmoid", {x}, {{"alpha", alpha}, {"beta", beta}}};
        if (near(alpha, 1.0 / 6, dtype) && near(beta, 0.5, dtype)) return Recognized{"hard_swish", {x}, {}};
      }
    }
  }
  return std::nullopt;
}

std::optional<Recognized> softplus(const Graph& graph, const Node& node) {
  if (!is_op(&node, "log")) return std::nullopt;
  const auto x = one_plus_exp(graph, node.inputs[0]);
  return x ? std::optional(Recognized{"softplus", {*x}, {}}) : std::nullopt;
}

}  // namespace

std::optional<double> splat_number(const Graph& graph, ValueId id) {
  const Tensor* tensor = constant_value(graph, id);
  return tensor && is_float(tensor->dtype()) ? splat_value(*tensor) : std::nullopt;
}

bool near(double a, double b, DType dtype) {
  const double tolerance = dtype_bits(dtype) <= 16 ? 2e-3 : 2e-6;
  return std::fabs(a - b) <= tolerance * std::max(std::fabs(a), std::fabs(b));
}

std::optional<Polynomial> as_polynomial(const Graph& graph, ValueId id, ValueId x, ValueId t) {
  return expand(graph, id, x, t, kMaxDepth);
}

bool near(const Polynomial& a, const Polynomial& b, DType dtype) {
  const auto at = [](const Polynomial& p, const std::pair<int, int>& exponents) {
    const auto it = p.find(exponents);
    return it == p.end() ? 0 : it->second;
  };
  for (const auto* list : {&a, &b})
    for (const auto& [exponents, coefficient] : *list) {
      const double x = at(a, exponents), y = at(b, exponents);
      // Terms that cancel leave a rounding behind.
      if (!near(x, y, dtype) && std::fabs(x - y) > 1e-9) return false;
    }
  return true;
}

std::vector<ValueId> bases_of(const Graph& graph, ValueId id) {
  std::vector<ValueId> bases = {id};
  for (size_t i = 0; i < bases.size() && bases.size() < kMaxBases; ++i) {
    const Node* node = graph.producer(bases[i]);
    if (!node || !is_arithmetic_op(*node)) continue;
    for (const ValueId input : node->inputs)
      if (!constant_value(graph, input) && std::find(bases.begin(), bases.end(), input) == bases.end())
        bases.push_back(input);
  }
  return bases;
}

std::optional<Recognized> recognize_activation(const Graph& graph, const Node& node) {
  const std::string& op = node.op->name;
  if (op != "mul" && op != "div" && op != "log" && op != "add" && op != "min" && op != "max") return std::nullopt;
  for (const auto& recognizer : {sigmoid, gated, softplus, gelu, hard})
    if (auto found = recognizer(graph, node)) return found;
  return std::nullopt;
}

}  // namespace tessera::inline graph_passes
