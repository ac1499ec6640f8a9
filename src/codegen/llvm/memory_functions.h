// memset, memcpy, memmove and memcmp for modules that objects of others become part of: C compilers make calls of them
// out of plain loops, and a module has no C library.
#pragma once

#include "codegen/llvm/llvm_headers.h"

namespace tessera::inline llvm_codegen {

// Defines those four in the module: hidden and weak, so that a linked object may bring its own, and each in a section
// of its own, so that the linker drops those nobody calls. REQUIRES: the module has none of them.
void add_memory_functions(llvm::Module& module);

}  // namespace tessera::inline llvm_codegen
