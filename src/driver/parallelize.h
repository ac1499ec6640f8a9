// A plan for running a model on several ranks: shardings, the graphs of the ranks, and what it costs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dist/localize.h"
#include "dist/propagate.h"
#include "driver/options.h"
#include "graph/graph.h"

namespace tessera::inline driver {

struct ParallelOptions {
  Mesh mesh;
  std::vector<std::string> pins;  // "NAME=@{data,_}"
  RankSpeed speed;
};

// What one rank has and does in a run, from its planned program.
struct RankCost {
  int64_t weight_bytes = 0, arena_bytes = 0;
  double compute_seconds = 0;  // predicted, by the roofline of `speed`
};

struct ParallelPlan {
  Graph graph;  // with composites opened: the values that shardings are of
  ShardingPlan shardings;
  std::vector<PlannedMove> collectives;
  RankCost rank, alone;  // of rank 0, and of one process that runs the whole graph
  double collective_seconds = 0;
};

// Inputs are cut along dimension 0 by the mesh axis `data`, where there is one that divides it, unless they are pinned.
// UserError TSR-2110 for pins, TSR-2111 for a model with states, open sizes or the steps of a flow.
ParallelPlan make_parallel_plan(const Graph& model, const ParallelOptions& options, const DriverOptions& compile);
Graph graph_of_rank(const ParallelPlan& plan, int64_t rank);

// What `tessera parallelize` prints; `values`: each value's sharding and the reasons of refusals, too.
std::string to_text(const ParallelPlan& plan, bool values);

}  // namespace tessera::inline driver
