// Targets: the machine at hand, and those that a user names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "target/target.h"

namespace tessera::inline llvm_codegen {

// This machine: its features as CPUID reports them (the name is only a tuning hint and may be wrong in virtual
// machines), its cache sizes, and the processors this process may run on.
Target native_target();

// "native", "x86-64-v2", "x86-64-v3", "x86-64-v4", or "TRIPLE[,cpu=NAME][,+feature][,-feature]...". For targets other
// than native the cache sizes are typical ones and num_threads is the one of this machine.
// UserError TSR-5001 (no such target), TSR-5002 (cpu), TSR-5003 (feature), each listing what is legal.
Target parse_target(std::string_view spec);

// The features without which code for `target` cannot run: what a module's descriptor lists and its loader checks.
std::vector<std::string> required_features(const Target& target);

// Whether code for `target` runs on this machine: the same architecture and no feature that is missing here.
bool runs_here(const Target& target);

}  // namespace tessera::inline llvm_codegen
