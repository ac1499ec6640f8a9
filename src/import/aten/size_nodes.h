// Nodes that compute with sizes: their results are expressions of the program's symbols, not tensors.
#pragma once

#include "import/aten/operator_context.h"

namespace tessera::inline aten {

// True when the node is one of them; it has given its size then, or it is a statement about sizes without a result.
// UnsupportedNode when the size cannot be said.
bool import_size_node(AtenContext& c, const std::string& target);

}  // namespace tessera::inline aten
