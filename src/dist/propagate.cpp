#include "dist/propagate.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "dist/factors.h"
#include "dist/forms.h"
#include "dist/node_choices.h"
#include "dist/redistribute.h"
#include "support/error.h"

namespace tessera::inline dist {
namespace {

size_t index(ValueId v) { return static_cast<size_t>(v); }

[[noreturn]] void refuse(const std::string& found, const std::string& legal, const std::string& hint = "") {
  throw UserError({.id = "TSR-2110", .message = found, .node = {}, .legal = legal, .hint = hint});
}

std::vector<int64_t> dims_of(const Graph& graph, ValueId value) {
  const auto dims = static_dims(graph.type(value).shape);
  check(dims.has_value(), "a sharded value has a size that is no number: " + graph.value(value).name);
  return *dims;
}

int64_t bytes_of(const Graph& graph, ValueId value, const Sharding& sharding, const Mesh& mesh) {
  return local_bytes(graph.type(value), sharding, mesh);
}

bool is_constant(const Graph& graph, ValueId value) {
  const Node* producer = graph.producer(value);
  return producer && producer->op->kind == OpKind::kConstant;
}

std::pair<ValueId, Sharding> pinned_value(const Graph& graph, const Mesh& mesh, const std::string& name,
                                          const Sharding& sharding) {
  std::vector<std::string> names;
  for (size_t v = 0; v < graph.values().size(); ++v) {
    const auto value = static_cast<ValueId>(v);
    if (graph.producer(value) && !is_constant(graph, value)) continue;
    if (!graph.producer(value) || !graph.type(value).shape.empty()) names.push_back(graph.value(value).name);
    if (graph.value(value).name != name) continue;
    const std::string what = fmt::format("'{}', which is {}", name, graph.type(value).to_string());
    const std::string wrong = check_sharding(sharding, dims_of(graph, value), mesh);
    if (!wrong.empty() || !sharding.partial.empty())
      refuse(fmt::format("{}{} for {}", sharding.to_string(), wrong.empty() ? "" : ": " + wrong, what),
             "dimensions that the mesh axes divide evenly, nothing partial");
    if (!sharding.is_replicated() && !is_cut(graph.type(value).dtype))
      refuse(fmt::format("{} for {}", sharding.to_string(), what), "elements of a byte or more");
    for (const auto& dim : sharding.dims)
      if (dim.size() > 1) refuse(fmt::format("{} for '{}'", sharding.to_string(), name), "one mesh axis a dimension");
    return {value, sharding};
  }
  refuse(fmt::format("'{}' is to be sharded, and is no input or constant", name),
         fmt::format("{}", fmt::join(names, ", ")));
}

class Propagation {
 public:
  Propagation(const Graph& graph, const Mesh& mesh, const Pins& pins, const RankSpeed& speed, PropagationRules rules)
      : graph_(graph),
        mesh_(mesh),
        speed_(speed),
        rules_(rules),
        ways_(graph, mesh, speed),
        known_(graph.values().size(), false),
        is_state_(graph.values().size(), false) {
    plan_.mesh = mesh;
    plan_.speed = speed;
    for (const Value& value : graph.values()) plan_.values.push_back(Sharding::replicated(value.type.shape.size()));
    for (size_t i = 0; i < graph.inputs.size(); ++i)
      (i < graph.num_own_inputs() ? known_ : is_state_)[index(graph.inputs[i])] = true;
    for (const auto& [value, sharding] : pinned_values(graph, mesh, pins)) {
      plan_.values[index(value)] = sharding;
      known_[index(value)] = true;
    }
  }

  ShardingPlan run() {
    for (const Node& node : graph_.nodes()) plan_.nodes.push_back(decide(node));
    return std::move(plan_);
  }

 private:
  bool is_constant(ValueId value) const { return is_state_[index(value)] || tessera::is_constant(graph_, value); }

  struct Choice : MeshChoice {
    double seconds = 0;
    double moving = 0;  // of them: for operands that are no constants
  };

  NodePlan decide(const Node& node) {
    NodePlan plan = ways_.whole(node);
    if (node.op->kind == OpKind::kConstant) {
      plan.results[0] = plan_.values[index(node.outputs[0])];
      return plan;
    }
    const std::optional<NodeFactors> factors = factors_of(graph_, node);
    if (factors) {
      for (const MeshAxis& axis : mesh_.axes)
        if (axis.extent > 1) divide(node, *factors, axis, plan);
    } else if (std::any_of(node.inputs.begin(), node.inputs.end(),
                           [&](ValueId v) { return known_[index(v)] && !plan_.values[index(v)].is_replicated(); })) {
      remark(node, "every rank does all of it: it has no body to divide");
    }
    for (size_t i = 0; i < node.inputs.size(); ++i) settle(node.inputs[i], plan.operands[i]);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      plan_.values[index(node.outputs[i])] = plan.results[i];
      known_[index(node.outputs[i])] = true;
    }
    return plan;
  }

  // A constant gets the sharding of its first reader.
  void settle(ValueId value, const Sharding& needed) {
    if (known_[index(value)]) return;
    plan_.values[index(value)] = needed;
    known_[index(value)] = true;
  }

  void remark(const Node& node, const std::string& reason) {
    plan_.remarks.push_back(fmt::format("{} ({}): {}", graph_.value(node.outputs[0]).name, node.op->name, reason));
  }

  void divide(const Node& node, const NodeFactors& factors, const MeshAxis& axis, NodePlan& plan) {
    std::vector<Choice> choices = {{}};
    std::vector<std::string> refused;
    for (const Factor& factor : factors.factors) {
      std::string reason = factor.refused;
      if (reason.empty() && rules_.keeps_bits && divides_sum(factors, factor)) reason = "sums are not divided";
      if (reason.empty()) reason = ways_.why_not(node, factors, factor, axis, plan);
      if (reason.empty()) choices.push_back({{&factor}});
      else if (follows(node, factor, axis))
        refused.push_back(fmt::format("{} not along {}: {}", axis.name, factor.name, reason));
    }
    for (size_t o = 0; o < node.inputs.size(); ++o)
      if (known_[index(node.inputs[o])] && is_partial_sum(node.inputs[o], axis) && factors.linear[o] &&
          is_combined(graph_.type(node.outputs[0]).dtype) && !rules_.keeps_bits)
        choices.push_back({{nullptr, static_cast<int>(o)}});
    for (Choice& choice : choices) price(node, factors, axis, plan, choice);
    const bool is_cut = std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) {
      return !is_constant(v) && plan_.values[index(v)].dim_of(axis.name) >= 0;
    });
    if (!is_cut && !is_contraction(factors))
      std::erase_if(choices, [&](const Choice& choice) {
        return choice.factor != nullptr && !(choice.factor->looked_up && has_part(node, *choice.factor, axis));
      });
    const auto cuts_constant = [&](const Choice& choice) {
      if (!choice.factor) return false;
      for (size_t o = 0; o < node.inputs.size(); ++o)
        if (is_constant(node.inputs[o]) && choice.factor->operand_dims[o] >= 0) return true;
      return false;
    };
    const auto best = std::min_element(choices.begin(), choices.end(), [&](const Choice& a, const Choice& b) {
      if (is_cut && (a.moving == 0) != (b.moving == 0)) return a.moving == 0;
      if (!is_cut && cuts_constant(a) != cuts_constant(b)) return cuts_constant(a);
      return a.seconds < b.seconds;
    });
    NodeChoices::apply(factors, axis, *best, plan);
    if (!best->factor && best->passes < 0)
      for (const std::string& reason : refused) remark(node, reason);
  }

  // Whether parts are added to what one rank would have: the smallest of parts is the smallest of all.
  static bool divides_sum(const NodeFactors& factors, const Factor& factor) {
    const CollectiveCombiner combiner = NodeChoices::combiner_of(factors, factor);
    return factor.result_dim < 0 && combiner != CollectiveCombiner::kMin && combiner != CollectiveCombiner::kMax;
  }

  // What is linear in a sum may be done to its terms; not so with a largest element.
  bool is_partial_sum(ValueId value, const MeshAxis& axis) const {
    const std::vector<PartialAxis>& partial = plan_.values[index(value)].partial;
    return std::any_of(partial.begin(), partial.end(), [&](const PartialAxis& p) {
      return p.axis == axis.name && p.combiner == CollectiveCombiner::kSum;
    });
  }

  // Whether a table lies so already, as somebody wants it: nothing else begins to divide look-ups.
  bool has_part(const Node& node, const Factor& factor, const MeshAxis& axis) const {
    for (size_t o = 0; o < factor.operand_dims.size(); ++o)
      if (factor.operand_dims[o] >= 0 && known_[index(node.inputs[o])] &&
          plan_.values[index(node.inputs[o])].dim_of(axis.name) == factor.operand_dims[o])
        return true;
    return false;
  }

  // A sum of products of two operands.
  static bool is_contraction(const NodeFactors& factors) {
    return std::any_of(factors.factors.begin(), factors.factors.end(), [](const Factor& factor) {
      return factor.result_dim < 0 &&
             std::count_if(factor.operand_dims.begin(), factor.operand_dims.end(), [](int d) { return d >= 0; }) > 1;
    });
  }

  // Whether an operand that follows the factor is cut along the axis there: then a refusal is worth a remark.
  bool follows(const Node& node, const Factor& factor, const MeshAxis& axis) const {
    for (size_t o = 0; o < factor.operand_dims.size(); ++o)
      if (factor.operand_dims[o] >= 0 &&
          plan_.values[index(node.inputs[o])].dim_of(axis.name) == factor.operand_dims[o])
        return true;
    return factor.result_dim >= 0 && std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) {
             return plan_.values[index(v)].dim_of(axis.name) == factor.result_dim;
           });
  }

  void price(const Node& node, const NodeFactors& factors, const MeshAxis& axis, const NodePlan& plan,
             Choice& choice) const {
    NodePlan chosen = plan;
    NodeChoices::apply(factors, axis, choice, chosen);
    for (size_t o = 0; o < node.inputs.size(); ++o) {
      if (!known_[index(node.inputs[o])]) continue;
      // Along this axis alone; the others' moves are there whatever this one does.
      const Sharding& has = plan_.values[index(node.inputs[o])];
      for (const Move& move : moves_between(has, chosen.operands[o], graph_.type(node.inputs[o]), mesh_, speed_)) {
        if (move.axis != axis.name) continue;
        double seconds = ways_.sending(sent_bytes(move, bytes_of(graph_, node.inputs[o], has, mesh_), mesh_));
        if (move.kind == MoveKind::kReduceScatter) seconds *= 2;  // some later node will gather what this one scatters
        choice.seconds += seconds;
        if (!is_constant(node.inputs[o])) choice.moving += seconds;
      }
    }
    if (choice.factor && choice.factor->result_dim < 0)
      choice.seconds += ways_.sending(
          sent_bytes({MoveKind::kAllReduce, axis.name, NodeChoices::combiner_of(factors, *choice.factor), -1, -1},
                     bytes_of(graph_, node.outputs[0], chosen.results[0], mesh_), mesh_));
    if (choice.factor && choice.factor->reach) {
      const double seconds = ways_.sending(halo_bytes(graph_, node, chosen, chosen.windows.back(), mesh_));
      choice.seconds += seconds;
      choice.moving += seconds;
    }
    double sharers = choice.factor ? static_cast<double>(axis.extent) : 1;
    for (const auto& dim : plan.results[0].dims) sharers *= static_cast<double>(mesh_.group_size(dim));
    choice.seconds += ways_.working(node, factors, chosen, sharers);
  }

  const Graph& graph_;
  const Mesh& mesh_;
  const RankSpeed& speed_;
  const PropagationRules rules_;
  const NodeChoices ways_;
  std::vector<bool> known_, is_state_;  // by value
  ShardingPlan plan_;
};

}  // namespace

std::map<ValueId, Sharding> pinned_values(const Graph& graph, const Mesh& mesh, const Pins& pins) {
  std::map<ValueId, Sharding> values;
  for (const auto& [name, sharding] : pins) values.insert(pinned_value(graph, mesh, name, sharding));
  return values;
}

Halo halo_of(const Graph& graph, const Node& node, const NodePlan::Window& window, const Mesh& mesh) {
  const auto d = static_cast<size_t>(window.dim);
  const auto halo = tessera::halo_of(window.reach, dims_of(graph, node.inputs[0])[d],
                                     dims_of(graph, node.outputs[0])[d], mesh.group_size({window.axis}));
  check(halo.has_value(), "a window was divided that cannot be: " + node.loc);
  return *halo;
}

int64_t halo_bytes(const Graph& graph, const Node& node, const NodePlan& plan, const NodePlan::Window& window,
                   const Mesh& mesh) {
  const Halo halo = halo_of(graph, node, window, mesh);
  const int64_t places = mesh.group_size({window.axis});
  const int64_t own = dims_of(graph, node.inputs[0])[static_cast<size_t>(window.dim)] / places;
  return bytes_of(graph, node.inputs[0], plan.operands[0], mesh) / own * (halo.before + halo.after);
}

TensorType local_type(const TensorType& type, const Sharding& sharding, const Mesh& mesh) {
  return {type.dtype, make_shape(local_dims(sharding, *static_dims(type.shape), mesh)), {}};
}

std::optional<Attrs> local_attrs(const Graph& graph, const Node& node, const NodePlan& plan, const Mesh& mesh) {
  Attrs attrs = node.attrs;
  if (!plan.windows.empty()) return attrs;  // padding is each rank's own; halo_of() has said that it can be
  const std::vector<int64_t> all = dims_of(graph, node.outputs[0]), own = local_dims(plan.results[0], all, mesh);
  for (const char* name : {"shape", "sizes"})
    if (attrs.has(name) && attrs.get_or<std::vector<int64_t>>(name, {}) == all) attrs.set(name, own);
  std::vector<TensorType> operands;
  for (size_t i = 0; i < node.inputs.size(); ++i)
    operands.push_back(local_type(graph.type(node.inputs[i]), plan.operands[i], mesh));
  try {
    const std::vector<TensorType> types = infer_types(*node.op, operands, attrs, node.regions, node.loc);
    if (static_dims(types[0].shape) != own) return std::nullopt;
  } catch (const UserError&) {
    return std::nullopt;
  }
  return attrs;
}

ShardingPlan propagate(const Graph& graph, const Mesh& mesh, const Pins& pins, const RankSpeed& speed,
                       PropagationRules rules) {
  check(graph.checks.empty() && graph.symbols.empty(), "sharding of a graph with checks or symbols");
  return Propagation(graph, mesh, pins, speed, rules).run();
}

Sharding sharding_of_output(const Graph& graph, const ShardingPlan& plan, size_t output) {
  const bool is_state = output >= graph.num_own_outputs() && output < graph.first_check();
  return is_state ? plan.values[index(graph.state_input(output - graph.num_own_outputs()))]
                  : Sharding::replicated(graph.type(graph.outputs[output]).shape.size());
}

std::string plan_text(const Graph& graph, const ShardingPlan& plan) {
  std::string text = fmt::format("mesh {}\n", plan.mesh.to_string());
  const auto value_text = [&](ValueId v, const Sharding& sharding) {
    return fmt::format("%{}: {}{}", graph.value(v).name, graph.type(v).to_string(), sharding.to_string());
  };
  Forms forms(graph, plan.mesh, plan.speed);
  const auto move_lines = [&](ValueId v, const Sharding& to) {
    auto [now, moves] = forms.bring(v, to);
    for (const Move& move : moves) {
      const int64_t sent = sent_bytes(move, bytes_of(graph, v, now, plan.mesh), plan.mesh);
      now = after_move(now, move);
      text += fmt::format("  {} %{} over {}: {}{}\n", move_kind_name(move.kind), graph.value(v).name, move.axis,
                          now.to_string(), sent > 0 ? fmt::format(", {} bytes", sent) : "");
    }
  };
  const auto made = [&](ValueId v) {
    forms.add(v, plan.values[index(v)]);
    if (!plan.forms.empty() && plan.forms[index(v)]) move_lines(v, *plan.forms[index(v)]);
  };
  for (const ValueId input : graph.inputs)
    text += fmt::format("input {}\n", value_text(input, plan.values[index(input)])), made(input);
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    for (size_t i = 0; i < node.inputs.size(); ++i) move_lines(node.inputs[i], plan.nodes[n].operands[i]);
    for (const NodePlan::Window& window : plan.nodes[n].windows) {
      const Halo halo = halo_of(graph, node, window, plan.mesh);
      if (halo.before + halo.after > 0)
        text += fmt::format("  halo %{} over {}: {} before, {} behind, {} bytes\n", graph.value(node.inputs[0]).name,
                            window.axis, halo.before, halo.after,
                            halo_bytes(graph, node, plan.nodes[n], window, plan.mesh));
    }
    std::string operands;
    for (const ValueId input : node.inputs) operands += (operands.empty() ? "%" : ", %") + graph.value(input).name;
    for (const ValueId output : node.outputs)
      text += fmt::format("{} = {}({})\n", value_text(output, plan.values[index(output)]), node.op->name, operands);
    for (const ValueId output : node.outputs) made(output);
  }
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    move_lines(graph.outputs[i], sharding_of_output(graph, plan, i));
    text += fmt::format("output %{}\n", graph.value(graph.outputs[i]).name);
  }
  return text;
}

}  // namespace tessera::inline dist
