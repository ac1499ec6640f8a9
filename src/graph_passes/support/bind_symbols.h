// A graph with symbols at one choice of their values.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace tessera::inline graph_passes {

// The same graph without symbols: `values[i]` stands for graph.symbols[i], in types, attributes and regions. Nothing is
// inferred anew: sizes are what the formulas give. REQUIRES: values within the ranges.
Graph bind_symbols(const Graph& graph, const std::vector<int64_t>& values);

}  // namespace tessera::inline graph_passes
