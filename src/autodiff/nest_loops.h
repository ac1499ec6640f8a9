// Long loops as loops of loops, so that their gradients keep less: the square root of the number of iterations, or so.
//
// A loop of T iterations becomes one of about sqrt(T) iterations, each of which is a loop of sqrt(T) iterations, and a
// loop of those that are left over. The gradient of the outer one keeps what is carried from part to part alone, and
// computes a part again (ReverseSweep does); so about 2 sqrt(T) iterations are kept at any time, for one more forward.
#pragma once

#include <optional>

#include "graph/graph.h"
#include "graph/op_def.h"

namespace tessera::inline autodiff {

// What the iterations of a loop would keep for its gradient, in bytes, roughly. 0 where it is not known.
int64_t bytes_kept(const Graph& graph, const Node& loop);

struct NestedLoop {
  Graph graph;       // of the loop's operands: it computes its results
  NodeId outer = 0;  // the loop of loops
};
// Nothing where a count or a condition may end the loop, its number of iterations is not known or small.
std::optional<NestedLoop> nested(const Graph& graph, const Node& loop, const OpTable& ops);

}  // namespace tessera::inline autodiff
