// What the graphs of all ranks of a mesh compute together: the meaning of collectives (types/collective.h). Each rank
// does its own nodes in order, and waits where a collective needs others.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "types/tensor.h"

namespace tessera::inline interp {

// The outputs of each rank. REQUIRES: all ranks of a group have the same collectives of it in the same order, over one
// mesh, which has as many ranks as there are graphs; each message is sent and received once, of one type; no
// collectives in regions. InternalError where ranks wait for each other. Sums are those of f64, in the order of ranks,
// rounded once.
std::vector<std::vector<Tensor>> evaluate_ranks(const std::vector<Graph>& graphs,
                                                const std::vector<std::vector<Tensor>>& inputs);

}  // namespace tessera::inline interp
