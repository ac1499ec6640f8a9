// The kernels of one of a program's devices as source for a GPU, with a table of what to launch in front of it:
//
//   //tsr 1 opencl                         version, dialect
//   //tsr limits 256 8256 0                threads of a block and bytes that it shares, at most; whether f64 is used
//   //tsr operation op_3 4 0 1             entry, buffers, symbols, launches
//   //tsr launch k3_conv 49 1 1 16 16 1    kernel, blocks along x, y and z, threads along x, y and z
//   ...source...
//
// A number of blocks that depends on symbols is a formula (abi/launch_table.h).
//
// A kernel gets the operation's buffers, each as memory and an offset in bytes (OpenCL) or as a pointer (CUDA), then
// the values of its symbols. `src/runtime/opencl` reads the table.
#pragma once

#include <cstdint>
#include <string>

#include "codegen/source/dialect.h"
#include "program/program.h"

namespace tessera::inline gpu_codegen {

// REQUIRES: a planned program, whose mathematical functions are expanded, and no_gpu_code of the device's kernels
// empty.
std::string generate_gpu_source(const Program& program, int32_t device, const Dialect& dialect);

// Why there is no GPU code for a kernel: elements without a type there, loops without a thread form, numbers of blocks
// without a formula. Empty: there is.
std::string no_gpu_code(const LoopProgram& program);

}  // namespace tessera::inline gpu_codegen
