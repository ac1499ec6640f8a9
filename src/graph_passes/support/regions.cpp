#include "graph_passes/support/regions.h"

#include <algorithm>
#include <limits>

#include "graph_passes/support/graph_util.h"

namespace tessera::inline graph_passes {
namespace {

constexpr int64_t kMostZeroBytes = 64 << 10;

// Whether each input of the region is needed for one of the `outputs`.
std::vector<bool> live_inputs(const Graph& region, const std::vector<ValueId>& outputs) {
  std::vector<bool> needed(region.values().size(), false);
  for (const ValueId output : outputs) needed[static_cast<size_t>(output)] = true;
  for (size_t i = region.nodes().size(); i-- > 0;) {
    const Node& node = region.nodes()[i];
    if (std::none_of(node.outputs.begin(), node.outputs.end(),
                     [&](ValueId v) { return needed[static_cast<size_t>(v)]; }))
      continue;
    for (const ValueId input : node.inputs) needed[static_cast<size_t>(input)] = true;
  }
  std::vector<bool> live;
  for (const ValueId input : region.inputs) live.push_back(needed[static_cast<size_t>(input)]);
  return live;
}

// What becomes of one input of a region.
struct InputChange {
  bool keep = true;
  const Node* constant = nullptr;  // of an input that goes: its value; null: nothing that stays needs it
};

// The region with other inputs, and those of its outputs at the places `outputs`.
GraphPtr rebuild(const Graph& region, const std::vector<InputChange>& inputs, const std::vector<size_t>& outputs) {
  auto result = std::make_shared<Graph>();
  result->copy_header(region);
  std::vector<ValueId> map(region.values().size(), -1);
  std::vector<bool> needed(region.values().size(), false);
  for (const size_t output : outputs) needed[static_cast<size_t>(region.outputs[output])] = true;
  std::vector<bool> keep(region.nodes().size(), false);
  for (size_t i = keep.size(); i-- > 0;) {
    const Node& node = region.nodes()[i];
    keep[i] = std::any_of(node.outputs.begin(), node.outputs.end(),
                          [&](ValueId v) { return needed[static_cast<size_t>(v)]; });
    if (!keep[i]) continue;
    for (const ValueId input : node.inputs) needed[static_cast<size_t>(input)] = true;
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ValueId input = region.inputs[i];
    if (inputs[i].keep)
      map[static_cast<size_t>(input)] = result->add_input(region.value(input).name, region.type(input));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ValueId input = region.inputs[i];
    if (inputs[i].keep || !inputs[i].constant || !needed[static_cast<size_t>(input)]) continue;
    Node constant = *inputs[i].constant;
    map[static_cast<size_t>(input)] =
        result->node(result->add_node(std::move(constant), {region.type(input)}, {region.value(input).name}))
            .outputs[0];
  }
  for (size_t i = 0; i < keep.size(); ++i) {
    if (!keep[i]) continue;
    Node node = region.nodes()[i];
    std::vector<TensorType> types;
    std::vector<std::string> names;
    for (ValueId& input : node.inputs) input = map[static_cast<size_t>(input)];
    for (const ValueId output : node.outputs) {
      types.push_back(region.type(output));
      names.push_back(region.value(output).name);
    }
    const std::vector<ValueId> old = node.outputs;
    const auto made = result->node(result->add_node(std::move(node), std::move(types), std::move(names))).outputs;
    for (size_t k = 0; k < old.size(); ++k) map[static_cast<size_t>(old[k])] = made[k];
  }
  for (const size_t output : outputs) result->outputs.push_back(map[static_cast<size_t>(region.outputs[output])]);
  return result;
}

std::vector<ValueId> pick(const std::vector<ValueId>& values, const std::vector<size_t>& places) {
  std::vector<ValueId> picked;
  for (const size_t place : places) picked.push_back(values[place]);
  return picked;
}

std::vector<size_t> all_places(size_t count) {
  std::vector<size_t> places(count);
  for (size_t i = 0; i < count; ++i) places[i] = i;
  return places;
}

void set_flags(Attrs& attrs, const char* name, const std::vector<int64_t>& flags) {
  if (std::any_of(flags.begin(), flags.end(), [](int64_t f) { return f != 0; })) attrs.set(name, flags);
  else attrs.erase(name);
}

TrimmedNode trim_if(const Node& node, const std::vector<bool>& used) {
  TrimmedNode result{node, {}};
  for (size_t i = 0; i < used.size(); ++i)
    if (used[i]) result.results.push_back(i);
  std::vector<InputChange> changes(node.inputs.size() - 1, {false});
  for (const GraphPtr& region : node.regions) {
    const std::vector<bool> live = live_inputs(*region, pick(region->outputs, result.results));
    for (size_t i = 0; i < changes.size(); ++i) changes[i].keep = changes[i].keep || live[i];
  }
  result.node.inputs = {node.inputs[0]};
  for (size_t i = 0; i < changes.size(); ++i)
    if (changes[i].keep) result.node.inputs.push_back(node.inputs[i + 1]);
  if (result.node.inputs.size() == node.inputs.size() && result.results.size() == used.size()) return result;
  for (GraphPtr& region : result.node.regions) region = rebuild(*region, changes, result.results);
  return result;
}

TrimmedNode trim_loop(const Node& node, const std::vector<bool>& used) {
  const LoopParts parts = loop_parts(node);
  const Graph& body = *node.regions[0];
  TrimmedNode result{node, all_places(parts.carried)};
  std::vector<size_t> outputs = all_places(parts.first_stacked_result());
  std::vector<int64_t> stack_reversed, scan_reversed;
  for (size_t i = 0; i < parts.stacked; ++i) {
    if (!used[parts.carried + i]) continue;
    result.results.push_back(parts.carried + i);
    outputs.push_back(parts.first_stacked_result() + i);
    stack_reversed.push_back(parts.stack_reversed[i]);
  }
  const std::vector<bool> live = live_inputs(body, pick(body.outputs, outputs));
  std::vector<InputChange> changes(body.inputs.size());
  for (size_t i = 0; i < parts.invariants; ++i)
    changes[parts.first_invariant_input() + i].keep = live[parts.first_invariant_input() + i];
  // One scanned operand stays where nothing else says how many slices there are.
  size_t scanned = 0;
  for (size_t i = 0; i < parts.scanned; ++i) {
    const bool last_bound = !parts.max_trip && scanned == 0 && i + 1 == parts.scanned;
    changes[parts.first_slice() + i].keep = live[parts.first_slice() + i] || last_bound;
    if (!changes[parts.first_slice() + i].keep) continue;
    ++scanned;
    scan_reversed.push_back(parts.scan_reversed[i]);
  }
  result.node.inputs.resize(parts.first_scanned());
  for (size_t i = parts.first_scanned(); i < node.inputs.size(); ++i)
    if (changes[parts.first_slice() + i - parts.first_scanned()].keep) result.node.inputs.push_back(node.inputs[i]);
  if (result.node.inputs.size() == node.inputs.size() && outputs.size() == body.outputs.size()) return result;
  if (scanned != parts.scanned) result.node.attrs.set("num_scanned", static_cast<int64_t>(scanned));
  set_flags(result.node.attrs, "scan_reversed", scan_reversed);
  set_flags(result.node.attrs, "stack_reversed", stack_reversed);
  result.node.regions[0] = rebuild(body, changes, outputs);
  return result;
}

const Node* constant_node(const Graph& graph, ValueId value) {
  const Node* producer = graph.producer(value);
  return producer && producer->op->kind == OpKind::kConstant ? producer : nullptr;
}

// The integer or truth value of a constant of one element.
std::optional<int64_t> known_number(const Graph& graph, ValueId value) {
  const Tensor* tensor = constant_value(graph, value);
  if (!tensor || tensor->num_elements() != 1) return std::nullopt;
  return tensor->get_int(0);
}

// A count that is known becomes an attribute; one that cannot end the loop goes.
bool take_count(const Graph& target, Node& node) {
  const LoopParts parts = loop_parts(node);
  const auto count = parts.counted ? known_number(target, node.inputs[0]) : std::nullopt;
  if (!count) return false;
  std::optional<Expr> limit = parts.max_trip;
  if (parts.scanned > 0) limit = target.type(node.inputs[parts.first_scanned()]).shape[0];
  const auto trip = limit ? as_int(*limit) : std::nullopt;
  if (limit && !trip) return false;
  if (!trip || *count < *trip) {
    if (parts.stacked > 0 || parts.scanned > 0) return false;
    node.attrs.set("max_trip", std::vector<int64_t>{std::max<int64_t>(*count, 0)});
  }
  node.attrs.erase("counted");
  node.inputs.erase(node.inputs.begin());
  return true;
}

bool drop_true_condition(const Graph& target, Node& node) {
  const LoopParts parts = loop_parts(node);
  if (!parts.has_condition || (!parts.counted && !parts.max_trip && parts.scanned == 0)) return false;
  const Graph& body = *node.regions[0];
  if (known_number(target, node.inputs[parts.condition()]) != 1 || known_number(body, body.outputs[0]) != 1)
    return false;
  std::vector<size_t> outputs = all_places(body.outputs.size());
  outputs.erase(outputs.begin());
  node.attrs.erase("has_condition");
  node.inputs.erase(node.inputs.begin() + static_cast<ptrdiff_t>(parts.condition()));
  node.regions[0] = rebuild(body, std::vector<InputChange>(body.inputs.size()), outputs);
  return true;
}

// Constants among the operands from `first` on, which are the inputs of the regions from `first_input` on.
bool take_constants(const Graph& target, Node& node, size_t first, size_t first_input) {
  std::vector<InputChange> changes(node.regions[0]->inputs.size());
  std::vector<ValueId> inputs(node.inputs.begin(), node.inputs.begin() + static_cast<ptrdiff_t>(first));
  for (size_t i = first; i < node.inputs.size(); ++i) {
    if (const Node* constant = constant_node(target, node.inputs[i]))
      changes[first_input + i - first] = {false, constant};
    else inputs.push_back(node.inputs[i]);
  }
  if (inputs.size() == node.inputs.size()) return false;
  node.inputs = std::move(inputs);
  for (GraphPtr& region : node.regions) region = rebuild(*region, changes, all_places(region->outputs.size()));
  return true;
}

// A result that is an operand as it is could not take over the name of a graph output: it becomes a node.
void name_results(Graph& target, const OpTable& ops, const Graph& source, const Node& node,
                  const std::vector<ValueId>& inputs, std::vector<ValueId>& results) {
  for (size_t i = 0; i < results.size(); ++i) {
    const bool operand = std::find(inputs.begin(), inputs.end(), results[i]) != inputs.end();
    const bool repeated = std::find(results.begin(), results.begin() + static_cast<ptrdiff_t>(i), results[i]) !=
                          results.begin() + static_cast<ptrdiff_t>(i);
    if (!operand && !repeated) continue;
    Node view;
    view.op = &ops.get("reshape");
    view.inputs = {results[i]};
    view.attrs.set("shape", target.type(results[i]).shape);
    view.loc = node.loc;
    const TensorType type = target.type(results[i]);
    results[i] = target.node(target.add_node(std::move(view), {type}, {source.value(node.outputs[i]).name})).outputs[0];
  }
}

}  // namespace

TrimmedNode trim(const Node& node, const std::vector<bool>& used) {
  if (node.op->kind == OpKind::kIf) return trim_if(node, used);
  if (node.op->kind == OpKind::kLoop) return trim_loop(node, used);
  return {node, all_places(node.outputs.size())};
}

std::optional<Node> with_constants_inside(const Graph& target, const Node& node, const std::vector<ValueId>& inputs) {
  Node result = node;
  result.inputs = inputs;
  bool changed = false;
  if (node.op->kind == OpKind::kIf) {
    changed = take_constants(target, result, first_captured(*node.op), 0);
  } else if (node.op->kind == OpKind::kLoop) {
    changed = take_count(target, result);
    changed = drop_true_condition(target, result) || changed;
    const LoopParts parts = loop_parts(result);
    changed = take_constants(target, result, parts.first_invariant(), parts.first_invariant_input()) || changed;
  }
  if (!changed) return std::nullopt;
  return result;
}

std::vector<ValueId> fold_control_flow(Graph& target, const OpTable& ops, const Graph& source, const Node& node,
                                       const std::vector<ValueId>& inputs) {
  std::vector<ValueId> results;
  if (node.op->kind == OpKind::kIf) {
    const auto condition = known_number(target, inputs[0]);
    if (!condition) return {};
    const std::vector<ValueId> captured(inputs.begin() + 1, inputs.end());
    const Graph& taken = *node.regions[*condition != 0 ? 0 : 1];
    const size_t first = target.nodes().size();
    results = inline_region(target, taken, captured, source.value(node.outputs[0]).name, node.loc);
    for (size_t i = 0; i < taken.nodes().size(); ++i)
      if (!taken.nodes()[i].loc.empty()) target.node(static_cast<NodeId>(first + i)).loc = taken.nodes()[i].loc;
  } else if (node.op->kind == OpKind::kLoop) {
    const LoopParts parts = loop_parts(node);
    const auto number = [&](bool there, size_t operand) {
      return there ? known_number(target, inputs[operand]) : std::nullopt;
    };
    const bool none = (parts.max_trip && is_const_int(*parts.max_trip, 0)) ||
                      number(parts.counted, 0).value_or(1) <= 0 ||
                      number(parts.has_condition, parts.condition()).value_or(1) == 0 ||
                      (parts.scanned > 0 && is_const_int(target.type(inputs[parts.first_scanned()]).shape[0], 0));
    if (!none) return {};
    for (size_t i = parts.carried; i < node.outputs.size(); ++i) {
      const TensorType& type = source.type(node.outputs[i]);
      if (!type.is_static() || dtype_bytes(type.dtype, type.num_elements()) > kMostZeroBytes) return {};
    }
    for (size_t i = 0; i < parts.carried; ++i) results.push_back(inputs[parts.first_carried() + i]);
    for (size_t i = parts.carried; i < node.outputs.size(); ++i) {
      const TensorType& type = source.type(node.outputs[i]);
      results.push_back(
          add_constant(target, ops, Tensor(type.dtype, type.dims()), source.value(node.outputs[i]).name, node.loc));
    }
  }
  name_results(target, ops, source, node, inputs, results);
  return results;
}

}  // namespace tessera::inline graph_passes
