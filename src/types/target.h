// The machine that code is generated for: what the schedule rules and the back ends may know of it. Features are
// what counts; a CPU's name is only a tuning hint.
#pragma once

#include <cstdint>
#include <set>
#include <string>

namespace tessera::inline types {

struct Target {
  std::string triple;              // "x86_64-unknown-linux-gnu"
  std::string cpu;                 // LLVM's name, "x86-64-v3"
  std::set<std::string> features;  // LLVM's names without '+': "avx2", "fma"
  int64_t l1_bytes = 32 << 10;
  int64_t l2_bytes = 1 << 20;
  int64_t l3_bytes = 8 << 20;
  int num_threads = 1;  // what parallel loops are cut for

  bool has(const std::string& feature) const { return features.count(feature) != 0; }
  int vector_bits() const;       // of the widest float vectors: 128, 256 or 512
  int vector_registers() const;  // 16 or 32
  bool has_fma() const;
  int f32_lanes() const { return vector_bits() / 32; }
};

// The machine that all decisions are taken for where the bits of results may not depend on the machine: vectors of 8
// floats, 16 registers, multiply-adds rounded once, no intrinsics, and caches and threads as most machines have them.
// No code is generated for it.
Target reference_machine();

}  // namespace tessera::inline types
