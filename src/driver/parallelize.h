// A plan for running a model on several ranks: shardings, the graphs of the ranks, and what it costs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "dist/localize.h"
#include "dist/propagate.h"
#include "dist/simulate.h"
#include "driver/options.h"
#include "graph/graph.h"

namespace tessera::inline driver {

struct ParallelOptions {
  Mesh mesh;
  std::vector<std::string> pins;  // "NAME=@{data,_}"
  RankSpeed speed;
  bool searches = false;    // for the cheapest plan of all (dist/cheapest_plan.h), not node by node
  int64_t most_memory = 0;  // of a search: bytes of weights and of a run, on each rank; 0: any
};

// With all composites as the operators that they are made of, which ranks may divide.
Graph with_open_composites(Graph graph);

// "data=2,model=2". UserError TSR-2110 for what is no mesh.
Mesh mesh_named(const std::string& text);

// What one rank has and does in a run, from its planned program.
struct RankCost {
  int64_t weight_bytes = 0, arena_bytes = 0;
  double compute_seconds = 0;  // predicted, by the roofline of `speed`
};

struct ParallelPlan {
  Graph graph;  // with composites opened: the values that shardings are of
  ShardingPlan shardings;
  std::vector<PlannedMove> collectives;
  // Of a search: the seconds of the plan by its own model, what no plan is below, and the memory that was looked for.
  struct Search {
    double seconds = 0, bound = 0;
    int64_t branches = 0;
    double gap() const { return seconds > 0 ? (seconds - bound) / seconds : 0; }
  };
  std::optional<Search> search;
  RankCost rank, alone;  // of rank 0, and of one process that runs the whole graph
  double collective_seconds = 0;
};

// Inputs are cut along dimension 0 by the mesh axis `data`, where there is one that divides it, unless they are pinned,
// or a plan is searched. UserError TSR-2110 for pins, TSR-2111 for a model with states, open sizes or the steps of a
// flow, TSR-2112 where no plan fits into memory.
ParallelPlan make_parallel_plan(const Graph& model, const ParallelOptions& options, const DriverOptions& compile);
// The same for so many ranks, in the grid of one or two axes, `data` and `model`, that has the cheapest plan.
ParallelPlan make_parallel_plan(const Graph& model, int64_t ranks, ParallelOptions options,
                                const DriverOptions& compile);
Graph graph_of_rank(const ParallelPlan& plan, int64_t rank);
// What a rank does in a run, for a simulation (dist/simulate.h).
RankSteps steps_of_rank(const ParallelPlan& plan);

// What `tessera parallelize` prints; `values`: each value's sharding and the reasons of refusals, too.
std::string to_text(const ParallelPlan& plan, bool values);
// What it prints with --json.
nlohmann::json to_json(const ParallelPlan& plan, const std::string& model);

// A plan in a folder: plan.json, and the graph of each rank in a file of its own.
void write_plan(const ParallelPlan& plan, const std::string& folder);
// The file of this process's graph, where `path` is such a folder; else `path`. UserError TSR-6251 for a plan for
// another number of processes.
std::string model_of_rank(const std::string& path);

}  // namespace tessera::inline driver
