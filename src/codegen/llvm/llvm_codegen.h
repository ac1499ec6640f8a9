// A program to object code through LLVM.
#pragma once

#include "codegen/common/object_code.h"
#include "target/target.h"

namespace tessera::inline llvm_codegen {

// The object defines one exported function, TSR_ENTRY_SYMBOL of abi/module_abi.h, and refers to no other symbol but
// those of intrinsics that are calls. Offsets in `program` must be planned, and expand_math (loop_passes/expand_math.h)
// run on its kernels. Throws UserError TSR-5xxx for a target that LLVM cannot generate code for. Several calls may run
// at once.
ObjectCode generate_llvm(const Program& program, const Target& target, const CodegenOptions& options);

// The kernels of one of the program's devices, for a device that runs code of a CPU: functions
// `void op_N(void** slots, const tsr_host* host)`, whose slots are a pointer for each parameter, one to scratch memory,
// and the values of the kernel's symbols.
DeviceCode generate_llvm_operations(const Program& program, int32_t device, const Target& target,
                                    const CodegenOptions& options);

}  // namespace tessera::inline llvm_codegen
