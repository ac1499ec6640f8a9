// Where numbers that are not finite come from: a training step as a graph that watches itself.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/op_def.h"

namespace tessera::inline train {

// The nodes of `step` whose results are real numbers, in order, and a graph with the inputs of `step`, its states among
// them, whose results say of each (i64[]): 0 all are finite, 1 some are infinite, 2 some are NaN.
struct FiniteProbe {
  Graph graph;
  std::vector<NodeId> nodes;
};
FiniteProbe finite_probe(const Graph& step, const OpTable& ops);

// A sentence on the first node that `found`, the probe's results, has an answer other than 0 for; empty: there is none.
std::string first_not_finite(const Graph& step, const FiniteProbe& probe, const std::vector<int64_t>& found);

}  // namespace tessera::inline train
