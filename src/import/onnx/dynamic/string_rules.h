// Which operators take tensors of strings. Strings are numbers in a graph (graph/flow.h): an operator that moves or
// compares them works as it is, but none may calculate with them.
#pragma once

#include "import/onnx/node_context.h"

namespace tessera::inline onnx_import {

// UserError TSR-1044 for strings where the operator cannot have them, or beside operands that are none. True when
// results have to be marked.
bool check_strings(NodeContext& c);
// REQUIRES: check_strings answered true. Marks those results that are strings.
void mark_strings(NodeContext& c);

}  // namespace tessera::inline onnx_import
