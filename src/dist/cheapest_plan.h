// The cheapest way to divide a whole graph: every node's ways over all mesh axes at once, with what it costs to bring
// values from one to the next, chosen together (cost_network.h). Where propagate() decides node by node, this looks
// ahead.
//
// Costs are those of the plan: what ranks touch, compute and send, one after the other. A value that several nodes read
// is brought once to a form that it is theirs to choose from. Inputs are whole on every rank, and constants are cut
// when they are made, so neither costs anything to divide; constants are what memory is counted of.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dist/cost_network.h"
#include "dist/propagate.h"

namespace tessera::inline dist {

struct CheapestPlan {
  ShardingPlan plan;
  double seconds = 0;  // of a run, by the model above
  double bound = 0;    // nothing is faster than this
  int64_t constant_bytes = 0;
  int64_t branches = 0;
};

// `most_bytes`: of constants, on each rank; 0: any. UserError TSR-2112 where nothing fits, and the least that does;
// TSR-2110 as propagate().
CheapestPlan cheapest_plan(const Graph& graph, const Mesh& mesh, const Pins& pins, const RankSpeed& speed,
                           int64_t most_bytes = 0, NetworkLimits limits = {});

// What a plan costs by the same model; of it, what a rank takes for each node.
std::vector<double> node_seconds(const Graph& graph, const ShardingPlan& plan);
double plan_seconds(const Graph& graph, const ShardingPlan& plan);

// The network of a graph, and the plan of a choice of it: for tests that try every one.
class PlanNetwork {
 public:
  PlanNetwork(const Graph& graph, const Mesh& mesh, const Pins& pins, const RankSpeed& speed);
  ~PlanNetwork();

  const CostNetwork& network() const;
  ShardingPlan plan_of(const std::vector<size_t>& choices) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::inline dist
