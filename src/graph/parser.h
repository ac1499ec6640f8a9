// Reads the text form of graphs (printer.h has the grammar by example). `//` starts a comment. The types behind ':'
// may be left out where the operator infers them.
#pragma once

#include <string_view>

#include "graph/graph.h"
#include "graph/op_def.h"

namespace tessera::inline graph {

// UserError TSR-3xxx with file:line:column for text that is no graph, TSR-2xxx for operands and attributes that do not
// fit their operator. `file` is for messages only. Time and memory are bounded by the length of the text, except for
// splats (kMaxSplatBytes each).
Graph parse_graph(std::string_view text, const OpTable& ops, std::string_view file = "<text>");

}  // namespace tessera::inline graph
