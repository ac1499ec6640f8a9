// Cross-layer equalisation (Nagel and others, Data-Free Quantization, 2019): where the outputs of one product reach
// another one through what is as large for twice the numbers (a bias, ReLU, leaky ReLU, pools), each channel is divided
// in the first and multiplied in the second, so that the weights of all channels are about as large. The model computes
// the same but for rounding.
#pragma once

#include <cstddef>

#include "graph/graph.h"

namespace tessera::inline quantize {

struct Equalized {
  Graph graph;
  size_t pairs = 0;  // of products
};

Equalized equalized(const Graph& graph);

}  // namespace tessera::inline quantize
