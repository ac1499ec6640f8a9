#include "autodiff/control_flow.h"

#include <algorithm>
#include <functional>
#include <map>
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
  const ValueId scalar =
      builder.add(ops.get("constant"), {}, {{"value", std::make_shared<const Tensor>(std::move(zero))}});
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
      : graph_(graph),
        node_(loop),
        given_(given),
        wanted_(wanted),
        again_(again),
        options_(options),
        ops_(ops),
        body_(*loop.regions[0]),
        parts_(loop_parts(loop)) {}

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
      const auto at =
          gradients.begin() + std::ssize(plan_.live) + std::ssize(plan_.slices) + static_cast<std::ptrdiff_t>(i);
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
    return !equal_extents(plan_.trip,
                          Expr(graph_.producer(node_.inputs[0])->attrs.get<TensorPtr>("value")->get_int(0)));
  }

  // Carried values whose gradients are neither known to be zero nor unwanted: a wanted operand influences them, and
  // they influence a result that has a gradient, in any number of iterations.
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
        if (given_[parts_.carried + i]) influences[index(body_.outputs[parts_.first_stacked_result() + i])] = true;
      const auto& nodes = body_.nodes();
      for (const Node& node : nodes)
        if (std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) { return depends[index(v)]; }))
          for (const ValueId v : node.outputs) depends[index(v)] = is_real(body_.type(v).dtype);
      for (size_t n = nodes.size(); n-- > 0;)
        if (std::any_of(nodes[n].outputs.begin(), nodes[n].outputs.end(),
                        [&](ValueId v) { return influences[index(v)]; }))
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
      const bool keep =
          !again_ && id < plan_.pullback.first_of_gradients && !is_cheap_again(node) && varies[index(node.outputs[0])];
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
//
// The gradient of what all iterations share is a sum over iterations. Where its terms are products a'b of matrices, the
// loop stacks a and b instead, if they are not stacked already, and the sum is one product behind the loop.
class LoopGradient {
 public:
  LoopGradient(Adjoint& a, const LoopPlan& plan)
      : a_(a),
        ops_(a.ops()),
        graph_(a.builder().graph()),
        node_(a.node()),
        plan_(plan),
        parts_(plan.parts),
        p_(plan.pullback.graph),
        region_(*node_.regions[0]),
        builder_(body_),
        map_(p_.values().size(), -1) {}

  std::vector<ValueId> run() {
    body_.name = region_.name + ".backward";
    split_sums();
    add_inputs();
    add_nodes();
    add_outputs();
    return add_loop();
  }

 private:
  // A value by iterations: a value of the graph, or a stacked result of the loop backwards.
  struct Rows {
    ValueId value = Adjoint::kNone;
    size_t stacked = 0;
  };
  // The sum of an invariant's gradient over iterations.
  struct Sum {
    size_t invariant;
    std::vector<ValueId> terms;                        // of the pullback: carried and added to
    std::vector<std::pair<ValueId, ValueId>> factors;  // a, b of products
    std::vector<std::pair<Rows, Rows>> rows;           // of these
  };

  // ---- which sums are carried ----

  void split_sums() {
    for (size_t i = 0; i < plan_.invariants.size(); ++i) {
      Sum sum{plan_.invariants[i], {}, {}, {}};
      const ValueId whole = plan_.pullback.gradients[plan_.live.size() + plan_.slices.size() + i];
      split(whole, sum);
      if (sum.factors.empty()) sum.terms = {whole};
      sums_.push_back(std::move(sum));
    }
  }

  void split(ValueId v, Sum& sum) const {
    const NodeId id = p_.value(v).producer;
    const Node* node = id >= plan_.pullback.first_of_gradients ? &p_.node(id) : nullptr;
    if (node && node->op->name == "add" && same_shape(p_.type(node->inputs[0]).shape, p_.type(node->inputs[1]).shape)) {
      split(node->inputs[0], sum);
      split(node->inputs[1], sum);
    } else if (node && node->op->name == "matmul" && pays(*node)) {
      sum.factors.emplace_back(node->inputs[0], node->inputs[1]);
    } else {
      sum.terms.push_back(v);
    }
  }

  // A product a'b whose factors are no larger than twice the result, which would be read and written.
  bool pays(const Node& product) const {
    const TensorType &a = p_.type(product.inputs[0]), &b = p_.type(product.inputs[1]);
    if (a.rank() != 2 || b.rank() != 2 || !product.attrs.get_or<bool>("transpose_a", false) ||
        product.attrs.get_or<bool>("transpose_b", false))
      return false;
    if (!a.is_static() || !b.is_static()) return true;
    return a.num_elements() + b.num_elements() <= 2 * a.dims()[1] * b.dims()[1];
  }

  // ---- the body ----

  ValueId scan(ValueId operand, bool is_reversed, const std::string& name) {
    TensorType type = graph_.type(operand);
    type.layout = {};
    type.shape.erase(type.shape.begin());
    scanned_.push_back(operand);
    scan_reversed_.push_back(is_reversed ? 0 : 1);
    return body_.add_input(name, type);
  }
  // Rows of `v`, by iterations of the loop forwards, that are there already. REQUIRES: those of iterations that did not
  // run are zeros.
  void remember(ValueId v, ValueId rows, bool is_reversed) {
    if (!is_reversed) rows_.emplace(v, Rows{rows, 0});
  }

  void add_inputs() {
    number_ = body_.add_input("i", {DType::kI64, {}, {}});
    for (size_t i = 0; i < plan_.live.size(); ++i) {
      const ValueId given = p_.inputs[region_.inputs.size() + i];
      map_[index(given)] = body_.add_input(p_.value(given).name, p_.type(given));
      operands_.push_back(gradient_of(plan_.live[i]));
    }
    for (const Sum& sum : sums_) {
      if (sum.terms.empty()) continue;
      TensorType type = graph_.type(node_.inputs[parts_.first_invariant() + sum.invariant]);
      type.layout = {};
      carried_sums_.push_back(body_.add_input("sum", type));
      operands_.push_back(a_.filled(0, type.dtype, type.shape));
    }
    for (size_t i = 0; i < plan_.stacked.size(); ++i) {
      const ValueId given = p_.inputs[region_.inputs.size() + plan_.live.size() + i],
                    rows = gradient_of(parts_.carried + plan_.stacked[i]);
      const bool is_reversed = parts_.stack_reversed[plan_.stacked[i]] != 0;
      map_[index(given)] = scan(rows, is_reversed, p_.value(given).name);
      if (plan_.ran < 0) remember(given, rows, is_reversed);
    }
    for (size_t i = 0; i < plan_.saved.size(); ++i) {
      const auto& [result, is_reversed] = plan_.stacks[i];
      map_[index(plan_.saved[i])] = scan(node_.outputs[result], is_reversed, p_.value(plan_.saved[i]).name);
      remember(plan_.saved[i], node_.outputs[result], is_reversed);
    }
    for (const size_t i : plan_.used_inputs)
      if (i >= parts_.first_slice() && i < parts_.first_invariant_input()) {
        const size_t k = i - parts_.first_slice();
        const ValueId rows = node_.inputs[parts_.first_scanned() + k];
        map_[index(p_.inputs[i])] = scan(rows, parts_.scan_reversed[k] != 0, p_.value(p_.inputs[i]).name);
        if (plan_.ran < 0) remember(p_.inputs[i], rows, parts_.scan_reversed[k] != 0);
      }
    if (plan_.ran >= 0) ran_ = scan(node_.outputs[static_cast<size_t>(plan_.ran)], false, "ran");
    for (const size_t i : plan_.used_inputs)
      if (i >= parts_.first_invariant_input()) {
        map_[index(p_.inputs[i])] = body_.add_input(p_.value(p_.inputs[i]).name, p_.type(p_.inputs[i]));
        same_.push_back(node_.inputs[parts_.first_invariant() + i - parts_.first_invariant_input()]);
      }
  }

  void add_nodes() {
    if (std::find(plan_.used_inputs.begin(), plan_.used_inputs.end(), size_t{0}) != plan_.used_inputs.end()) {
      // Iteration j backwards is iteration trip - 1 - j.
      Node none;
      none.op = &ops_.get("sub");
      Adjoint in_body(builder_, ops_, none, {}, {});
      map_[index(p_.inputs[0])] = in_body.sub(in_body.integer(normalize_size(plan_.trip - Expr(1))), number_);
    }
    for (const NodeId id : plan_.again) {
      Node copy = p_.node(id);
      for (ValueId& input : copy.inputs) input = map_[index(input)];
      std::vector<TensorType> types;
      std::vector<std::string> names;
      for (const ValueId v : p_.node(id).outputs) {
        types.push_back(p_.type(v));
        names.push_back(p_.value(v).name);
      }
      const std::vector<ValueId> made =
          body_.node(body_.add_node(std::move(copy), std::move(types), std::move(names))).outputs;
      for (size_t k = 0; k < made.size(); ++k)
        if (map_[index(p_.node(id).outputs[k])] == -1) map_[index(p_.node(id).outputs[k])] = made[k];
    }
    builder_.set_loc(node_.loc);
  }

  void add_outputs() {
    const auto found = [&](size_t i, TensorType type) {
      const ValueId gradient = plan_.pullback.gradients[i];
      type.layout = {};
      return gradient == Adjoint::kNone ? zeros(builder_, ops_, type) : map_[index(gradient)];
    };
    for (size_t i = 0; i < plan_.live.size(); ++i)
      body_.outputs.push_back(found(i, p_.type(p_.inputs[region_.inputs.size() + i])));
    size_t carried = 0;
    for (const Sum& sum : sums_) {
      if (sum.terms.empty()) continue;
      ValueId total = carried_sums_[carried++];
      for (const ValueId term : sum.terms) total = builder_.add(ops_.get("add"), {total, map_[index(term)]});
      body_.outputs.push_back(total);
    }
    num_carried_ = body_.outputs.size();
    for (size_t i = 0; i < plan_.slices.size(); ++i) {
      const bool is_reversed = parts_.scan_reversed[plan_.slices[i]] != 0;
      const ValueId gradient = plan_.pullback.gradients[plan_.live.size() + i];
      if (gradient != Adjoint::kNone && !is_reversed) rows_.emplace(gradient, Rows{Adjoint::kNone, i});
      body_.outputs.push_back(
          found(plan_.live.size() + i, region_.type(region_.inputs[parts_.first_slice() + plan_.slices[i]])));
      stack_reversed_.push_back(is_reversed ? 0 : 1);
    }
    for (Sum& sum : sums_)
      for (const auto& [a, b] : sum.factors) {
        const Rows rows_of_a = rows_of(a);
        sum.rows.emplace_back(rows_of_a, rows_of(b));
      }
  }

  Rows rows_of(ValueId v) {
    const auto [at, is_new] = rows_.emplace(v, Rows{Adjoint::kNone, body_.outputs.size() - num_carried_});
    if (is_new) {
      body_.outputs.push_back(map_[index(v)]);
      stack_reversed_.push_back(1);
    }
    return at->second;
  }

  // ---- the loop ----

  std::vector<ValueId> add_loop() {
    std::vector<ValueId> answers(node_.inputs.size(), Adjoint::kNone), results;
    if (!body_.outputs.empty()) {
      Graph body = needed_part(body_, body_.inputs, body_.outputs);
      if (ran_ != Adjoint::kNone) body = only_if(std::move(body), ran_, num_carried_);
      operands_.insert(operands_.end(), scanned_.begin(), scanned_.end());
      operands_.insert(operands_.end(), same_.begin(), same_.end());
      Attrs attrs{{"max_trip", Shape{plan_.trip}},
                  {"num_carried", static_cast<int64_t>(num_carried_)},
                  {"num_scanned", std::ssize(scanned_)}};
      if (!scanned_.empty()) attrs.set("scan_reversed", scan_reversed_);
      if (!stack_reversed_.empty()) attrs.set("stack_reversed", stack_reversed_);
      results = a_.builder().add_multi(ops_.get("loop"), operands_, attrs,
                                       {std::make_shared<const Graph>(std::move(body))}, {});
    }
    size_t next = 0;
    for (const size_t i : plan_.live) answers[parts_.first_carried() + i] = results[next++];
    for (const Sum& sum : sums_) {
      ValueId total = sum.terms.empty() ? Adjoint::kNone : results[next++];
      for (const auto& [a, b] : sum.rows) {
        const ValueId product = a_.op("matmul", {one_below_the_other(a, results), one_below_the_other(b, results)},
                                      {{"transpose_a", true}, {"transpose_b", false}});
        total = total == Adjoint::kNone ? product : a_.add(total, product);
      }
      answers[parts_.first_invariant() + sum.invariant] = total;
    }
    for (const size_t i : plan_.slices) answers[parts_.first_scanned() + i] = results[next++];
    return answers;
  }

  // [trip, m, n] as [trip * m, n].
  ValueId one_below_the_other(const Rows& rows, const std::vector<ValueId>& results) {
    const ValueId v = rows.value == Adjoint::kNone ? results[num_carried_ + rows.stacked] : rows.value;
    const Shape shape = a_.type(v).shape;
    return a_.reshape(v, {normalize_size(shape[0] * shape[1]), shape[2]});
  }

  ValueId gradient_of(size_t result) {
    const ValueId gradient = a_.gradient(result);
    return gradient == Adjoint::kNone ? a_.zeros_like(node_.outputs[result]) : gradient;
  }

  // `step` where an iteration ran; else what is carried stays, and slices have zeros. `ran`: an input of `step`.
  Graph only_if(Graph step, ValueId ran, size_t num_carried) {
    Graph other, body;
    other.name = step.name + ".passed_over";
    body.name = step.name;
    for (const ValueId input : step.inputs) {
      other.add_input(step.value(input).name, step.type(input));
      body.add_input(step.value(input).name, step.type(input));
    }
    GraphBuilder in_other(other), in_body(body);
    for (size_t i = 0; i < step.outputs.size(); ++i)
      other.outputs.push_back(i < num_carried ? other.inputs[1 + i]
                                              : zeros(in_other, ops_, step.type(step.outputs[i])));
    step.name += ".ran";
    std::vector<ValueId> operands = {body.inputs[index(ran)]};  // inputs are the first values of a graph
    operands.insert(operands.end(), body.inputs.begin(), body.inputs.end());
    in_body.set_loc(node_.loc);
    body.outputs = in_body.add_multi(
        ops_.get("if"), operands, {},
        {std::make_shared<const Graph>(std::move(step)), std::make_shared<const Graph>(std::move(other))}, {});
    return body;
  }

  Adjoint& a_;
  const OpTable& ops_;
  const Graph& graph_;
  const Node& node_;
  const LoopPlan& plan_;
  const LoopParts& parts_;
  const Graph& p_;       // the pullback's
  const Graph& region_;  // of the loop forwards: inputs as before
  Graph body_;
  GraphBuilder builder_;
  std::vector<ValueId> map_;  // of the pullback's values, in the body
  std::vector<Sum> sums_;
  ValueId number_ = Adjoint::kNone, ran_ = Adjoint::kNone;  // inputs of the body
  std::vector<ValueId> carried_sums_;                       // and these
  size_t num_carried_ = 0;
  std::map<ValueId, Rows> rows_;  // of the pullback's values
  std::vector<ValueId> operands_, scanned_, same_;
  std::vector<int64_t> scan_reversed_, stack_reversed_;
};

}  // namespace

bool is_cheap_again(const Node& node) {
  static constexpr std::string_view kCheap[] = {
      "abs",         "add",        "bitcast",     "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor",
      "broadcast",   "cast",       "ceil",        "concat",      "constant",    "eq",         "floor",
      "ge",          "gt",         "iota",        "is_inf",      "is_nan",      "le",         "logical_and",
      "logical_not", "logical_or", "logical_xor", "lt",          "max",         "min",        "mul",
      "ne",          "neg",        "pad",         "reshape",     "round",       "select",     "shift_left",
      "shift_right", "sign",       "sizes",       "slice",       "sub",         "transpose"};
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
      p.graph.outputs.push_back(
          found == Adjoint::kNone ? zeros(builder, a.ops(), p.graph.type(p.graph.inputs[wanted[i]])) : found);
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

LoopPlan plan_loop(const Graph& graph, const Node& loop, const std::vector<bool>& given,
                   const std::vector<bool>& wanted, bool again, const SweepOptions& options, const OpTable& ops) {
  return LoopPlanner(graph, loop, given, wanted, again, options, ops).run();
}

std::vector<ValueId> loop_gradient(Adjoint& a, const LoopPlan& plan, std::vector<Diagnostic>& refused) {
  if (!plan.no_gradient.empty()) a.fail(plan.no_gradient, "max_trip, a constant count, or operands that are scanned");
  refused.insert(refused.end(), plan.pullback.refused.begin(), plan.pullback.refused.end());
  return LoopGradient(a, plan).run();
}

}  // namespace tessera::inline autodiff
