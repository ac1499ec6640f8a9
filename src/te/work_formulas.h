// How much work one call of a kernel is, as expressions of the symbols in its shapes: what count_flops and count_bytes
// (tensor_program.h) count where all sizes are numbers, and what a module says of kernels whose sizes a run decides.
#pragma once

#include "te/tensor_program.h"

namespace tessera::inline tensor_programs {

// Floating-point operations, as count_flops counts them. Normalised: a constant where the shapes are.
Expr flops_formula(const TensorProgram& program);
// Bytes of all parameters and the output, each once, in their physical shapes. Normalised.
Expr bytes_formula(const TensorProgram& program);

}  // namespace tessera::inline tensor_programs
