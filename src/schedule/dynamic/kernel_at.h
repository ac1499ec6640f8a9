// A kernel of open sizes as it is at one of them.
#pragma once

#include <vector>

#include "program/symbolic_sizes.h"
#include "te/tensor_program.h"

namespace tessera::inline schedule {

// The kernel with the symbols' values in shapes, extents and bodies. `point` has a value for each of `symbols`.
TensorProgram kernel_at(const TensorProgram& kernel, const std::vector<SymbolRange>& symbols, const SizePoint& point);

}  // namespace tessera::inline schedule
