// include/tessera/parallel.h on top of the driver.
#include "tessera/parallel.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "driver/api/api_support.h"
#include "driver/api/graph_access.h"
#include "driver/parallelize.h"
#include "driver/process_rank.h"
#include "support/error.h"
#include "support/refuse.h"

namespace tessera {

struct ShardedModel::State {
  ParallelPlan plan;
};

namespace {

// "NAME=@{data,_}". A value that is not there gets a text whose name is refused with those that are.
std::string pin_text(const builder::IrGraph& graph, const PlacedValue& place, const Mesh& mesh) {
  if (place.dims.size() != mesh.axes.size())
    refuse("TSR-2110", fmt::format("{} places of '{}' for {} axes", place.dims.size(), place.name, mesh.axes.size()),
           "one for each axis of the mesh");
  size_t rank = 0;
  for (const int d : place.dims) rank = std::max(rank, static_cast<size_t>(d + 1));
  for (const Value& value : graph.values())
    if (value.name == place.name) {
      if (rank > value.type.shape.size())
        refuse("TSR-2110",
               fmt::format("dimension {} of '{}', which is {}", rank - 1, place.name, value.type.to_string()),
               "dimensions that it has");
      rank = value.type.shape.size();
      break;
    }
  Sharding sharding = Sharding::replicated(rank);
  for (size_t a = 0; a < place.dims.size(); ++a)
    if (place.dims[a] >= 0) sharding.dims[static_cast<size_t>(place.dims[a])].push_back(mesh.axes[a].name);
  return place.name + "=" + sharding.to_string();
}

}  // namespace

ThisProcess this_process() {
  return translate_errors([] {
    const ProcessRank process = process_rank();
    return ThisProcess{process.rank, process.ranks, process.communicator};
  });
}

std::string checked_mesh(const std::string& text) {
  return translate_errors([&] { return mesh_named(text).to_string(); });
}

ShardedModel::ShardedModel(const builder::Graph& model, const ShardingSettings& settings) {
  state_ = translate_errors([&] {
    const builder::IrGraph& graph = builder::GraphAccess::state(model)->graph;
    ParallelOptions options;
    options.mesh = mesh_named(settings.mesh);
    options.speed.bytes_per_second = settings.bytes_per_second;
    options.speed.latency_seconds = settings.latency_seconds;
    for (const PlacedValue& place : settings.places) options.pins.push_back(pin_text(graph, place, options.mesh));
    return std::make_shared<const State>(State{make_parallel_plan(graph, options, DriverOptions{})});
  });
}

std::string ShardedModel::text(bool values) const { return to_text(state_->plan, values); }
std::string ShardedModel::json() const { return to_json(state_->plan, state_->plan.graph.name).dump(); }
int64_t ShardedModel::ranks() const { return state_->plan.shardings.mesh.ranks(); }

std::string ShardedModel::sharding(const std::string& value) const {
  const std::vector<Value>& values = state_->plan.graph.values();
  for (size_t v = 0; v < values.size(); ++v)
    if (values[v].name == value) return state_->plan.shardings.values[v].to_string();
  return "";
}

builder::Graph ShardedModel::graph(int64_t rank) const {
  return translate_errors([&] { return builder::GraphAccess::graph(graph_of_rank(state_->plan, rank)); });
}

void ShardedModel::save(const std::string& folder) const {
  translate_errors([&] { write_plan(state_->plan, folder); });
}

}  // namespace tessera
