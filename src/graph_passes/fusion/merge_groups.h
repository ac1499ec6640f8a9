// Groups that become one kernel with several results.
//
// Groups of elementwise nodes of one shape and layout, of which one reads another's result or both read a tensor of
// that shape: together they read it once (the moments and the parameter of an optimizer's step, the state and the
// output of a recurrent cell). Such groups behind a product or a convolution that read what it stores (an activation,
// where training needs what it was computed from as well). And groups that reduce the same dimensions of the same
// tensor (a sum and a sum of squares, a maximum and where it stands), in one pass. Merged groups stay free of cycles:
// none of them reads, by way of other groups, what another of them computes.
//
// Left alone: products of open sizes, everything of sizes that data decide, results that are parts of a concatenation
// in place, and choices by one bool, whose kernel need not run.
#pragma once

#include "graph_passes/fusion/fusion_plan.h"

namespace tessera::inline graph_passes {

// `remarks` may be null: which groups are merged.
void merge_groups(const Graph& graph, FusionPlan& plan, Remarks* remarks);

}  // namespace tessera::inline graph_passes
