// The graph of one rank: parts instead of whole values, collectives where a plan brings a value into another sharding.
//
// It has the inputs and outputs of the whole graph: each rank is given whole inputs, keeps its parts of them, and has
// whole outputs in the end, so that it runs wherever the graph runs. Of constants it has its own parts. The graphs of
// all ranks differ in constants and in where parts begin, and have the same collectives in the same order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dist/propagate.h"
#include "dist/redistribute.h"

namespace tessera::inline dist {

Graph localize(const Graph& graph, const ShardingPlan& plan, int64_t rank, const OpTable& ops);

// The collectives of the plan, in the order of the ranks' graphs.
struct PlannedMove {
  std::string value;
  Move move;
  int64_t bytes = 0;  // that a rank sends
};
std::vector<PlannedMove> planned_collectives(const Graph& graph, const ShardingPlan& plan);

}  // namespace tessera::inline dist
