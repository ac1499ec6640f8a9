// The graph of one rank: parts instead of whole values, collectives where a plan brings a value into another sharding.
//
// It has the inputs and outputs of the whole graph: each rank is given whole inputs, keeps its parts of them, and has
// whole outputs in the end, so that it runs wherever the graph runs. Of constants it has its own parts. The graphs of
// all ranks differ in constants and in where parts begin, and have the same collectives in the same order. Of states,
// too, a rank has its own parts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dist/propagate.h"
#include "dist/redistribute.h"

namespace tessera::inline dist {

// `within`: a larger mesh that has the axes of the plan's, for graphs whose ranks do more together already; null: none.
Graph localize(const Graph& graph, const ShardingPlan& plan, int64_t rank, const OpTable& ops,
               const Mesh* within = nullptr);

// The collectives of the plan, in the order of the ranks' graphs.
struct PlannedMove {
  std::string value;
  Move move;
  int64_t bytes = 0;          // that a rank sends
  int64_t operand_bytes = 0;  // of its part before the move
  size_t node = 0;            // it is done before that node of the graph, and behind the one before it
};
std::vector<PlannedMove> planned_collectives(const Graph& graph, const ShardingPlan& plan);

}  // namespace tessera::inline dist
