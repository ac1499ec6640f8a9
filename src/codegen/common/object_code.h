// What a back end hands to packaging.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "program/program.h"

namespace tessera::inline codegen {

struct CodegenOptions {
  int opt_level = 3;      // 0..3; 0 generates code quickly and runs no optimisation passes
  bool want_ir = false;   // fill ObjectCode::llvm_ir
  bool want_asm = false;  // fill ObjectCode::assembly
  std::string module_name = "tessera";
};

struct ObjectCode {
  std::vector<std::byte> object;     // a relocatable object, position independent
  std::vector<std::string> link;     // files that define the symbols it refers to (of declared intrinsics)
  std::string llvm_ir, assembly;     // after optimisation; only when asked for
  int64_t scratch_bytes = 0;         // per worker, for Program::scratch_bytes and the descriptor
  std::vector<std::string> remarks;  // "kernel: what was not done, and why", in program order
};

}  // namespace tessera::inline codegen
