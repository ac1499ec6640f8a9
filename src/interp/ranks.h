// What the graphs of all ranks of a mesh compute together: the meaning of collectives (types/collective.h). The ranks'
// graphs are evaluated side by side, each node of all of them before the next.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "types/tensor.h"

namespace tessera::inline interp {

// The outputs of each rank. REQUIRES: graphs whose nodes are the same operators in the same order, with as many
// collectives over the same mesh, which has as many ranks as there are graphs; no collectives in regions.
// Sums are those of f64, in the order of ranks, rounded once.
std::vector<std::vector<Tensor>> evaluate_ranks(const std::vector<Graph>& graphs,
                                                const std::vector<std::vector<Tensor>>& inputs);

}  // namespace tessera::inline interp
