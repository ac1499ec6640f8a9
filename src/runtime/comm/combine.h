// Sums, products, minima and maxima of arrays, for ranks in one process.
#pragma once

#include <stdint.h>

#include "abi/collective_abi.h"

namespace tessera {

// Whether combine() knows the element type, where the operation combines: f64, f32, and integers of 8 to 64 bits.
bool can_combine(const tsr_collective_row& row);
// to[i] = to[i] with from[i]; integers wrap.
void combine(uint32_t combiner, uint32_t dtype, void* to, const void* from, uint64_t count);

}  // namespace tessera
