// Samples of a model's inputs, one at a time, so that memory does not grow with their number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "types/tensor.h"

namespace tessera::inline driver {

struct SampleSource {
  size_t count = 0;
  std::function<std::vector<Tensor>(size_t sample)> at;  // one tensor for each input
  std::vector<int64_t> labels;  // one for each sample: the right place of the first output's largest element; or none
};

}  // namespace tessera::inline driver
