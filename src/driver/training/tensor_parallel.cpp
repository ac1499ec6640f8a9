#include "driver/training/tensor_parallel.h"

#include <algorithm>
#include <string>
#include <utility>

#include "dist/localize.h"
#include "dist/propagate.h"
#include "driver/parallelize.h"
#include "ops/op_table.h"

namespace tessera::inline driver {
namespace {

const State* find_state(const Graph& graph, const std::string& name) {
  const auto found =
      std::find_if(graph.states.begin(), graph.states.end(), [&](const State& state) { return state.name == name; });
  return found == graph.states.end() ? nullptr : &*found;
}

}  // namespace

void share_layers(TrainingStep& step, const DataParallel& how, bool keeps_bits) {
  if (how.tensor == 1) return;
  const Graph graph = with_open_composites(step.graph);
  const Mesh line{{{"model", how.tensor}}}, all = mesh_of(how);
  const auto input_of = [&](const std::string& name) {
    const State* state = find_state(graph, name);
    return state ? graph.state_input(static_cast<size_t>(state - graph.states.data())) : ValueId{-1};
  };
  Pins pins;
  const auto pin = [&](ValueId input, const Sharding& sharding) { pins[graph.value(input).name] = sharding; };
  for (const CutState& state : step.cut)
    if (const ValueId input = input_of(state.name); input >= 0)
      pin(input, Sharding::replicated(graph.type(input).shape.size()));
  for (const PlacedState& state : step.placed)
    if (const ValueId input = state.is_cut ? input_of(state.name) : -1; input >= 0)
      pin(input, Sharding::replicated(graph.type(input).shape.size()));
  ShardingPlan plan = propagate(graph, line, pins, {}, {keeps_bits});
  // What belongs to a parameter lies as it does, not as who reads it first wants it.
  for (const std::string& name : step.parameters) {
    const ValueId parameter = input_of(name);
    if (parameter < 0) continue;  // another stage's
    for (size_t i = 0; i < graph.states.size(); ++i) {
      const ValueId input = graph.state_input(i);
      if (graph.states[i].name.starts_with(name + ".") && !pins.contains(graph.value(input).name) &&
          graph.type(input).dims() == graph.type(parameter).dims())
        pin(input, plan.values[static_cast<size_t>(parameter)]);
    }
  }
  plan = propagate(graph, line, pins, {}, {keeps_bits});
  for (size_t i = 0; i < graph.states.size(); ++i) {
    const ValueId input = graph.state_input(i);
    const int dim = plan.values[static_cast<size_t>(input)].dim_of("model");
    if (dim >= 0) step.sharded.push_back({graph.states[i].name, graph.type(input), static_cast<size_t>(dim)});
  }
  step.graph = localize(graph, plan, how.tensor_rank, standard_ops(), &all);
}

}  // namespace tessera::inline driver
