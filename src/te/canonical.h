// What a tensor program computes, as a text that does not depend on names: the key under which a tuner remembers it.
#pragma once

#include <string>
#include <string_view>

#include "te/tensor_program.h"

namespace tessera::inline tensor_programs {

// Two programs have the same text when they compute the same expressions in the same order from parameters of the same
// types and layouts; names of programs, buffers and variables do not count, and neither does whether equal
// sub-expressions are one node. As long as the program is; each distinct expression stands on a line of its own.
std::string canonical_text(const TensorProgram& program);

// The program of a canonical text, with names of its own; canonical_text() of it is `text`. Every rule of types, axes,
// layouts and sizes is checked; that accesses stay inside their tensors is not. UserError TSR-6406 for any other text,
// and for programs with symbolic sizes, windows or several results.
TensorProgram parse_canonical_text(std::string_view text);

// 16 hexadecimal digits.
std::string structural_hash(const std::string& canonical_text);

}  // namespace tessera::inline tensor_programs
