// Samples of a model's inputs, one at a time, so that memory does not grow with their number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "graph/graph.h"
#include "types/tensor.h"

namespace tessera::inline driver {

struct SampleSource {
  size_t count = 0;
  std::function<std::vector<Tensor>(size_t sample)> at;  // one tensor for each input
  std::vector<int64_t> labels;  // one for each sample: the right place of the first output's largest element; or none
};

// Random numbers for a graph's own inputs, at the middle of the ranges of its symbols: enough for times, and a hint of
// what is lost.
SampleSource random_sample(const Graph& graph);

}  // namespace tessera::inline driver
