// A graph for one choice of values of its symbols.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace tessera::inline graph {

// `graph` with the symbols of these names replaced by numbers, in attributes, too; the others stay open. Types are
// inferred again, in regions too, so an operator that has no meaning for these sizes is the UserError TSR-2xxx that it
// would have been when the graph was built with numbers. REQUIRES: row-major values.
Graph bind_symbols(const Graph& graph, const std::map<std::string, int64_t>& values);
// The same with a value for each symbol, in their order.
Graph bind_symbols(const Graph& graph, const std::vector<int64_t>& values);

}  // namespace tessera::inline graph
