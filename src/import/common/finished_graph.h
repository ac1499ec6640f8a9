// What a reader does with its graph when all nodes are in it.
#pragma once

#include <optional>
#include <string>

#include "graph/graph.h"

namespace tessera::inline import_common {

// Without nodes that no output needs: those that only served to find attributes. REQUIRES: KnownSymbols has the
// graph's.
Graph needed_part(const Graph& graph);

// Removes symbols that nothing mentions: some may only have been meant for dimensions whose names are expressions. A
// run learns a symbol from an input that has it as a dimension; answers one that it would need and not learn.
std::optional<std::string> keep_bound_symbols(Graph& graph);

}  // namespace tessera::inline import_common
