#include "autodiff/forward.h"

#include <algorithm>
#include <memory>

#include "autodiff/reverse.h"
#include "graph/adjoint.h"
#include "graph/control_flow.h"
#include "graph/no_gradient_error.h"
#include "ops/composites/composites.h"
#include "ops/op_util.h"

namespace tessera::inline autodiff {
namespace {

constexpr ValueId kNone = Adjoint::kNone;

size_t index(ValueId id) { return static_cast<size_t>(id); }

bool none(const std::vector<ValueId>& tangents) {
  return std::all_of(tangents.begin(), tangents.end(), [](ValueId t) { return t == kNone; });
}

TensorType row_major(TensorType type) {
  type.layout = {};
  return type;
}

ValueId zeros_in(GraphBuilder& builder, const OpTable& ops, const TensorType& type) {
  Tensor zero(type.dtype, {});
  const ValueId scalar =
      builder.add(ops.get("constant"), {}, {{"value", std::make_shared<const Tensor>(std::move(zero))}});
  return builder.add(ops.get("broadcast"), {scalar}, {{"shape", type.shape}});
}

// A region with tangents: its inputs, then one for each input that `has`; its values by value of `region`.
struct RegionWithTangents {
  std::shared_ptr<Graph> graph;
  ForwardSweep::Values map;
};

RegionWithTangents with_tangents(const Graph& region, const std::vector<bool>& has, const OpTable& ops,
                                 std::vector<Diagnostic>& refused) {
  RegionWithTangents result{std::make_shared<Graph>(), {}};
  Graph& graph = *result.graph;
  graph.name = region.name;
  GraphBuilder builder(graph);
  for (const ValueId input : region.inputs) graph.add_input(region.value(input).name, region.type(input));
  std::vector<ValueId> tangents(region.inputs.size(), kNone);
  const std::vector<ValueId> inputs = graph.inputs;
  for (size_t i = 0; i < has.size(); ++i)
    if (has[i])
      tangents[i] =
          graph.add_input(region.value(region.inputs[i]).name + ".tangent", row_major(region.type(region.inputs[i])));
  ForwardSweep sweep(builder, ops);
  result.map = sweep.run(region, inputs, tangents);
  const std::vector<Diagnostic> more = sweep.refused();
  refused.insert(refused.end(), more.rbegin(), more.rend());
  return result;
}

}  // namespace

ValueId ForwardSweep::zeros(const TensorType& type) { return zeros_in(builder_, ops_, type); }

ForwardSweep::Values ForwardSweep::run(const Graph& part, const std::vector<ValueId>& inputs,
                                       const std::vector<ValueId>& tangents) {
  Graph flat;
  for (const ValueId input : part.inputs) flat.add_input(part.value(input).name, part.type(input));
  GraphBuilder into_flat(flat);
  const std::vector<ValueId> to_flat = copy_opened(into_flat, ops_, part, flat.inputs);
  Graph& graph = builder_.graph();
  Values own{std::vector<ValueId>(flat.values().size(), -1), std::vector<ValueId>(flat.values().size(), kNone)};
  for (size_t i = 0; i < inputs.size(); ++i) {
    own.values[index(flat.inputs[i])] = inputs[i];
    own.tangents[index(flat.inputs[i])] = tangents[i];
  }
  for (const Node& node : flat.nodes()) {
    Node copy = node;
    std::vector<ValueId> given;
    for (ValueId& v : copy.inputs) {
      given.push_back(own.tangents[index(v)]);
      v = own.values[index(v)];
    }
    std::vector<TensorType> types;
    std::vector<std::string> names;
    for (const ValueId v : node.outputs) {
      types.push_back(flat.type(v));
      names.push_back(flat.value(v).name);
    }
    builder_.set_loc(node.loc);
    std::vector<ValueId> results, found(node.outputs.size(), kNone);
    if (!none(given) && node.op->kind == OpKind::kIf) {
      add_if(copy, given, results, found);
    } else if (!none(given) && node.op->kind == OpKind::kLoop) {
      add_loop(copy, given, results, found);
    } else {
      results = graph.node(graph.add_node(std::move(copy), types, names)).outputs;
      if (!none(given)) found = results_of(Node(*graph.producer(results[0])), given);
    }
    for (size_t i = 0; i < results.size(); ++i) {
      own.values[index(node.outputs[i])] = results[i];
      own.tangents[index(node.outputs[i])] = found[i];
    }
  }
  Values answer{std::vector<ValueId>(to_flat.size(), -1), std::vector<ValueId>(to_flat.size(), kNone)};
  for (size_t v = 0; v < to_flat.size(); ++v)
    if (to_flat[v] >= 0) {
      answer.values[v] = own.values[index(to_flat[v])];
      answer.tangents[v] = own.tangents[index(to_flat[v])];
    }
  return answer;
}

// The tangents of a node's results.
std::vector<ValueId> ForwardSweep::results_of(const Node& node, const std::vector<ValueId>& tangents) {
  Graph& graph = builder_.graph();
  std::vector<ValueId> found(node.outputs.size(), kNone), g(node.outputs.size(), kNone), wrt;
  for (size_t i = 0; i < g.size(); ++i)
    if (is_real(graph.type(node.outputs[i]).dtype)) wrt.push_back(g[i] = zeros(row_major(graph.type(node.outputs[i]))));
  if (wrt.empty()) return found;
  std::vector<bool> wanted;
  for (const ValueId tangent : tangents) wanted.push_back(tangent != kNone);
  const auto first = static_cast<NodeId>(graph.nodes().size());
  std::vector<ValueId> linear;
  try {
    Adjoint adjoint(builder_, ops_, node, g, wanted);
    const CompositeDef* composite = node.op->kind == OpKind::kComposite ? definition_of(graph, node, ops_) : nullptr;
    const auto& rule = composite ? composite->gradient : node.op->gradient;
    if (!rule) adjoint.fail("the operator has no rule for it", "operators with a gradient");
    linear = rule(adjoint);
  } catch (const NoGradientError& error) {
    refused_.push_back(error.diagnostic());
    return found;
  }
  const auto end = static_cast<NodeId>(graph.nodes().size());
  ReverseSweep sweep(builder_, ops_);
  for (size_t i = 0; i < linear.size(); ++i)
    if (wanted[i] && linear[i] != kNone) sweep.seed(linear[i], tangents[i]);
  sweep.run(wrt, first, end);
  refused_.insert(refused_.end(), sweep.refused().rbegin(), sweep.refused().rend());
  for (size_t i = 0; i < g.size(); ++i)
    if (g[i] != kNone) found[i] = sweep.gradient(g[i]);
  return found;
}

void ForwardSweep::add_if(const Node& node, const std::vector<ValueId>& tangents, std::vector<ValueId>& results,
                          std::vector<ValueId>& result_tangents) {
  std::vector<bool> has;
  for (size_t i = 1; i < tangents.size(); ++i) has.push_back(tangents[i] != kNone);
  std::vector<RegionWithTangents> regions;
  for (const GraphPtr& region : node.regions) regions.push_back(with_tangents(*region, has, ops_, refused_));
  const size_t count = node.regions[0]->outputs.size();
  std::vector<size_t> with;  // results that have a tangent in one of the regions
  for (size_t i = 0; i < count; ++i)
    for (size_t r = 0; r < 2; ++r)
      if (regions[r].map.tangents[index(node.regions[r]->outputs[i])] != kNone) {
        with.push_back(i);
        break;
      }
  std::vector<GraphPtr> made;
  for (size_t r = 0; r < 2; ++r) {
    const Graph& source = *node.regions[r];
    Graph& graph = *regions[r].graph;
    for (const ValueId v : source.outputs) graph.outputs.push_back(regions[r].map.values[index(v)]);
    GraphBuilder builder(graph);
    for (const size_t i : with) {
      const ValueId v = source.outputs[i], tangent = regions[r].map.tangents[index(v)];
      graph.outputs.push_back(tangent == kNone ? zeros_in(builder, ops_, row_major(source.type(v))) : tangent);
    }
    made.push_back(regions[r].graph);
  }
  std::vector<ValueId> operands = node.inputs;
  for (const ValueId tangent : tangents)
    if (tangent != kNone) operands.push_back(tangent);
  const std::vector<ValueId> all = builder_.add_multi(ops_.get("if"), operands, node.attrs, made, {});
  results.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count));
  for (size_t k = 0; k < with.size(); ++k) result_tangents[with[k]] = all[count + k];
}

void ForwardSweep::add_loop(const Node& node, const std::vector<ValueId>& tangents, std::vector<ValueId>& results,
                            std::vector<ValueId>& result_tangents) {
  const LoopParts parts = loop_parts(node);
  const Graph& body = *node.regions[0];
  // Which inputs of the body have tangents in some iteration.
  std::vector<bool> has(body.inputs.size(), false);
  for (size_t operand = parts.first_carried(); operand < node.inputs.size(); ++operand)
    has[operand - parts.first_carried() + parts.kFirstCarriedInput] = tangents[operand] != kNone;
  std::vector<bool> depends;
  for (bool changed = true; changed;) {
    changed = false;
    std::vector<ValueId> from;
    for (size_t i = 0; i < has.size(); ++i)
      if (has[i]) from.push_back(body.inputs[i]);
    depends = influenced(body, from, 0, static_cast<NodeId>(body.nodes().size()));
    for (size_t i = 0; i < parts.carried; ++i) {
      const size_t input = parts.kFirstCarriedInput + i;
      if (!has[input] && depends[index(body.outputs[parts.first_carried_result() + i])]) has[input] = changed = true;
    }
  }
  std::vector<size_t> carried, stacked;
  for (size_t i = 0; i < parts.carried; ++i)
    if (has[parts.kFirstCarriedInput + i]) carried.push_back(i);
  for (size_t i = 0; i < parts.stacked; ++i)
    if (depends[index(body.outputs[parts.first_stacked_result() + i])]) stacked.push_back(i);

  RegionWithTangents region = with_tangents(body, has, ops_, refused_);
  Graph& graph = *region.graph;
  GraphBuilder in_body(graph);
  const auto tangent_of = [&](ValueId v) {
    const ValueId tangent = region.map.tangents[index(v)];
    return tangent == kNone ? zeros_in(in_body, ops_, row_major(body.type(v))) : tangent;
  };
  // Inputs: those of each kind, then their tangents.
  std::vector<ValueId> inputs, given(graph.inputs.begin() + std::ssize(body.inputs), graph.inputs.end());
  std::vector<ValueId> operands(node.inputs.begin(),
                                node.inputs.begin() + static_cast<std::ptrdiff_t>(parts.first_carried()));
  inputs.push_back(graph.inputs[0]);
  std::vector<int64_t> scan_reversed = parts.scan_reversed, stack_reversed = parts.stack_reversed;
  size_t next = 0, num_scanned = parts.scanned;
  const auto add_kind = [&](size_t first, size_t count, bool is_carried, bool is_scanned) {
    const size_t operand = first - parts.kFirstCarriedInput + parts.first_carried();
    for (size_t i = 0; i < count; ++i) {
      inputs.push_back(graph.inputs[first + i]);
      operands.push_back(node.inputs[operand + i]);
    }
    for (size_t i = 0; i < count; ++i) {
      if (!has[first + i]) continue;
      inputs.push_back(given[next++]);
      const ValueId tangent = tangents[operand + i];
      operands.push_back(
          tangent == kNone && is_carried ? zeros(row_major(builder_.graph().type(node.inputs[operand + i]))) : tangent);
      if (!is_scanned) continue;
      ++num_scanned;
      scan_reversed.push_back(parts.scan_reversed[i]);
    }
  };
  add_kind(parts.kFirstCarriedInput, parts.carried, true, false);
  add_kind(parts.first_slice(), parts.scanned, false, true);
  add_kind(parts.first_invariant_input(), parts.invariants, false, false);
  graph.inputs = inputs;
  if (parts.has_condition) graph.outputs.push_back(region.map.values[index(body.outputs[0])]);
  for (size_t i = 0; i < parts.carried; ++i)
    graph.outputs.push_back(region.map.values[index(body.outputs[parts.first_carried_result() + i])]);
  for (const size_t i : carried) graph.outputs.push_back(tangent_of(body.outputs[parts.first_carried_result() + i]));
  for (size_t i = 0; i < parts.stacked; ++i)
    graph.outputs.push_back(region.map.values[index(body.outputs[parts.first_stacked_result() + i])]);
  for (const size_t i : stacked) {
    graph.outputs.push_back(tangent_of(body.outputs[parts.first_stacked_result() + i]));
    stack_reversed.push_back(parts.stack_reversed[i]);
  }
  Attrs attrs = node.attrs;
  attrs.set("num_carried", static_cast<int64_t>(parts.carried + carried.size()));
  attrs.set("num_scanned", static_cast<int64_t>(num_scanned));
  if (attrs.has("scan_reversed")) attrs.set("scan_reversed", scan_reversed);
  if (attrs.has("stack_reversed")) attrs.set("stack_reversed", stack_reversed);
  const std::vector<ValueId> all = builder_.add_multi(ops_.get("loop"), operands, attrs, {region.graph}, {});
  results.resize(node.outputs.size());
  for (size_t i = 0; i < parts.carried; ++i) results[i] = all[i];
  for (size_t k = 0; k < carried.size(); ++k) result_tangents[carried[k]] = all[parts.carried + k];
  const size_t first_stacked = parts.carried + carried.size();
  for (size_t i = 0; i < parts.stacked; ++i) results[parts.carried + i] = all[first_stacked + i];
  for (size_t k = 0; k < stacked.size(); ++k)
    result_tangents[parts.carried + stacked[k]] = all[first_stacked + parts.stacked + k];
}

}  // namespace tessera::inline autodiff
