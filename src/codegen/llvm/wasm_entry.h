// What makes a whole of a program's functions where there is no run time: the structures of the module ABI as
// constants, the memory that they point to, and the functions that a WebAssembly module exports.
#pragma once

#include "codegen/llvm/llvm_headers.h"
#include "codegen/llvm/wasm_module.h"
#include "program/program.h"

namespace tessera::inline llvm_codegen {

// Adds them to `module`, which has the program's functions. `scratch_bytes`: that its kernels need.
WasmLayout add_wasm_entry(llvm::Module& module, const Program& program, int64_t scratch_bytes);

}  // namespace tessera::inline llvm_codegen
