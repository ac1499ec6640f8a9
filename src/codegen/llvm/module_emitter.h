// A program as one LLVM module: its kernels, and the exported function that calls them in order.
#pragma once

#include <string>
#include <vector>

#include "codegen/llvm/emit_target.h"
#include "codegen/llvm/llvm_headers.h"
#include "program/program.h"

namespace tessera::inline llvm_codegen {

struct EmittedModule {
  int64_t scratch_bytes = 0;  // per worker
  std::vector<std::string> remarks;
};

// Fills `module`, which is empty and has the target's triple and data layout. `suffix` is put behind the names of the
// exported functions.
EmittedModule emit_module(llvm::Module& module, const Program& program, const EmitTarget& target,
                          const std::string& suffix);

// The same for the kernels of a device alone, each an exported function.
EmittedModule emit_operations(llvm::Module& module, const Program& program, int32_t device, const EmitTarget& target);

}  // namespace tessera::inline llvm_codegen
