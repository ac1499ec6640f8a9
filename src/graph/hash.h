// A graph's structural hash: what it computes, not how it is written down.
#pragma once

#include <cstdint>

#include "graph/graph.h"

namespace tessera::inline graph {

// Over operators, attributes, types (layouts included), constants' data and the order of inputs and outputs. Not over
// names, locations, the order of nodes, or nodes that no output needs; equal nodes computed twice count as one.
uint64_t structural_hash(const Graph& graph);

// What one node does to whatever it is given: over its operator, attributes, regions, and the types of its operands and
// results.
uint64_t node_hash(const Graph& graph, const Node& node);

}  // namespace tessera::inline graph
