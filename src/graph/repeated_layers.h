// Layers that a graph has many of, one behind the other and all alike, as language models do: what is found out about a
// few of them holds for all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "graph/graph.h"

namespace tessera::inline graph {

// A run of nodes, constants not counted: `count` times so many `nodes`, which end before node `end`. Each layer's nodes
// are those of the layer before it, in operator, attributes and types; what they read is constants, what stands as far
// before them, or the same values for all. What reads a layer from behind the run reads its last two layers only.
struct RepeatedLayers {
  size_t nodes = 0, end = 0;
  int64_t count = 0;
};

// The layers that make up most of a graph; none where no nodes come three times in a row. Takes time that grows with
// the square of the number of nodes.
std::optional<RepeatedLayers> repeated_layers(const Graph& graph);

// The graph with `count` of its layers: the first ones, with what stands behind the last. REQUIRES: 2 to
// `layers.count`; neither states nor checks.
Graph with_layers(const Graph& graph, const RepeatedLayers& layers, int64_t count);

}  // namespace tessera::inline graph
