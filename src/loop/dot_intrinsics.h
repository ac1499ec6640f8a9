// The entries of the table of intrinsics that sum up several products in one lane: pairs of 16-bit numbers, groups of
// four of 8 bits, 32 of one bit, and tiles of them. Patterns are texts of loop IR, but for those of tiles.
#pragma once

#include <vector>

#include "loop/intrinsic.h"

namespace tessera::inline loop {

// `table` and they; entries of the table that have the same instruction get the pattern.
std::vector<TensorIntrinsic> with_dot_intrinsics(std::vector<TensorIntrinsic> table);

}  // namespace tessera::inline loop
