// Whether a kernel may write its output over one of its inputs.
//
// It may when each element of the input is read for the last time before the output's element at the same place is
// written. That is proved from the loop program alone, by two facts:
//   - every load of the input stands in the value of a store to the output, at the indices of that store, or in a
//     statement before such a store, inside of the same loops and conditions and at its indices; and the output itself
//     is never loaded;
//   - all stores to the output together run no more often than it has elements. Since a kernel writes every element of
//     its output, it writes each one once, and no later iteration sees the new contents.
// The order of iterations does not matter then, so vectors and threads may run them in any order.
#pragma once

#include <cstddef>
#include <string>

#include "loop/stmt.h"

namespace tessera::inline program {

// Empty when parameter `output` may take the bytes of parameter `input`; else the reason why not, for people.
// `elements` is the number of elements that the kernel has to write: those of the logical shape.
std::string why_not_in_place(const LoopProgram& kernel, size_t input, size_t output, int64_t elements);

}  // namespace tessera::inline program
