// Which operands of a kernel are weights: they arrive at run time, and the kernel reads each of their elements for so
// many outputs that storing them in the order in which they are read may pay for itself.
//
//   y[m, n] = sum over k: x[m, k] * w[k, n]     w of 128 rows or more of x, say, and not x: what lies along the
//                                               output's innermost axis is read in vectors
//   y[m, n] = sum over k: c[m, k] * x[k, n]     none, where c is a constant
//   y[b, h, m, n] = sum over k: q * k[b, h, k, n]   neither: a batch's own values (attention's keys) are activations
#pragma once

#include <cstdint>
#include <vector>

#include "te/tensor_program.h"

namespace tessera::inline tensor_programs {

// Makes weights of the activations that are such. Sizes that a run decides count as what they typically are; those of
// weights are fixed. `calls`: by parameter, how many calls of the kernel read the same elements, because a loop around
// them does not change these; empty: one.
void find_weights(TensorProgram& program, const std::vector<int64_t>& calls = {});

}  // namespace tessera::inline tensor_programs
