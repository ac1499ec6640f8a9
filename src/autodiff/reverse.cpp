#include "autodiff/reverse.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "autodiff/nest_loops.h"
#include "graph/adjoint.h"
#include "graph/no_gradient_error.h"
#include "ops/composites/composites.h"
#include "ops/op_util.h"

namespace tessera::inline autodiff {
namespace {

size_t index(ValueId id) { return static_cast<size_t>(id); }

// The rule of a composite that has one of its own.
const CompositeDef* with_rule(const Graph& graph, const Node& node, const OpTable& ops) {
  if (node.op->kind != OpKind::kComposite) return nullptr;
  const CompositeDef* def = definition_of(graph, node, ops);
  return def && def->gradient ? def : nullptr;
}

bool is_opened(const Graph& graph, const Node& node, const OpTable& ops) {
  if (node.op->kind == OpKind::kComposite) return !with_rule(graph, node, ops);
  return node.op->kind == OpKind::kGroup || node.op->kind == OpKind::kCall;
}

}  // namespace

std::vector<bool> influenced(const Graph& graph, const std::vector<ValueId>& values, NodeId first, NodeId end) {
  std::vector<bool> depends(graph.values().size(), false);
  for (const ValueId value : values) depends[index(value)] = true;
  for (NodeId n = first; n < end; ++n) {
    const Node& node = graph.node(n);
    if (std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) { return depends[index(v)]; }))
      for (const ValueId result : node.outputs)
        depends[index(result)] = depends[index(result)] || is_real(graph.type(result).dtype);
  }
  return depends;
}

std::vector<ValueId> copy_opened(GraphBuilder& builder, const OpTable& ops, const Graph& part,
                                 const std::vector<ValueId>& inputs) {
  Graph& graph = builder.graph();
  std::vector<ValueId> map(part.values().size(), -1);
  for (size_t i = 0; i < inputs.size(); ++i) map[index(part.inputs[i])] = inputs[i];
  for (const Node& node : part.nodes()) {
    std::vector<ValueId> operands, results;
    for (const ValueId input : node.inputs) operands.push_back(map[index(input)]);
    if (is_opened(part, node, ops)) {
      const Graph& region = *node.regions[0];
      const std::vector<ValueId> inner = copy_opened(builder, ops, region, operands);
      for (const ValueId output : region.outputs) results.push_back(inner[index(output)]);
    } else {
      Node own = node;
      own.inputs = operands;
      own.outputs.clear();
      std::vector<TensorType> types;
      std::vector<std::string> names;
      for (const ValueId output : node.outputs) {
        types.push_back(part.type(output));
        names.push_back(part.value(output).name);
      }
      results = graph.node(graph.add_node(std::move(own), std::move(types), std::move(names))).outputs;
    }
    for (size_t i = 0; i < results.size(); ++i) map[index(node.outputs[i])] = results[i];
  }
  return map;
}

std::vector<ValueId> ReverseSweep::copy(const Graph& part, const std::vector<ValueId>& inputs,
                                        const std::vector<ValueId>& results, const std::vector<ValueId>& wrt) {
  Graph flat;
  for (const ValueId input : part.inputs) flat.add_input(part.value(input).name, part.type(input));
  GraphBuilder into_flat(flat);
  std::vector<ValueId> map = copy_opened(into_flat, ops_, part, flat.inputs);
  const auto mapped = [&](const std::vector<ValueId>& values) {
    std::vector<ValueId> own;
    for (const ValueId value : values) own.push_back(map[index(value)]);
    return own;
  };
  std::set<NodeId> again;  // loops of loops
  if (std::any_of(flat.nodes().begin(), flat.nodes().end(), [&](const Node& node) { return is_long(flat, node); })) {
    const std::vector<bool> reached = influenced(flat, mapped(wrt), 0, static_cast<NodeId>(flat.nodes().size()));
    auto [other, to_other] = with_nested_loops(flat, reached, again);
    for (ValueId& value : map)
      if (value >= 0) value = to_other[index(value)];
    flat = std::move(other);
  }
  const std::vector<bool> depends = influenced(flat, mapped(wrt), 0, static_cast<NodeId>(flat.nodes().size()));
  std::vector<bool> matters(flat.values().size(), false);
  for (const ValueId value : mapped(results)) matters[index(value)] = true;
  for (size_t n = flat.nodes().size(); n-- > 0;) {
    const Node& node = flat.nodes()[n];
    if (std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId v) { return matters[index(v)]; }))
      for (const ValueId v : node.inputs) matters[index(v)] = true;
  }

  Graph& graph = builder_.graph();
  std::vector<ValueId> own(flat.values().size(), -1);
  for (size_t i = 0; i < inputs.size(); ++i) own[index(flat.inputs[i])] = inputs[i];
  for (const Node& node : flat.nodes()) {
    std::vector<bool> wanted, given;
    for (const ValueId v : node.inputs) wanted.push_back(depends[index(v)]);
    for (const ValueId v : node.outputs) given.push_back(depends[index(v)] && matters[index(v)]);
    std::optional<LoopPlan> plan;
    if (node.op->kind == OpKind::kLoop && std::find(given.begin(), given.end(), true) != given.end())
      plan = plan_loop(flat, node, given, wanted, again.contains(static_cast<NodeId>(&node - flat.nodes().data())),
                       options_, ops_);
    Node copy = plan ? plan->forward : node;
    for (ValueId& v : copy.inputs) v = own[index(v)];
    std::vector<TensorType> types;
    std::vector<std::string> names;
    for (const ValueId v : node.outputs) {
      types.push_back(flat.type(v));
      names.push_back(flat.value(v).name);
    }
    if (plan) {
      types.insert(types.end(), plan->added_types.begin(), plan->added_types.end());
      names.insert(names.end(), plan->added_names.begin(), plan->added_names.end());
    }
    const NodeId id = graph.add_node(std::move(copy), std::move(types), std::move(names));
    for (size_t i = 0; i < node.outputs.size(); ++i) own[index(node.outputs[i])] = graph.node(id).outputs[i];
    if (plan) loops_.emplace(id, std::move(*plan));
  }
  for (ValueId& value : map)
    if (value >= 0) value = own[index(value)];
  return map;
}

bool ReverseSweep::is_long(const Graph& graph, const Node& node) const {
  return node.op->kind == OpKind::kLoop && bytes_kept(graph, node) > options_.most_kept_bytes;
}

// The graph with long loops nested, as far as `reached` has their results, and where its values are. `again`: the nodes
// that are loops of loops.
std::pair<Graph, std::vector<ValueId>> ReverseSweep::with_nested_loops(const Graph& graph,
                                                                       const std::vector<bool>& reached,
                                                                       std::set<NodeId>& again) const {
  Graph result;
  std::vector<ValueId> map(graph.values().size(), -1);
  for (const ValueId v : graph.inputs) map[index(v)] = result.add_input(graph.value(v).name, graph.type(v));
  const auto copy = [&](const Graph& from, const Node& node, std::vector<ValueId>& to) {
    Node own = node;
    for (ValueId& v : own.inputs) v = to[index(v)];
    std::vector<TensorType> types;
    std::vector<std::string> names;
    for (const ValueId v : node.outputs) {
      types.push_back(from.type(v));
      names.push_back(from.value(v).name);
    }
    const NodeId id = result.add_node(std::move(own), std::move(types), std::move(names));
    for (size_t i = 0; i < node.outputs.size(); ++i) to[index(node.outputs[i])] = result.node(id).outputs[i];
    return id;
  };
  for (const Node& node : graph.nodes()) {
    std::optional<NestedLoop> parts;
    if (is_long(graph, node) &&
        std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId v) { return reached[index(v)]; }))
      parts = nested(graph, node, ops_);
    if (!parts) {
      copy(graph, node, map);
      continue;
    }
    std::vector<ValueId> inner(parts->graph.values().size(), -1);
    for (size_t i = 0; i < node.inputs.size(); ++i) inner[index(parts->graph.inputs[i])] = map[index(node.inputs[i])];
    for (const Node& part : parts->graph.nodes()) {
      const NodeId id = copy(parts->graph, part, inner);
      if (&part == &parts->graph.node(parts->outer)) again.insert(id);
    }
    for (size_t i = 0; i < node.outputs.size(); ++i)
      map[index(node.outputs[i])] = inner[index(parts->graph.outputs[i])];
  }
  return {std::move(result), std::move(map)};
}

void ReverseSweep::run(const std::vector<ValueId>& wrt, NodeId first, NodeId end) {
  const Graph& graph = builder_.graph();
  const std::vector<bool> depends = influenced(graph, wrt, first, end);
  for (NodeId n = end; n-- > first;) {
    const Node node = graph.node(n);  // adding nodes moves them
    std::vector<ValueId> given;
    for (const ValueId result : node.outputs) given.push_back(gradient(result));
    std::vector<bool> wanted;
    for (const ValueId operand : node.inputs) wanted.push_back(depends[index(operand)]);
    if (std::all_of(given.begin(), given.end(), [](ValueId g) { return g == Adjoint::kNone; }) ||
        std::none_of(wanted.begin(), wanted.end(), [](bool w) { return w; }))
      continue;
    builder_.set_loc(node.loc);
    const std::vector<ValueId> found = answers(n, given, wanted);
    check(found.size() == node.inputs.size(), node.op->name + " has a gradient for each operand");
    for (size_t i = 0; i < found.size(); ++i)
      if (wanted[i] && found[i] != Adjoint::kNone)
        add_gradient(node.inputs[i], found[i], taken_of_operand(graph, node, i, taken(node.outputs[0])));
  }
}

ValueId ReverseSweep::gradient(ValueId value) const {
  return index(value) < gradients_.size() ? gradients_[index(value)] : Adjoint::kNone;
}

std::vector<ValueId> ReverseSweep::answers(NodeId id, const std::vector<ValueId>& given,
                                           const std::vector<bool>& wanted) {
  const Node node = builder_.graph().node(id);
  Adjoint adjoint(builder_, ops_, node, given, wanted);
  try {
    if (node.op->kind == OpKind::kIf) return if_gradient(adjoint, node, options_, refused_);
    if (node.op->kind == OpKind::kLoop) {
      const auto plan = loops_.find(id);
      check(plan != loops_.end(), "a loop that is differentiated without a plan");
      return loop_gradient(adjoint, plan->second, refused_);
    }
    if (is_opened(builder_.graph(), node, ops_)) return through_region(node, given, wanted);
    const CompositeDef* composite = with_rule(builder_.graph(), node, ops_);
    const auto& rule = composite ? composite->gradient : node.op->gradient;
    if (!rule) adjoint.fail("the operator has no rule for it", "operators with a gradient");
    const TakenPtr where = taken(node.outputs[0]);
    return where && works_by_element(node) ? where_taken(node, given, wanted, *where, rule) : rule(adjoint);
  } catch (const NoGradientError& error) {
    refused_.push_back(error.diagnostic());  // the sweep goes on, to find the others
  }
  std::vector<ValueId> zeros(node.inputs.size(), Adjoint::kNone);
  for (size_t i = 0; i < wanted.size(); ++i)
    if (wanted[i]) zeros[i] = adjoint.zeros_like(node.inputs[i]);
  return zeros;
}

std::vector<ValueId> ReverseSweep::through_region(const Node& node, const std::vector<ValueId>& given,
                                                  const std::vector<bool>& wanted) {
  const Graph& region = *node.regions[0];
  std::vector<ValueId> results, seeds, inputs, wrt;
  for (size_t i = 0; i < given.size(); ++i)
    if (given[i] != Adjoint::kNone) {
      results.push_back(region.outputs[i]);
      seeds.push_back(given[i]);
    }
  for (size_t i = 0; i < wanted.size(); ++i)
    if (wanted[i]) {
      inputs.push_back(region.inputs[i]);
      wrt.push_back(node.inputs[i]);
    }
  ReverseSweep sweep(builder_, ops_, options_);
  const auto first = static_cast<NodeId>(builder_.graph().nodes().size());
  const std::vector<ValueId> map = sweep.copy(region, node.inputs, results, inputs);
  const auto end = static_cast<NodeId>(builder_.graph().nodes().size());
  for (size_t i = 0; i < results.size(); ++i) sweep.seed(map[index(results[i])], seeds[i]);
  sweep.run(wrt, first, end);
  refused_.insert(refused_.end(), sweep.refused().begin(), sweep.refused().end());
  std::vector<ValueId> answers(node.inputs.size(), Adjoint::kNone);
  std::set<ValueId> answered;  // an operand that stands twice has its whole gradient once
  for (size_t i = 0; i < wanted.size(); ++i)
    if (wanted[i] && answered.insert(node.inputs[i]).second) answers[i] = sweep.gradient(node.inputs[i]);
  return answers;
}

TakenPtr ReverseSweep::taken(ValueId value) const {
  return index(value) < taken_.size() ? taken_[index(value)] : TakenPtr{};
}

// Of a node that works element by element: what its rule says, with 0 where nothing depends on the result.
std::vector<ValueId> ReverseSweep::where_taken(const Node& node, const std::vector<ValueId>& given,
                                               const std::vector<bool>& wanted, Taken& where,
                                               const std::function<std::vector<ValueId>(Adjoint&)>& rule) {
  const Shape shape = builder_.graph().type(node.outputs[0]).shape;
  // Operands in the result's shape, so that the rule adds nothing up before zeros are put in.
  Node whole = node;
  for (ValueId& operand : whole.inputs)
    if (!same_shape(builder_.graph().type(operand).shape, shape))
      operand = builder_.add(ops_.get("broadcast"), {operand}, {{"shape", shape}});
  Adjoint adjoint(builder_, ops_, whole, given, wanted);
  std::vector<ValueId> found = rule(adjoint);
  for (size_t i = 0; i < found.size(); ++i) {
    if (!wanted[i] || found[i] == Adjoint::kNone) continue;
    if (found[i] != given[0])
      found[i] = adjoint.select(where.value(builder_, ops_), found[i], adjoint.scalar(0, found[i]));
    found[i] = adjoint.sum_to(found[i], node.inputs[i]);
  }
  return found;
}

void ReverseSweep::add_gradient(ValueId value, ValueId gradient, const TakenPtr& taken) {
  const Graph& graph = builder_.graph();
  check(same_shape(graph.type(gradient).shape, graph.type(value).shape) &&
            graph.type(gradient).dtype == graph.type(value).dtype,
        "a gradient of type " + graph.type(gradient).to_string() + " for " + graph.type(value).to_string());
  if (gradients_.size() < graph.values().size()) gradients_.resize(graph.values().size(), Adjoint::kNone);
  if (taken_.size() < gradients_.size()) taken_.resize(gradients_.size());
  const ValueId before = gradients_[index(value)];
  TakenPtr& where = taken_[index(value)];
  if (before == Adjoint::kNone) where = taken;
  else if (where != taken) where = where && taken ? Taken::either(where, taken) : TakenPtr{};
  gradients_[index(value)] = before == Adjoint::kNone ? gradient : builder_.add(ops_.get("add"), {before, gradient});
}

void refuse(const std::vector<Diagnostic>& refused) {
  if (refused.size() == 1) throw UserError(refused[0]);
  std::string found;
  std::set<std::string> seen;
  for (auto one = refused.rbegin(); one != refused.rend(); ++one) {
    const std::string line = one->node.empty() ? one->message : fmt::format("{} ({})", one->message, one->node);
    if (seen.insert(line).second) found += (found.empty() ? "" : "; ") + line;
  }
  Diagnostic all = refused.back();
  all.message = found;
  throw UserError(std::move(all));
}

void take_name(Graph& graph, ValueId value, const std::string& name) {
  if (graph.value(value).name == name) return;
  for (size_t i = 0; i < graph.values().size(); ++i)
    if (graph.values()[i].name == name) graph.rename(static_cast<ValueId>(i), graph.unique_name(name));
  graph.rename(value, name);
}

}  // namespace tessera::inline autodiff
