// The memory of a run where no host hands it out: what stands beside the arena in forms that bring their own (C source,
// WebAssembly).
#pragma once

#include <cstdint>
#include <vector>

#include "program/program.h"

namespace tessera::inline codegen {

// All offsets and sizes are in bytes, multiples of 64.
struct RunMemory {
  int64_t scratch = 0;               // of kernels, behind the plan's arena
  std::vector<int64_t> checks;       // in the arena: the numbers that each check of a run writes
  std::vector<int64_t> next_states;  // in the arena: what each state becomes; -1 where it is written in its place
  int64_t arena_bytes = 0;           // of the plan's arena and all of that
  std::vector<int64_t> states;       // in a memory of their own, which lives from run to run
  int64_t state_bytes = 0;
};

// Of a planned program of fixed sizes; `scratch_bytes`: of the kernel that needs most.
RunMemory plan_run_memory(const Program& program, int64_t scratch_bytes);

}  // namespace tessera::inline codegen
