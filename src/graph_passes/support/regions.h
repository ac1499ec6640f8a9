// Changes of nodes with control flow (graph/control_flow.h) that several passes need.
#pragma once

#include <optional>
#include <vector>

#include "graph/control_flow.h"
#include "graph/graph.h"
#include "graph/op_def.h"

namespace tessera::inline graph_passes {

// A node without some of its results and operands.
struct TrimmedNode {
  Node node;
  std::vector<size_t> results;  // the results of the original that it has, in order
};

// `node` without what nobody needs: results that `used` does not name, where they can be left out, what the regions
// compute for them, and operands that the regions do not need. A node that has no control flow stays as it is.
TrimmedNode trim(const Node& node, const std::vector<bool>& used);

// `node`, an `if` or a `loop` whose operands are values of `target`, with its constant operands as constants of its
// regions, where later passes and kernels see them, a constant count as attribute, and without a condition that is
// always true. Empty when nothing changes.
std::optional<Node> with_constants_inside(const Graph& target, const Node& node, const std::vector<ValueId>& inputs);

// The values in `target` that replace the results of an `if` with a constant condition, or of a loop that has no
// iterations, whose operands are `inputs`. Empty when it is neither, or when zeros for its stacked results would be
// large.
std::vector<ValueId> fold_control_flow(Graph& target, const OpTable& ops, const Graph& source, const Node& node,
                                       const std::vector<ValueId>& inputs);

}  // namespace tessera::inline graph_passes
