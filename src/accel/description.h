// An accelerator, as one file describes it: memories with capacities, queues that run beside each other, and
// instructions. Everything else follows from the file: the tensor intrinsics that a schedule names, the fields of an
// instruction and their widths, what an instruction computes, and how long it takes.
//
// An instruction is a kernel in loop IR, its core, and a number of loops that the hardware runs around it: each step of
// a loop moves each operand by a stride of its own. Operands lie in memories of the accelerator or in DRAM. An
// instruction moves data when it has an operand in DRAM, and computes otherwise.
//
//   {"name": "vdla", "clock_mhz": 200,
//    "dram": {"bytes_per_cycle": 8, "latency": 60, "burst": 64},
//    "fetch": {"cycles": 2, "queue_depth": 64}, "threads": 2,
//    "memories": [{"name": "inp", "bytes": 32768, "element": 16}, ..],
//    "queues": ["load", "compute", "store"],
//    "instructions": [
//      {"name": "gemm", "queue": "compute", "loops": 4, "cycles": "n0 * n1 * n2 * n3 + 4",
//       "operands": {"x": "inp", "w": "wgt", "d": "acc"},
//       "kernel": "kernel @gemm(x: i8[16], w: i8[16,16]) -> (d: i32[16]) { .. }"}, ..]}
//
// `element`: bytes of the smallest place that can be addressed. `cycles`: an expression of the loops' extents. Also of
// an instruction: "padded": ["s"], operands that may be zeros outside of a box of the loops' steps; "moves": true, its
// elements are of any type as wide as the kernel's; "stationary": {"w": 2}, the innermost loops that do not move an
// operand; "immediates": {"n": [-128, 127]}, the range of each of the kernel's
// symbols; "extent_bits", default 10.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "loop/intrinsic.h"

namespace tessera::inline accel {

inline constexpr int kDram = -1;

struct UnitMemory {
  std::string name;
  int64_t bytes = 0, element = 1;
};

struct UnitInstruction {
  std::string name;  // "gemm"; the intrinsic's is "vdla.gemm"
  int queue = 0;
  int loops = 0;
  int extent_bits = 10;
  const TensorIntrinsic* intrinsic = nullptr;  // static lifetime
  std::vector<int> operands;                   // the memory of each parameter of the kernel, or kDram
  std::vector<bool> padded;                    // of each parameter
  // Of each parameter: how many of the innermost loops do not move it, as it stays in the array that multiplies.
  std::vector<int> stationary;
  std::vector<Var> extents;  // n0, n1, .. in `cycles`
  Expr cycles;               // besides what DRAM takes
  int dram_operand() const;  // -1 where it computes
};

struct Accelerator {
  std::string name;
  double clock_mhz = 0;
  int64_t dram_bytes_per_cycle = 0, dram_latency = 0, dram_burst = 1;
  int64_t fetch_cycles = 1, queue_depth = 1;
  int threads = 2;  // virtual ones, in the loops that a network's kernels get: 1 or 2
  std::vector<UnitMemory> memories;
  std::vector<std::string> queues;
  std::vector<UnitInstruction> instructions;

  Intrinsics intrinsics() const;
  // The instruction of an intrinsic, or null.
  const UnitInstruction* find(const TensorIntrinsic* intrinsic) const;
};

// UserError TSR-3501 for what cannot be such a file, naming the entry; TSR-31xx for the text of a kernel.
Accelerator read_accelerator(std::string_view text, const std::string& file);

// Bytes of an operand of one step: the kernel's parameter, dense.
int64_t core_bytes(const UnitInstruction& instruction, size_t operand);

}  // namespace tessera::inline accel
