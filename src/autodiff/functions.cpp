#include "autodiff/functions.h"

#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "arith/simplify.h"
#include "autodiff/forward.h"
#include "autodiff/gradients.h"
#include "autodiff/reverse.h"
#include "graph/adjoint.h"
#include "graph/subgraph.h"
#include "ops/op_util.h"
#include "support/error.h"

namespace tessera::inline autodiff {
namespace {

constexpr ValueId kNone = Adjoint::kNone;

size_t index(ValueId id) { return static_cast<size_t>(id); }

TensorType row_major(TensorType type) {
  type.layout = {};
  return type;
}

void require_real(const Graph& graph, ValueId value) {
  check(is_real(graph.type(value).dtype), "derivatives of or to a value of type " + graph.type(value).to_string());
}

std::vector<ValueId> inputs_at(const Graph& graph, const std::vector<size_t>& wrt) {
  std::vector<ValueId> values;
  for (const size_t i : wrt) {
    check(i < graph.num_own_inputs(), "a graph has no such input");
    values.push_back(graph.inputs[i]);
    require_real(graph, values.back());
  }
  return values;
}

// A graph that is being made of another one: its inputs, further ones behind its own, its nodes and what is added.
class Derived {
 public:
  Derived(const Graph& source, const OpTable& ops)
      : source_(source), known_(source.symbols), ops_(ops), builder_(graph_) {
    graph_.copy_header(source);
  }

  // The source's own inputs, `more`, then those of states; answers the latter two apart.
  void add_inputs(const std::vector<std::pair<std::string, TensorType>>& more) {
    for (size_t i = 0; i < source_.num_own_inputs(); ++i) add_input(source_.inputs[i]);
    for (const auto& [name, type] : more) further_.push_back(graph_.add_input(name, row_major(type)));
    for (size_t i = source_.num_own_inputs(); i < source_.inputs.size(); ++i) add_input(source_.inputs[i]);
  }

  // The outputs of the source, with `more` behind its own.
  Graph finish(const std::vector<ValueId>& map, const std::vector<std::pair<std::string, ValueId>>& more,
               bool keep_own = true) {
    for (size_t i = 0; i < source_.outputs.size(); ++i) {
      if (i == source_.num_own_outputs()) add_outputs(more);
      if (!keep_own && i < source_.num_own_outputs()) continue;
      const ValueId value = map[index(source_.outputs[i])];
      take_name(graph_, value, source_.value(source_.outputs[i]).name);
      graph_.outputs.push_back(value);
    }
    if (source_.num_own_outputs() == source_.outputs.size()) add_outputs(more);
    return needed_part(graph_);
  }

  ValueId op(std::string_view op, std::vector<ValueId> inputs, Attrs attrs = {}, const std::string& name = "") {
    return builder_.add(ops_.get(op), std::move(inputs), std::move(attrs), name);
  }
  ValueId filled(double number, const TensorType& type) {
    Tensor tensor(type.dtype, {});
    tensor.set_double(0, number);
    const ValueId scalar = op("constant", {}, {{"value", std::make_shared<const Tensor>(std::move(tensor))}});
    return op("broadcast", {scalar}, {{"shape", type.shape}});
  }

  Graph& graph() { return graph_; }
  GraphBuilder& builder() { return builder_; }
  const std::vector<ValueId>& inputs() const { return inputs_; }    // of the source
  const std::vector<ValueId>& further() const { return further_; }  // inputs that the source has not

 private:
  void add_input(ValueId input) { inputs_.push_back(graph_.add_input(source_.value(input).name, source_.type(input))); }

  // Each output has a name of its own, even where two are one value.
  void add_outputs(const std::vector<std::pair<std::string, ValueId>>& more) {
    for (const auto& [name, value] : more)
      graph_.outputs.push_back(op("reshape", {value}, {{"shape", graph_.type(value).shape}}, graph_.unique_name(name)));
  }

  const Graph& source_;
  const KnownSymbols known_;
  const OpTable& ops_;
  Graph graph_;
  GraphBuilder builder_;
  std::vector<ValueId> inputs_, further_;
};

// Of the first so many own outputs.
std::vector<ValueId> real_outputs(const Graph& graph, size_t first = std::numeric_limits<size_t>::max()) {
  std::vector<ValueId> values;
  for (size_t i = 0; i < std::min(first, graph.num_own_outputs()); ++i)
    if (is_real(graph.type(graph.outputs[i]).dtype)) values.push_back(graph.outputs[i]);
  return values;
}

// A product with the Jacobian, forward or backward, of which the part that depends on `direction` (an input) is to be
// done once for each of its elements, on the directions that are 1 for that element and 0 for all others.
class OverBasis {
 public:
  OverBasis(const Graph& product, ValueId direction, const OpTable& ops)
      : product_(product), direction_(direction), ops_(ops) {
    depends_.assign(product.values().size(), false);
    depends_[index(direction)] = true;
    for (const Node& node : product.nodes())
      if (std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) { return depends_[index(v)]; }))
        for (const ValueId v : node.outputs) depends_[index(v)] = true;
  }

  // Adds to `to` what does not depend on the direction, and the loop. `map`: of the inputs of the product; it is
  // filled. Answers for each of `results` a value with a new first dimension, of as many elements as the direction has.
  std::vector<ValueId> add_to(GraphBuilder& to, std::vector<ValueId>& map, const std::vector<ValueId>& results) {
    const TensorType type = row_major(product_.type(direction_));
    Expr count = 1;
    for (const Expr& extent : type.shape) count = count * extent;
    count = normalize_size(count);
    std::vector<const Node*> inside;
    for (const Node& node : product_.nodes())
      if (depends_[index(node.outputs[0])]) inside.push_back(&node);
      else copy(to.graph(), node, map);
    auto body = std::make_shared<Graph>();
    body->name = product_.name + ".direction";
    GraphBuilder in_body(*body);
    const ValueId number = body->add_input("i", {DType::kI64, {}, {}});
    std::vector<ValueId> inner(product_.values().size(), -1), operands;
    for (const Node* node : inside)
      for (const ValueId v : node->inputs)
        if (!depends_[index(v)] && inner[index(v)] < 0) {
          inner[index(v)] = body->add_input(product_.value(v).name, row_major(product_.type(v)));
          operands.push_back(map[index(v)]);
        }
    const ValueId places =
        in_body.add(ops_.get("iota"), {}, {{"shape", Shape{count}}, {"axis", int64_t{0}}, {"dtype", DType::kI64}});
    const ValueId here =
        in_body.add(ops_.get("cast"), {in_body.add(ops_.get("eq"), {places, number})}, {{"to", type.dtype}});
    inner[index(direction_)] = in_body.add(ops_.get("reshape"), {here}, {{"shape", type.shape}});
    for (const Node* node : inside) copy(*body, *node, inner);
    std::vector<ValueId> answers(results.size(), kNone);
    std::vector<size_t> stacked;
    for (size_t i = 0; i < results.size(); ++i) {
      if (!depends_[index(results[i])]) continue;
      stacked.push_back(i);
      body->outputs.push_back(inner[index(results[i])]);
    }
    if (stacked.empty()) return answers;
    const std::vector<ValueId> rows = to.add_multi(ops_.get("loop"), operands, {{"max_trip", Shape{count}}},
                                                   {std::shared_ptr<const Graph>(body)}, {});
    for (size_t k = 0; k < stacked.size(); ++k) answers[stacked[k]] = rows[k];
    return answers;
  }

 private:
  void copy(Graph& to, const Node& node, std::vector<ValueId>& map) const {
    Node own = node;
    for (ValueId& v : own.inputs) v = map[index(v)];
    std::vector<TensorType> types;
    std::vector<std::string> names;
    for (const ValueId v : node.outputs) {
      types.push_back(product_.type(v));
      names.push_back(product_.value(v).name);
    }
    const std::vector<ValueId> made = to.node(to.add_node(std::move(own), std::move(types), std::move(names))).outputs;
    for (size_t i = 0; i < made.size(); ++i) map[index(node.outputs[i])] = made[i];
  }

  const Graph& product_;
  const ValueId direction_;
  const OpTable& ops_;
  std::vector<bool> depends_;
};

Shape joined(Shape a, const Shape& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// A graph of one output, whose states and checks are values like others.
Graph single(const Graph& graph, size_t output) {
  check(output < graph.num_own_outputs(), "a graph has no such output");
  Graph one = graph;
  const ValueId value = graph.outputs[output];
  require_real(graph, value);
  one.outputs.erase(one.outputs.begin(),
                    one.outputs.begin() + std::ssize(one.outputs) - std::ssize(one.states) - std::ssize(one.checks));
  one.outputs.insert(one.outputs.begin(), value);
  return one;
}

}  // namespace

Graph value_and_gradients(const Graph& graph, size_t output, const std::vector<size_t>& wrt, const OpTable& ops) {
  check(output < graph.num_own_outputs(), "a graph has no such output");
  const KnownSymbols known(graph.symbols);
  return needed_part(gradients(graph, graph.outputs[output], inputs_at(graph, wrt), ops));
}

Graph gradients_alone(const Graph& graph, size_t output, const std::vector<size_t>& wrt, const OpTable& ops) {
  const KnownSymbols known(graph.symbols);
  Graph with = gradients(graph, graph.outputs[output], inputs_at(graph, wrt), ops);
  with.outputs.erase(with.outputs.begin(), with.outputs.begin() + std::ssize(graph.outputs) - std::ssize(graph.states) -
                                               std::ssize(graph.checks));
  return needed_part(with);
}

Graph vector_jacobian(const Graph& graph, const std::vector<size_t>& wrt, const OpTable& ops, size_t outputs_wanted) {
  Derived derived(graph, ops);
  const std::vector<ValueId> results = real_outputs(graph, outputs_wanted), values = inputs_at(graph, wrt);
  std::vector<std::pair<std::string, TensorType>> more;
  for (const ValueId v : results) more.emplace_back(graph.value(v).name + ".cotangent", graph.type(v));
  derived.add_inputs(more);
  ReverseSweep sweep(derived.builder(), ops);
  const std::vector<ValueId> map = sweep.copy(graph, derived.inputs(), results, values);
  const auto end = static_cast<NodeId>(derived.graph().nodes().size());
  for (size_t i = 0; i < results.size(); ++i) sweep.seed(map[index(results[i])], derived.further()[i]);
  std::vector<ValueId> own;
  for (const ValueId v : values) own.push_back(map[index(v)]);
  sweep.run(own, 0, end);
  if (!sweep.refused().empty()) refuse(sweep.refused());
  std::vector<std::pair<std::string, ValueId>> outputs;
  for (size_t i = 0; i < own.size(); ++i) {
    const ValueId found = sweep.gradient(own[i]);
    outputs.emplace_back(graph.value(values[i]).name + ".gradient",
                         found == kNone ? derived.filled(0, row_major(graph.type(values[i]))) : found);
  }
  return derived.finish(map, outputs);
}

Graph jacobian_vector(const Graph& graph, const std::vector<size_t>& wrt, const OpTable& ops) {
  Derived derived(graph, ops);
  const std::vector<ValueId> results = real_outputs(graph), values = inputs_at(graph, wrt);
  std::vector<std::pair<std::string, TensorType>> more;
  for (const ValueId v : values) more.emplace_back(graph.value(v).name + ".tangent", graph.type(v));
  derived.add_inputs(more);
  std::vector<ValueId> tangents(graph.inputs.size(), kNone);
  for (size_t i = 0; i < wrt.size(); ++i) tangents[wrt[i]] = derived.further()[i];
  ForwardSweep sweep(derived.builder(), ops);
  const ForwardSweep::Values map = sweep.run(graph, derived.inputs(), tangents);
  if (const auto refused = sweep.refused(); !refused.empty()) refuse(refused);
  std::vector<std::pair<std::string, ValueId>> outputs;
  for (const ValueId v : results) {
    const ValueId found = map.tangents[index(v)];
    outputs.emplace_back(graph.value(v).name + ".tangent",
                         found == kNone ? derived.filled(0, row_major(graph.type(v))) : found);
  }
  return derived.finish(map.values, outputs);
}

Graph jacobian(const Graph& graph, size_t output, const std::vector<size_t>& wrt, JacobianMode mode,
               const OpTable& ops) {
  const Graph one = single(graph, output);
  const TensorType y = row_major(one.type(one.outputs[0]));
  Derived derived(one, ops);
  derived.add_inputs({});
  const bool reverse = mode == JacobianMode::kReverse;
  std::vector<std::pair<std::string, ValueId>> outputs;
  std::vector<ValueId> own_map;  // by value of `one`: its states and checks
  const auto result_of = [&](size_t i, ValueId rows, bool by_rows) {
    const TensorType x = row_major(one.type(one.inputs[wrt[i]]));
    const Shape shape = joined(y.shape, x.shape);
    ValueId found = rows == kNone ? derived.filled(0, {x.dtype, shape, {}}) : rows;
    if (rows != kNone && !by_rows) {
      // The elements of x come first.
      std::vector<int64_t> perm;
      for (size_t d = 0; d < y.shape.size(); ++d) perm.push_back(static_cast<int64_t>(d) + 1);
      perm.push_back(0);
      found = derived.op("transpose", {found}, {{"perm", perm}});
    }
    if (rows != kNone) found = derived.op("reshape", {found}, {{"shape", shape}});
    outputs.emplace_back(one.value(one.inputs[wrt[i]]).name + ".jacobian", found);
  };
  const auto run = [&](const Graph& product, ValueId direction, const std::vector<ValueId>& results) {
    std::vector<ValueId> map(product.values().size(), -1);
    for (size_t i = 0, own = 0; i < product.inputs.size(); ++i)
      if (product.inputs[i] != direction) map[index(product.inputs[i])] = derived.inputs()[own++];
    const std::vector<ValueId> rows = OverBasis(product, direction, ops).add_to(derived.builder(), map, results);
    if (own_map.empty()) {
      own_map.assign(one.values().size(), -1);
      for (size_t k = 1; k < one.outputs.size(); ++k)
        own_map[index(one.outputs[k])] = map[index(product.outputs[product.outputs.size() - one.outputs.size() + k])];
    }
    return rows;
  };
  if (reverse) {
    const Graph product = vector_jacobian(one, wrt, ops);
    const std::vector<ValueId> results(product.outputs.begin() + 1, product.outputs.begin() + 1 + std::ssize(wrt));
    const std::vector<ValueId> rows = run(product, product.inputs[one.num_own_inputs()], results);
    for (size_t i = 0; i < wrt.size(); ++i) result_of(i, rows[i], true);
  } else {
    for (size_t i = 0; i < wrt.size(); ++i) {
      const Graph product = jacobian_vector(one, {wrt[i]}, ops);
      result_of(i, run(product, product.inputs[one.num_own_inputs()], {product.outputs[1]})[0], false);
    }
  }
  return derived.finish(own_map, outputs, false);
}

Graph hessian_vector(const Graph& graph, size_t output, const std::vector<size_t>& wrt, const OpTable& ops) {
  return jacobian_vector(gradients_alone(graph, output, wrt, ops), wrt, ops);
}

Graph hessian(const Graph& graph, size_t output, const std::vector<size_t>& wrt, const OpTable& ops) {
  const Graph first = gradients_alone(graph, output, wrt, ops);
  // One column of second derivatives after the other, of all gradients at once.
  Derived derived(first, ops);
  derived.add_inputs({});
  std::vector<std::vector<ValueId>> columns(wrt.size());
  std::vector<ValueId> own_map(first.values().size(), -1);
  for (size_t j = 0; j < wrt.size(); ++j) {
    const Graph product = jacobian_vector(first, {wrt[j]}, ops);
    const ValueId direction = product.inputs[first.num_own_inputs()];
    std::vector<ValueId> map(product.values().size(), -1), results;
    for (size_t i = 0, own = 0; i < product.inputs.size(); ++i)
      if (product.inputs[i] != direction) map[index(product.inputs[i])] = derived.inputs()[own++];
    for (size_t i = 0; i < wrt.size(); ++i) results.push_back(product.outputs[wrt.size() + i]);
    columns[j] = OverBasis(product, direction, ops).add_to(derived.builder(), map, results);
    for (size_t k = wrt.size(); k < first.outputs.size(); ++k)
      own_map[index(first.outputs[k])] = map[index(product.outputs[wrt.size() + k])];
  }
  std::vector<std::pair<std::string, ValueId>> outputs;
  for (size_t i = 0; i < wrt.size(); ++i)
    for (size_t j = 0; j < wrt.size(); ++j) {
      const ValueId xi = first.inputs[wrt[i]], xj = first.inputs[wrt[j]];
      const Shape shape = joined(first.type(xi).shape, first.type(xj).shape);
      ValueId found = columns[j][i];
      if (found == kNone) {
        found = derived.filled(0, {first.type(xi).dtype, shape, {}});
      } else {
        std::vector<int64_t> perm;
        for (size_t d = 0; d < first.type(xi).shape.size(); ++d) perm.push_back(static_cast<int64_t>(d) + 1);
        perm.push_back(0);
        found = derived.op("reshape", {derived.op("transpose", {found}, {{"perm", perm}})}, {{"shape", shape}});
      }
      outputs.emplace_back(fmt::format("{}.{}.hessian", first.value(xi).name, first.value(xj).name), found);
    }
  return derived.finish(own_map, outputs, false);
}

}  // namespace tessera::inline autodiff
