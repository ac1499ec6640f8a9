// Which nodes share a kernel: the decisions of fuse_groups, apart from the rewriting.
#pragma once

#include <vector>

#include "graph_passes/fusion/fuse_groups.h"
#include "graph_passes/support/operand_access.h"

namespace tessera::inline graph_passes {

struct FusionPlan {
  // For each node the group it is in, -1 for constants and views outside of groups. Numbers have no order.
  std::vector<int> group_of;
  int num_groups = 0;
  // For each group the nodes whose results leave it, in order.
  std::vector<std::vector<NodeId>> results;
};

// `remarks` may be null.
FusionPlan plan_fusion(const Graph& graph, Remarks* remarks);

}  // namespace tessera::inline graph_passes
