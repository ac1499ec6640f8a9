// What a back end hands to packaging.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "program/program.h"
#include "target/target.h"

namespace tessera::inline codegen {

struct CodegenOptions {
  int opt_level = 3;      // 0..3; 0 generates code quickly and runs no optimisation passes
  bool want_ir = false;   // fill ObjectCode::llvm_ir
  bool want_asm = false;  // fill ObjectCode::assembly
  std::string module_name = "tessera";
  // The machine whose bits the code gives, where that is not the target's own matter: vectors are cut as its registers
  // are, and multiply-adds, minima and maxima are the same everywhere. Null: what suits the target. Outlives the call.
  const Target* bits_of = nullptr;
  // The machine whose registers vectors are cut into, where the program was scheduled for another one than the target.
  // Null: the target's own. Outlives the call.
  const Target* lanes_of = nullptr;
  std::string suffix = {};  // behind the names of the exported functions
};

// The code of one of a program's devices.
struct DeviceCode {
  std::vector<std::byte> object;  // relocatable; an entry for each kernel of the device, by operation_name
  std::vector<std::string> link;  // files that define the symbols it refers to
  int64_t scratch_bytes = 0;      // that one operation needs
  std::vector<std::string> remarks;
};

// The entry of a kernel in its device's code.
inline std::string operation_name(int32_t kernel) { return "op_" + std::to_string(kernel); }
inline constexpr const char* kOperationNames = "op_*";  // a linker's pattern that fits them all

struct ObjectCode {
  std::vector<std::byte> object;     // a relocatable object, position independent
  std::vector<std::string> link;     // files that define the symbols it refers to (of declared intrinsics)
  std::string llvm_ir, assembly;     // after optimisation; only when asked for
  int64_t scratch_bytes = 0;         // per worker, for Program::scratch_bytes and the descriptor
  std::vector<std::string> remarks;  // "kernel: what was not done, and why", in program order
};

}  // namespace tessera::inline codegen
