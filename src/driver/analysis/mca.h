// What LLVM's machine code analyser says about the loop where the time goes.
#pragma once

#include <string>

#include "target/target.h"

namespace tessera::inline driver {

// `assembly` in LLVM's syntax for the target. The innermost loop with the most floating-point instructions is cut out
// and given to llvm-mca (of LLVM 19's Debian package, found in PATH) as if it ran alone with its data in the L1 cache.
// Answers the loop, cycles per iteration, and llvm-mca's own report. UserError TSR-3422 when there is no llvm-mca,
// TSR-3423 when it fails or the assembly has no loop.
std::string analyze_inner_loop(const std::string& assembly, const Target& target);

// The loop that would be analysed, a line per instruction; empty when there is none.
std::string hottest_inner_loop(const std::string& assembly);

}  // namespace tessera::inline driver
