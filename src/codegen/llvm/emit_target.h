// What code is emitted for.
#pragma once

#include "target/target.h"

namespace tessera::inline llvm_codegen {

struct EmitTarget {
  const Target& machine;            // whose instructions the code has
  const Target* bits_of = nullptr;  // the machine whose bits it gives (CodegenOptions::bits_of); null: its own
  const Target* lanes = nullptr;    // the machine that the program was scheduled for; null: the same
  bool is_fixed() const { return bits_of != nullptr; }
  // The machine whose vectors loops are cut into: what is summed in lanes depends on it.
  const Target& lanes_of() const { return bits_of ? *bits_of : lanes ? *lanes : machine; }
};

}  // namespace tessera::inline llvm_codegen
