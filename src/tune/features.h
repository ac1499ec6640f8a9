// What a cost model sees of a loop program: numbers after Ansor's set (Zheng et al., "Ansor: generating
// high-performance tensor programs for deep learning", 2020, appendix B), in logarithms where they are counts.
//
// For the stores of a program one after another: arithmetic by kind, what the loops around them are (vectorized,
// unrolled, parallel, serial) and how long, and for the buffers that are accessed most: bytes, distinct bytes and cache
// lines, reuse, strides along the innermost loops; a curve of arithmetic intensity along the nest. The vector of a
// program is that of the store with most iterations, then sums over all stores, then what is allocated.
#pragma once

#include <string>
#include <vector>

#include "loop/stmt.h"

namespace tessera::inline tune {

// Changes with what any of the numbers means: models of another version are refused.
inline constexpr char kFeatureVersion[] = "1";

// As many for every program.
std::vector<float> program_features(const LoopProgram& program);
size_t num_program_features();

}  // namespace tessera::inline tune
