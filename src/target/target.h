// The machine that code is generated for, as data: what the schedule rules and the back ends may know of it. What
// follows from its architecture and features is looked up in the architecture's rows (architecture.h); what cannot be
// read off a feature was measured on a kind of processor (processors.h). What a user wants of numbers is no property of
// a machine: types/numerics.h.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "target/architecture.h"
#include "target/processors.h"

namespace tessera::inline target {

struct Target {
  std::string triple;              // "x86_64-unknown-linux-gnu"
  std::string cpu;                 // LLVM's name, "x86-64-v3": a tuning hint, features are what counts
  std::set<std::string> features;  // LLVM's names without '+': "avx2", "fma"
  // Units that the processor does not have and code stands in for, in plain memory (kPortableTiles). For tests.
  std::set<std::string> emulated = {};
  int64_t l1_bytes = 32 << 10;
  int64_t l2_bytes = 1 << 20;
  int64_t l3_bytes = 8 << 20;
  MeasuredRatios ratios = {};
  int num_threads = 1;  // what parallel loops are cut for

  // Of features and emulated units.
  bool has(const std::string& name) const { return features.contains(name) || emulated.contains(name); }
  bool has_all(std::string_view names) const;  // "avx2,fma"; of no names: yes

  Isa isa() const { return architecture().isa; }
  const Architecture& architecture() const { return architecture_of(triple); }
  // The widest one that the machine has.
  const VectorFile& vectors() const;
  // Null when it has none.
  const MatrixUnit* matrix_unit() const;

  int vector_bits() const { return vectors().bits; }            // of the widest float vectors: 128, 256 or 512
  int vector_registers() const { return vectors().registers; }  // 16 or 32
  bool has_fma() const { return vectors().fused; }
  int f32_lanes() const { return vector_bits() / 32; }
};

// What a kernel's values may lie in, from the nearest on, and how much of it one thread has.
struct MemorySpace {
  std::string_view name;  // "registers", "L1", "L2", "L3", "memory"
  int64_t bytes = 0;      // 0: not known, and taken for enough
  bool shared = false;    // by all threads
};
std::vector<MemorySpace> memory_spaces(const Target& target);

// The machine that all decisions are taken for where the bits of results may not depend on the machine: vectors of 8
// floats, 16 registers, multiply-adds rounded once, no intrinsics, and caches and threads as most machines have them.
// No code is generated for it.
Target reference_machine();

}  // namespace tessera::inline target
