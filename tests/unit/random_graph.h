// Random small graphs of f32 values for tests of passes: images and matrices, convolutions with constant and computed
// weights, chains of scales and shifts, composites, views. The same seed gives the same graph everywhere.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "types/tensor.h"

namespace tessera {

// Of about `nodes` nodes (composites count once). Every operator used is continuous, so that a rounding difference
// stays small.
Graph random_graph(uint64_t seed, int nodes);
// One tensor per input, elements in -1 .. 1.
std::vector<Tensor> random_inputs(const Graph& graph, uint64_t seed);

}  // namespace tessera
