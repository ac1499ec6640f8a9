// The languages of GPUs that kernels are printed in, as rows for the printers of codegen/source.
#pragma once

#include <string>

#include "codegen/source/dialect.h"

namespace tessera::inline gpu_codegen {

const Dialect& opencl_c();  // 1.2
const Dialect& cuda_cpp();
const Dialect& hip_cpp();  // for AMD's GPUs, as hipcc or clang take it

// What stands before the kernels of a source: types, and names of C's headers that helpers use. `doubles`: f64 is used;
// `kernels`: their text, whose products of warps are defined.
std::string prelude_of(const Dialect& dialect, bool doubles, const std::string& kernels);

}  // namespace tessera::inline gpu_codegen
