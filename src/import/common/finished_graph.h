// What a reader does with its graph when all nodes are in it.
#pragma once

#include <optional>
#include <string>

#include "graph/graph.h"

namespace tessera::inline import_common {

// Without nodes that no output needs, those that only served to find attributes, and without symbols that nothing
// mentions: some may only have been meant for dimensions whose names are expressions. REQUIRES: KnownSymbols has the
// graph's.
Graph needed_part(const Graph& graph);

// A run learns a symbol from an input that has it as a dimension: the name of one that no input has by itself.
std::optional<std::string> unlearned_symbol(const Graph& graph);

}  // namespace tessera::inline import_common
