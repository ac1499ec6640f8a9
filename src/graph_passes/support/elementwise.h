// What the passes that move reshapes and transposes share: which nodes compute every element from the elements at its
// own place, and how such a node is built again in another shape.
#pragma once

#include <vector>

#include "graph_passes/pass.h"

namespace tessera::inline graph_passes {

// An operator that works element by element with numpy's broadcasting, or a composite of one operand that does.
bool is_elementwise(const Node& node);
// The same operator on other operands, named `name`.
ValueId rebuild_elementwise(GraphBuilder& builder, const OpTable& ops, const Node& node, std::vector<ValueId> operands,
                            const std::string& name);

}  // namespace tessera::inline graph_passes
