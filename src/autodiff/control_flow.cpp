#include "autodiff/control_flow.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "arith/simplify.h"
#include "autodiff/reverse.h"
#include "graph/control_flow.h"
#include "graph/subgraph.h"
#include "ops/op_util.h"

namespace tessera::inline autodiff {
namespace {

size_t index(ValueId id) { return static_cast<size_t>(id); }

// `results`: places among the region's results whose gradients are given; `wanted`: places among its inputs.
Pullback pull_back(const Graph& region, const std::vector<size_t>& results, const std::vector<size_t>& wanted,
                   const SweepOptions& options, const OpTable& ops) {
  Pullback p;
  p.graph.name = region.name;
  GraphBuilder builder(p.graph);
  ReverseSweep sweep(builder, ops, options);
  for (const ValueId input : region.inputs) p.graph.add_input(region.value(input).name, region.type(input));
  std::vector<ValueId> seeded, inputs, wrt;
  for (const size_t result : results) seeded.push_back(region.outputs[result]);
  for (const size_t input : wanted) inputs.push_back(region.inputs[input]);
  p.values = sweep.copy(region, p.graph.inputs, seeded, inputs);
  for (const ValueId result : seeded) {
    TensorType type = region.type(result);
    type.layout = {};
    p.graph.add_input(region.value(result).name + ".gradient", type);
  }
  p.first_of_gradients = static_cast<NodeId>(p.graph.nodes().size());
  for (size_t i = 0; i < seeded.size(); ++i)
    sweep.seed(p.values[index(seeded[i])], p.graph.inputs[region.inputs.size() + i]);
  for (const size_t input : wanted) wrt.push_back(p.graph.inputs[input]);
  sweep.run(wrt, 0, p.first_of_gradients);
  for (const ValueId value : wrt) p.gradients.push_back(sweep.gradient(value));
  p.refused = sweep.refused();
  return p;
}

// A constant of zeros in the graph that `builder` adds to.
ValueId zeros(GraphBuilder& builder, const OpTable& ops, TensorType type) {
  Tensor zero(type.dtype, {});
  const ValueId scalar = builder.add(ops.get("constant"), {}, {{"value", std::make_shared<const Tensor>(std::move(zero))}});
  return type.shape.empty() ? scalar : builder.add(ops.get("broadcast"), {scalar}, {{"shape", type.shape}});
}

std::vector<size_t> places(size_t first, size_t count, const std::function<bool(size_t)>& holds) {
  std::vector<size_t> found;
  for (size_t i = first; i < first + count; ++i)
    if (holds(i)) found.push_back(i);
  return found;
}

// Which inputs the outputs need.
std::vector<bool> read_inputs(const Graph& graph) {
  std::vector<bool> read(graph.values().size(), false);
  for (const Node& node : graph.nodes())
    for (const ValueId input : node.inputs) read[index(input)] = true;
  for (const ValueId output : graph.outputs) read[index(output)] = true;
  return read;
}

// ---- loops ----

std::optional<Expr> trip_of(const Graph& graph, const Node& node, const LoopParts& parts) {
  if (parts.max_trip) return *parts.max_trip;
  if (parts.scanned > 0) return graph.type(node.inputs[parts.first_scanned()]).shape[0];
  if (!parts.counted || !is_constant_value(graph, node.inputs[0])) return std::nullopt;
  const int64_t count = graph.producer(node.inputs[0])->attrs.get<TensorPtr>("value")->get_int(0);
  return Expr(std::max<int64_t>(count, 0));
}

class LoopPlanner {
 public:
  LoopPlanner(const Graph& graph, const Node& loop, const std::vector<bool>& given, const std::vector<bool>& wanted,
              bool again, const SweepOptions& options, const OpTable& ops)
      : graph_(graph), node_(loop), given_(given), wanted_(wanted), again_(again), options_(options), ops_(ops),
        body_(*loop.regions[0]), parts_(loop_parts(loop)) {}

  LoopPlan run() {
    plan_.parts = parts_;
    plan_.forward = node_;
    const auto trip = trip_of(graph_, node_, parts_);
    if (!trip) {
      plan_.no_gradient = "nothing bounds the number of its iterations, whose values its gradient would keep";
      return std::move(plan_);
    }
    plan_.trip = *trip;
    find_live();
    plan_.stacked = places(0, parts_.stacked, [&](size_t i) { return given_[parts_.carried + i]; });
    plan_.slices = places(0, parts_.scanned, [&](size_t i) { return wanted_[parts_.first_scanned() + i]; });
    plan_.invariants = places(0, parts_.invariants, [&](size_t i) { return wanted_[parts_.first_invariant() + i]; });
    std::vector<size_t> results, inputs;
    for (const size_t i : plan_.live) results.push_back(parts_.first_carried_result() + i);
    for (const size_t i : plan_.stacked) results.push_back(parts_.first_stacked_result() + i);
    for (const size_t i : plan_.live) inputs.push_back(parts_.kFirstCarriedInput + i);
    for (const size_t i : plan_.slices) inputs.push_back(parts_.first_slice() + i);
    for (const size_t i : plan_.invariants) inputs.push_back(parts_.first_invariant_input() + i);
    plan_.pullback = pull_back(body_, results, inputs, options_, ops_);
    // What no iteration adds to has no sum.
    auto& gradients = plan_.pullback.gradients;
    for (size_t i = plan_.invariants.size(); i-- > 0;) {
      const auto at = gradients.begin() + std::ssize(plan_.live) + std::ssize(plan_.slices) + static_cast<std::ptrdiff_t>(i);
      if (*at != Adjoint::kNone) continue;
      gradients.erase(at);
      plan_.invariants.erase(plan_.invariants.begin() + static_cast<std::ptrdiff_t>(i));
    }
    choose_saved();
    extend();
    return std::move(plan_);
  }

 private:
  // A count that may be less than the bound.
  bool counts() const {
    if (!parts_.counted) return false;
    if (!is_constant_value(graph_, node_.inputs[0])) return true;
    return !equal_extents(plan_.trip, Expr(graph_.producer(node_.inputs[0])->attrs.get<TensorPtr>("value")->get_int(0)));
  }

  // Carried values whose gradients are neither known to be zero nor unwanted: a wanted operand influences them, and they
  // influence a result that has a gradient, in any number of iterations.
  void find_live() {
    std::vector<bool> from(parts_.carried), to(parts_.carried);
    const auto real = [&](size_t i) { return is_real(body_.type(body_.inputs[parts_.kFirstCarriedInput + i]).dtype); };
    for (size_t i = 0; i < parts_.carried; ++i) {
      from[i] = wanted_[parts_.first_carried() + i];
      to[i] = given_[i];
    }
    for (bool changed = true; changed;) {
      changed = false;
      std::vector<bool> depends(body_.values().size(), false), influences(body_.values().size(), false);
      for (size_t i = 0; i < parts_.carried; ++i) {
        depends[index(body_.inputs[parts_.kFirstCarriedInput + i])] = from[i];
        if (to[i]) influences[index(body_.outputs[parts_.first_carried_result() + i])] = true;
      }
      for (size_t i = 0; i < parts_.scanned; ++i)
        depends[index(body_.inputs[parts_.first_slice() + i])] = wanted_[parts_.first_scanned() + i];
      for (size_t i = 0; i < parts_.invariants; ++i)
        depends[index(body_.inputs[parts_.first_invariant_input() + i])] = wanted_[parts_.first_invariant() + i];
      for (size_t i = 0; i < parts_.stacked; ++i)
        if (given_[parts_.carried + i])
          influences[index(body_.outputs[parts_.first_stacked_result() + i])] = true;
      const auto& nodes = body_.nodes();
      for (const Node& node : nodes)
        if (std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) { return depends[index(v)]; }))
          for (const ValueId v : node.outputs) depends[index(v)] = is_real(body_.type(v).dtype);
      for (size_t n = nodes.size(); n-- > 0;)
        if (std::any_of(nodes[n].outputs.begin(), nodes[n].outputs.end(), [&](ValueId v) { return influences[index(v)]; }))
          for (const ValueId v : nodes[n].inputs) influences[index(v)] = true;
      for (size_t i = 0; i < parts_.carried; ++i) {
        if (!real(i)) continue;
        if (!from[i] && depends[index(body_.outputs[parts_.first_carried_result() + i])]) from[i] = changed = true;
        if (!to[i] && influences[index(body_.inputs[parts_.kFirstCarriedInput + i])]) to[i] = changed = true;
      }
    }
    plan_.live = places(0, parts_.carried, [&](size_t i) { return from[i] && to[i] && real(i); });
  }

  bool is_carried(size_t input) const { return input >= parts_.kFirstCarriedInput && input < parts_.first_slice(); }

  // What the loop backwards reads, and what it computes again.
  void choose_saved() {
    const Graph& p = plan_.pullback.graph;
    // What each iteration computes alike is no result of it.
    std::vector<bool> varies(p.values().size(), false);
    for (size_t i = 0; i < parts_.first_invariant_input(); ++i) varies[index(p.inputs[i])] = true;
    for (const Node& node : p.nodes())
      if (std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) { return varies[index(v)]; }))
        for (const ValueId v : node.outputs) varies[index(v)] = true;
    std::vector<bool> needed(p.values().size(), false);
    for (const ValueId gradient : plan_.pullback.gradients)
      if (gradient != Adjoint::kNone) needed[index(gradient)] = true;
    for (auto id = static_cast<NodeId>(p.nodes().size()); id-- > 0;) {
      const Node& node = p.node(id);
      if (std::none_of(node.outputs.begin(), node.outputs.end(), [&](ValueId v) { return needed[index(v)]; })) continue;
      const bool keep = !again_ && id < plan_.pullback.first_of_gradients && !is_cheap_again(node) && varies[index(node.outputs[0])];
      if (keep) {
        for (const ValueId v : node.outputs)
          if (needed[index(v)]) plan_.saved.push_back(v);
        continue;
      }
      plan_.again.push_back(id);
      for (const ValueId v : node.inputs) needed[index(v)] = true;
    }
    std::reverse(plan_.again.begin(), plan_.again.end());
    for (size_t i = 0; i < body_.inputs.size(); ++i) {
      if (!needed[index(p.inputs[i])]) continue;
      plan_.used_inputs.push_back(i);
      if (is_carried(i)) plan_.saved.push_back(p.inputs[i]);
    }
  }

  // The loop with further stacked results: what is saved, and whether an iteration ran.
  void extend() {
    const Graph& p = plan_.pullback.graph;
    std::vector<ValueId> outputs;
    for (const ValueId output : body_.outputs) outputs.push_back(plan_.pullback.values[index(output)]);
    size_t next = node_.outputs.size();
    for (const ValueId v : plan_.saved) {
      // A value that is stacked already is not stacked again.
      size_t k = 0;
      while (k < parts_.stacked && outputs[parts_.first_stacked_result() + k] != v) ++k;
      if (k < parts_.stacked) {
        plan_.stacks.push_back({parts_.carried + k, parts_.stack_reversed[k] != 0});
        continue;
      }
      plan_.stacks.push_back({next++, false});
      outputs.push_back(v);
      plan_.added_names.push_back(p.value(v).name + ".kept");
    }
    auto body = std::make_shared<Graph>(
        needed_part(p, {p.inputs.begin(), p.inputs.begin() + std::ssize(body_.inputs)}, outputs));
    if (parts_.has_condition || counts()) {
      Tensor yes(DType::kBool, {});
      yes.set_int(0, 1);
      GraphBuilder builder(*body);
      body->outputs.push_back(
          builder.add(ops_.get("constant"), {}, {{"value", std::make_shared<const Tensor>(std::move(yes))}}, "ran"));
      plan_.added_names.push_back("ran");
      plan_.ran = static_cast<int>(next);
    }
    for (size_t i = body_.outputs.size(); i < body->outputs.size(); ++i) {
      TensorType type = body->type(body->outputs[i]);
      type.layout = {};
      type.shape.insert(type.shape.begin(), plan_.trip);
      plan_.added_types.push_back(type);
    }
    std::vector<int64_t> reversed = parts_.stack_reversed;
    reversed.resize(body->outputs.size() - parts_.first_stacked_result(), 0);
    plan_.forward.regions = {body};
    if (!parts_.max_trip && parts_.scanned == 0) plan_.forward.attrs.set("max_trip", Shape{plan_.trip});
    if (node_.attrs.has("stack_reversed")) plan_.forward.attrs.set("stack_reversed", reversed);
  }

  const Graph& graph_;
  const Node& node_;
  const std::vector<bool>&given_, &wanted_;
  const bool again_;
  const SweepOptions& options_;
  const OpTable& ops_;
  const Graph& body_;
  const LoopParts parts_;
  LoopPlan plan_;
};

// Adds the loop backwards.
class LoopGradient {
 public:
  LoopGradient(Adjoint& a, const LoopPlan& plan)
      : a_(a), graph_(a.builder().graph()), node_(a.node()), plan_(plan), parts_(plan.parts) {}

  std::vector<ValueId> run() {
    const Graph& p = plan_.pullback.graph;
    const OpTable& ops = a_.ops();
    const Graph& region = *node_.regions[0];  // inputs as before
    Graph body;
    body.name = region.name + ".backward";
    GraphBuilder builder(body);
    std::vector<ValueId> map(p.values().size(), -1), operands;
    std::vector<int64_t> scan_reversed, stack_reversed;
    const auto scan = [&](ValueId operand, bool is_reversed, const std::string& name) {
      TensorType type = graph_.type(operand);
      type.layout = {};
      type.shape.erase(type.shape.begin());
      scanned_.push_back(operand);
      scan_reversed.push_back(is_reversed ? 0 : 1);
      return body.add_input(name, type);
    };
    const ValueId number = body.add_input("i", {DType::kI64, {}, {}});
    std::vector<ValueId> carried, sums;
    for (size_t i = 0; i < plan_.live.size(); ++i) {
      const ValueId given = p.inputs[region.inputs.size() + i];
      carried.push_back(body.add_input(p.value(given).name, p.type(given)));
      map[index(given)] = carried.back();
      operands.push_back(gradient_of(plan_.live[i]));
    }
    for (const size_t i : plan_.invariants) {
      const ValueId operand = node_.inputs[parts_.first_invariant() + i];
      TensorType type = graph_.type(operand);
      type.layout = {};
      sums.push_back(body.add_input("sum", type));
      operands.push_back(a_.zeros_like(operand));
    }
    for (size_t i = 0; i < plan_.stacked.size(); ++i) {
      const ValueId given = p.inputs[region.inputs.size() + plan_.live.size() + i];
      map[index(given)] = scan(gradient_of(parts_.carried + plan_.stacked[i]), parts_.stack_reversed[plan_.stacked[i]] != 0, p.value(given).name);
    }
    for (size_t i = 0; i < plan_.saved.size(); ++i)
      map[index(plan_.saved[i])] = scan(node_.outputs[plan_.stacks[i].first], plan_.stacks[i].second, p.value(plan_.saved[i]).name);
    for (const size_t i : plan_.used_inputs)
      if (i >= parts_.first_slice() && i < parts_.first_invariant_input()) {
        const size_t k = i - parts_.first_slice();
        map[index(p.inputs[i])] = scan(node_.inputs[parts_.first_scanned() + k], parts_.scan_reversed[k] != 0, p.value(p.inputs[i]).name);
      }
    const ValueId ran = plan_.ran < 0 ? Adjoint::kNone : scan(node_.outputs[static_cast<size_t>(plan_.ran)], false, "ran");
    std::vector<ValueId> same;
    for (const size_t i : plan_.used_inputs)
      if (i >= parts_.first_invariant_input()) {
        map[index(p.inputs[i])] = body.add_input(p.value(p.inputs[i]).name, p.type(p.inputs[i]));
        same.push_back(node_.inputs[parts_.first_invariant() + i - parts_.first_invariant_input()]);
      }
    if (std::find(plan_.used_inputs.begin(), plan_.used_inputs.end(), size_t{0}) != plan_.used_inputs.end()) {
      // Iteration j backwards is iteration trip - 1 - j.
      Node none;
      none.op = &ops.get("sub");
      Adjoint in_body(builder, ops, none, {}, {});
      map[index(p.inputs[0])] = in_body.sub(in_body.integer(normalize_size(plan_.trip - Expr(1))), number);
    }
    for (const NodeId id : plan_.again) {
      Node copy = p.node(id);
      for (ValueId& input : copy.inputs) input = map[index(input)];
      std::vector<TensorType> types;
      std::vector<std::string> names;
      for (const ValueId v : p.node(id).outputs) {
        types.push_back(p.type(v));
        names.push_back(p.value(v).name);
      }
      const std::vector<ValueId> made = body.node(body.add_node(std::move(copy), std::move(types), std::move(names))).outputs;
      for (size_t k = 0; k < made.size(); ++k)
        if (map[index(p.node(id).outputs[k])] == -1) map[index(p.node(id).outputs[k])] = made[k];
    }
    builder.set_loc(node_.loc);
    const auto found = [&](size_t i, const TensorType& type) {
      const ValueId gradient = plan_.pullback.gradients[i];
      return gradient == Adjoint::kNone ? zeros(builder, ops, type) : map[index(gradient)];
    };
    for (size_t i = 0; i < plan_.live.size(); ++i) body.outputs.push_back(found(i, body.type(carried[i])));
    for (size_t i = 0; i < sums.size(); ++i)
      body.outputs.push_back(builder.add(
          ops.get("add"), {sums[i], map[index(plan_.pullback.gradients[plan_.live.size() + plan_.slices.size() + i])]}));
    for (size_t i = 0; i < plan_.slices.size(); ++i) {
      TensorType type = region.type(region.inputs[parts_.first_slice() + plan_.slices[i]]);
      type.layout = {};
      body.outputs.push_back(found(plan_.live.size() + i, type));
      stack_reversed.push_back(parts_.scan_reversed[plan_.slices[i]] != 0 ? 0 : 1);
    }
    if (ran != Adjoint::kNone) body = only_if(std::move(body), ran, plan_.live.size() + sums.size());
    operands.insert(operands.end(), scanned_.begin(), scanned_.end());
    operands.insert(operands.end(), same.begin(), same.end());
    Attrs attrs{{"max_trip", Shape{plan_.trip}},
                {"num_carried", static_cast<int64_t>(plan_.live.size() + sums.size())},
                {"num_scanned", std::ssize(scanned_)}};
    if (!scanned_.empty()) attrs.set("scan_reversed", scan_reversed);
    if (!plan_.slices.empty()) attrs.set("stack_reversed", stack_reversed);
    std::vector<ValueId> answers(node_.inputs.size(), Adjoint::kNone);
    if (body.outputs.empty()) return answers;
    const std::vector<ValueId> results = a_.builder().add_multi(
        ops.get("loop"), operands, attrs, {std::make_shared<const Graph>(std::move(body))}, {});
    size_t next = 0;
    for (const size_t i : plan_.live) answers[parts_.first_carried() + i] = results[next++];
    for (const size_t i : plan_.invariants) answers[parts_.first_invariant() + i] = results[next++];
    for (const size_t i : plan_.slices) answers[parts_.first_scanned() + i] = results[next++];
    return answers;
  }

  ValueId gradient_of(size_t result) {
    const ValueId gradient = a_.gradient(result);
    return gradient == Adjoint::kNone ? a_.zeros_like(node_.outputs[result]) : gradient;
  }

  // `step` where an iteration ran; else what is carried stays, and slices have zeros. `ran`: an input of `step`.
  Graph only_if(Graph step, ValueId ran, size_t num_carried) {
    const OpTable& ops = a_.ops();
    Graph other, body;
    other.name = step.name + ".passed_over";
    body.name = step.name;
    for (const ValueId input : step.inputs) {
      other.add_input(step.value(input).name, step.type(input));
      body.add_input(step.value(input).name, step.type(input));
    }
    GraphBuilder in_other(other), in_body(body);
    for (size_t i = 0; i < step.outputs.size(); ++i)
      other.outputs.push_back(i < num_carried ? other.inputs[1 + i] : zeros(in_other, ops, step.type(step.outputs[i])));
    step.name += ".ran";
    std::vector<ValueId> operands = {body.inputs[index(ran)]};  // inputs are the first values of a graph
    operands.insert(operands.end(), body.inputs.begin(), body.inputs.end());
    in_body.set_loc(node_.loc);
    body.outputs = in_body.add_multi(ops.get("if"), operands, {},
                                     {std::make_shared<const Graph>(std::move(step)), std::make_shared<const Graph>(std::move(other))}, {});
    return body;
  }

  Adjoint& a_;
  const Graph& graph_;
  const Node& node_;
  const LoopPlan& plan_;
  const LoopParts& parts_;
  std::vector<ValueId> scanned_;
};

}  // namespace

bool is_cheap_again(const Node& node) {
  static constexpr std::string_view kCheap[] = {
      "abs",         "add",       "bitcast",     "bitwise_and", "bitwise_not", "bitwise_or",  "bitwise_xor", "broadcast",
      "cast",        "ceil",      "concat",      "constant",    "eq",          "floor",       "ge",          "gt",
      "iota",        "is_inf",    "is_nan",      "le",          "logical_and", "logical_not", "logical_or",  "logical_xor",
      "lt",          "max",       "min",         "mul",         "ne",          "neg",         "pad",         "reshape",
      "round",       "select",    "shift_left",  "shift_right", "sign",        "sizes",       "slice",       "sub",
      "transpose"};
  return std::find(std::begin(kCheap), std::end(kCheap), node.op->name) != std::end(kCheap) ||
         (node.op->kind == OpKind::kComposite && node.attrs.get<std::string>("name") == "relu");
}

std::vector<ValueId> if_gradient(Adjoint& a, const Node& node, const SweepOptions& options,
                                 std::vector<Diagnostic>& refused) {
  const std::vector<size_t> results =
      places(0, node.outputs.size(), [&](size_t i) { return a.gradient(i) != Adjoint::kNone; });
  const std::vector<size_t> wanted = places(0, node.inputs.size() - 1, [&](size_t i) { return a.wants(i + 1); });
  std::vector<Graph> regions;
  std::vector<ValueId> operands(node.inputs.begin() + 1, node.inputs.end());
  for (const size_t result : results) operands.push_back(a.gradient(result));
  std::vector<bool> used(operands.size(), false);
  for (const GraphPtr& region : node.regions) {
    Pullback p = pull_back(*region, results, wanted, options, a.ops());
    refused.insert(refused.end(), p.refused.begin(), p.refused.end());
    GraphBuilder builder(p.graph);
    for (size_t i = 0; i < wanted.size(); ++i) {
      const ValueId found = p.gradients[i];
      p.graph.outputs.push_back(found == Adjoint::kNone ? zeros(builder, a.ops(), p.graph.type(p.graph.inputs[wanted[i]])) : found);
    }
    regions.push_back(needed_part(p.graph));
    const std::vector<bool> read = read_inputs(regions.back());
    for (size_t i = 0; i < used.size(); ++i) used[i] = used[i] || read[index(regions.back().inputs[i])];
  }
  std::vector<GraphPtr> pruned;
  for (Graph& region : regions) {
    std::vector<ValueId> inputs;
    for (size_t i = 0; i < used.size(); ++i)
      if (used[i]) inputs.push_back(region.inputs[i]);
    pruned.push_back(std::make_shared<const Graph>(needed_part(region, inputs, region.outputs)));
  }
  std::vector<ValueId> given = {node.inputs[0]};
  for (size_t i = 0; i < used.size(); ++i)
    if (used[i]) given.push_back(operands[i]);
  const std::vector<ValueId> found = a.builder().add_multi(a.ops().get("if"), given, {}, pruned, {});
  std::vector<ValueId> answers(node.inputs.size(), Adjoint::kNone);
  for (size_t i = 0; i < wanted.size(); ++i) answers[wanted[i] + 1] = found[i];
  return answers;
}

LoopPlan plan_loop(const Graph& graph, const Node& loop, const std::vector<bool>& given, const std::vector<bool>& wanted,
                   bool again, const SweepOptions& options, const OpTable& ops) {
  return LoopPlanner(graph, loop, given, wanted, again, options, ops).run();
}

std::vector<ValueId> loop_gradient(Adjoint& a, const LoopPlan& plan, std::vector<Diagnostic>& refused) {
  if (!plan.no_gradient.empty())
    a.fail(plan.no_gradient, "max_trip, a constant count, or operands that are scanned");
  refused.insert(refused.end(), plan.pullback.refused.begin(), plan.pullback.refused.end());
  return LoopGradient(a, plan).run();
}

}  // namespace tessera::inline autodiff
