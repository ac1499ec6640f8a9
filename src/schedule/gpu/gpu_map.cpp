#include <algorithm>
#include <utility>

#include "schedule/gpu/gpu_loops.h"
#include "schedule/gpu/gpu_rules.h"
#include "schedule/kernel/linear_kernel.h"
#include "schedule/kernel/loop_builder.h"

namespace tessera::inline schedule {

GpuRuleResult gpu_map(const TensorProgram& program, const GpuLimits& limits) {
  std::string why;
  const auto kernel = make_linear_kernel(program, why, Results::kSeveral);
  if (!kernel) return Declined{why};
  Bounds bounds = kernel->bounds;
  FlatAxes outputs;
  for (const OutputLoop& loop : kernel->loops) outputs.add(loop.var, loop.extent);
  const int64_t threads = std::min(limits.threads, (outputs.extent + 31) / 32 * 32);
  const int64_t blocks = (outputs.extent + threads - 1) / threads;
  if (blocks > INT32_MAX) return Declined{"too many elements for a grid of blocks"};
  const Var block = make_var("block");
  bounds.set(block, 0, blocks - 1);
  const Stmt body = thread_nest(
      "thread", 1, threads,
      [&](const Expr&, const Expr& thread) {
        const Expr number = block * Expr(threads) + thread;
        VarMap at;
        outputs.values_at(number, bounds, at);
        Stmt element = one_element(*kernel, at);
        if (const Expr inside = kernel->padded ? kernel->inside() : Expr(); inside)
          element = if_then(substitute(inside, at), element);
        return blocks * threads == outputs.extent ? element : if_then(number < Expr(outputs.extent), element);
      },
      bounds);
  return gpu_program(program.name, *kernel, for_loop(block, 0, blocks, ForKind::kBlockX, body));
}

}  // namespace tessera::inline schedule
