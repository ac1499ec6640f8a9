// Which nodes share a kernel: the decisions of fuse_groups, apart from the rewriting.
#pragma once

#include <vector>

#include "graph_passes/access.h"
#include "graph_passes/fuse_groups.h"

namespace tessera {

struct FusionPlan {
  // For each node the group it is in, -1 for constants and views outside of groups. Numbers have no order.
  std::vector<int> group_of;
  int num_groups = 0;
};

// `remarks` may be null.
FusionPlan plan_fusion(const Graph& graph, Remarks* remarks);

}  // namespace tessera
