// Random programs of branches and loops inside each other.
#pragma once

#include <cstdint>
#include <vector>

#include "program/program.h"
#include "types/tensor.h"

namespace tessera {

// Loops with a fixed count, one that a buffer has, a condition, or several of these, also ones that never run; views
// that move with the index, to read slices and to stack them; indices as arguments of kernels; carried values; buffers
// of outer blocks that inner ones write over. What it computes is the same whatever is not specified.
Program random_steps(uint64_t seed);
std::vector<Tensor> random_step_inputs(const Program& program, uint64_t seed);

}  // namespace tessera
