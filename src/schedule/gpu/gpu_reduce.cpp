#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "schedule/gpu/block_reduction.h"
#include "schedule/gpu/gpu_loops.h"
#include "schedule/gpu/gpu_rules.h"
#include "schedule/kernel/linear_kernel.h"
#include "schedule/kernel/loop_builder.h"

namespace tessera::inline schedule {
namespace {

constexpr int64_t kLeastSteps = 64;  // of a reduction that is worth a block

// The largest power of two up to both.
int64_t threads_for(int64_t steps, int64_t most) {
  int64_t threads = 1;
  while (threads * 2 <= std::min(steps, most)) threads *= 2;
  return threads;
}

}  // namespace

GpuRuleResult gpu_reduce(const TensorProgram& program, const GpuLimits& limits) {
  std::string why;
  const auto kernel = make_linear_kernel(program, why, Results::kPairs, Sizes::kOpen);
  if (!kernel) return Declined{why};
  const std::vector<LinearReduction> reductions = all_reductions(*kernel);
  if (reductions.empty()) return Declined{"nothing is reduced"};
  FlatAxes outputs, steps;
  for (const OutputLoop& loop : kernel->loops) outputs.add(loop.var, loop.size);
  for (const Axis& axis : kernel->reduce) steps.add(axis.var, axis.extent);
  if (steps.extent < kLeastSteps)
    return Declined{fmt::format("a reduction of {} steps is no work for a block", steps.extent)};
  if (outputs.extent >= limits.wanted_threads)
    return Declined{fmt::format("{} outputs keep the device busy by themselves", outputs.extent)};
  const int64_t threads = threads_for(steps.extent, limits.threads);
  Bounds bounds = kernel->bounds;
  if (!outputs.is_at_most(INT32_MAX)) return Declined{"too many outputs for a grid of blocks"};
  const Var block = var_below("block", outputs.size, bounds);
  VarMap at;
  outputs.values_at(block, bounds, at);
  // Nothing is read or stored where a layout's blocks are filled up.
  const Expr logical = kernel->padded ? kernel->inside() : Expr();
  const Expr inside = logical ? simplify(substitute(logical, at), bounds) : const_int(DType::kBool, 1);

  const BlockReduction reduction{reductions, steps, threads, at, inside};
  if (reduction.shared_bytes() > limits.shared_bytes)
    return Declined{"the partial results do not fit in shared memory"};
  const Stmt body = reduction.build(bounds, [&](const VarMap& finished) {
    return with_results(*kernel, 1, [&](const StoreResults& store_at) { return store_at(finished, 0); });
  });
  return gpu_program(program.name, *kernel, for_loop(block, 0, outputs.size, ForKind::kBlockX, body));
}

}  // namespace tessera::inline schedule
