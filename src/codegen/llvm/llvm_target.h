// Targets as LLVM knows them. Only for files of this room.
#pragma once

#include <memory>
#include <string>

#include "codegen/llvm/llvm_headers.h"
#include "target/target.h"

namespace tessera::inline llvm_codegen {

// Registers LLVM's targets, once in the process.
void initialize_llvm();

// LLVM's target of a triple; UserError TSR-5001 when it has none.
const llvm::Target& find_llvm_target(const std::string& triple);

std::unique_ptr<llvm::TargetMachine> make_target_machine(const Target& target, int opt_level);

// "+avx2,+fma,...": exactly the target's features; those that its cpu would imply and the target lacks are switched
// off.
std::string llvm_features(const Target& target);

}  // namespace tessera::inline llvm_codegen
