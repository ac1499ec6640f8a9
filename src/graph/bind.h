// A graph for one choice of its symbols' values.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace tessera::inline graph {

// `graph` with numbers for its symbols, in the order of graph.symbols: in shapes, sizes of attributes and regions. The
// result has no symbols and keeps all names. REQUIRES: one value for each symbol, within its range.
Graph bind_symbols(const Graph& graph, const std::vector<int64_t>& values);

}  // namespace tessera::inline graph
