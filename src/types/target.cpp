#include "types/target.h"

namespace tessera::inline types {

int Target::vector_bits() const {
  if (has("avx512f")) return 512;
  if (has("avx")) return 256;
  return 128;
}

int Target::vector_registers() const { return has("avx512f") || triple.starts_with("aarch64") ? 32 : 16; }

bool Target::has_fma() const {
  return has("fma") || has("avx512f") || triple.starts_with("aarch64") || (triple.starts_with("riscv64") && has("d"));
}

Target reference_machine() {
  Target machine;
  machine.triple = machine.cpu = "reference";
  machine.features = {"avx", "fma"};
  machine.num_threads = 4;
  return machine;
}

}  // namespace tessera::inline types
