// The schedule rules of GPUs: loops over blocks and threads, memory that a block's threads share, registers of each
// thread (device/thread_form.h says what these mean). As for a CPU, rules are asked in order, and the first that takes
// a kernel writes its loops; every rule keeps what the kernel computes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "loop/stmt.h"
#include "schedule/choose.h"
#include "te/tensor_program.h"
#include "types/numerics.h"

namespace tessera::inline schedule {

// What a rule may use of a device. The defaults are what every OpenCL device of the full profile has, or nearly all.
struct GpuLimits {
  int64_t threads = 256;            // of a block; a power of two, at least 64
  int64_t shared_bytes = 32 << 10;  // of a block
  // Of a block whose pieces are copied ahead (IntrinsicCode::kAsyncCopy), with few others beside it. 0: products fetch
  // by registers, and nothing has more than shared_bytes.
  int64_t staged_bytes = 0;
  int64_t wanted_threads = 1 << 13;  // that keep a device busy
  bool warp_products = false;        // tensor cores: products of bf16 and f16 by the threads of a warp
  int64_t multiprocessors = 32;      // that work at the same time
  int64_t sums_of_thread = 4;        // rows, and columns, of a product that a thread has in registers, at most
};

using GpuRuleResult = std::variant<LoopProgram, Declined>;

struct GpuRule {
  std::string_view name;
  std::string_view summary;
  Numerics numerics;
  GpuRuleResult (*apply)(const TensorProgram& kernel, const GpuLimits& limits);
};
// In the order in which they are asked.
std::span<const GpuRule> gpu_rules();

struct GpuAnswer {
  std::string_view rule;
  LoopProgram program;
  std::vector<std::string> refused;  // "rule: reason" of those that were asked before
};
// Declined with the last rule's reason when none takes the kernel.
std::variant<GpuAnswer, Declined> schedule_for_gpu(const TensorProgram& kernel, const GpuLimits& limits,
                                                   Numerics loosest = Numerics::kAlgorithm);

// ---- the rules ----

// Products of matrices and convolutions whose operands are bf16 or f16, on tensor cores: warps of a block multiply
// tiles of the operands' pieces in shared memory, while the next pieces come: by asynchronous copies, several ahead,
// where both operands are read in vectors, else to registers.
GpuRuleResult gpu_mma(const TensorProgram& kernel, const GpuLimits& limits);

// Sums of products of two operands, each of which depends on output axes that the other does not: products of matrices,
// convolutions (as the products that they are, whatever their windows, strides and padding). A block computes a tile of
// rows by columns; step by step of the sum its threads bring a piece of both operands to shared memory, and each thread
// sums a smaller tile in registers.
GpuRuleResult gpu_tile(const TensorProgram& kernel, const GpuLimits& limits);

// Reductions whose neighbours in memory are outputs, as of a vector with a matrix: threads of a block along the
// outputs, and groups of them along the reduction.
GpuRuleResult gpu_columns(const TensorProgram& kernel, const GpuLimits& limits);

// Long reductions with few outputs: a block for each output, whose threads take turns, and then pairs of partial
// results.
GpuRuleResult gpu_reduce(const TensorProgram& kernel, const GpuLimits& limits);

// Elements of which an operand has its neighbours along another axis than the output, as a transposition's: tiles go
// through shared memory, so that both are read and written in rows.
GpuRuleResult gpu_turn(const TensorProgram& kernel, const GpuLimits& limits);

// Everything else: a thread for each element of the output.
GpuRuleResult gpu_map(const TensorProgram& kernel, const GpuLimits& limits);

}  // namespace tessera::inline schedule
