#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "schedule/gpu/gpu_loops.h"
#include "schedule/gpu/gpu_rules.h"
#include "schedule/kernel/linear_kernel.h"
#include "schedule/kernel/loop_builder.h"
#include "schedule/kernel/partial_results.h"

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
  const auto kernel = make_linear_kernel(program, why, Results::kPairs);
  if (!kernel) return Declined{why};
  const std::vector<LinearReduction> reductions = all_reductions(*kernel);
  if (reductions.empty()) return Declined{"nothing is reduced"};
  FlatAxes outputs, steps;
  for (const OutputLoop& loop : kernel->loops) outputs.add(loop.var, loop.extent);
  for (const Axis& axis : kernel->reduce) steps.add(axis.var, *as_int(axis.extent));
  if (steps.extent < kLeastSteps)
    return Declined{fmt::format("a reduction of {} steps is no work for a block", steps.extent)};
  if (outputs.extent >= limits.wanted_threads)
    return Declined{fmt::format("{} outputs keep the device busy by themselves", outputs.extent)};
  const int64_t threads = threads_for(steps.extent, limits.threads);
  Bounds bounds = kernel->bounds;
  const Var block = make_var("block");
  bounds.set(block, 0, outputs.extent - 1);
  VarMap at;
  outputs.values_at(block, bounds, at);
  // Nothing is read or stored where a layout's blocks are filled up.
  const Expr logical = kernel->padded ? kernel->inside() : Expr();
  const Expr inside = logical ? simplify(substitute(logical, at), bounds) : const_int(DType::kBool, 1);

  const Partials partial = make_partials(reductions, "partial", {threads}, MemoryScope::kLocal);
  int64_t bytes = 0;
  for (const LinearReduction& reduction : reductions) bytes += dtype_bytes(reduction.dtype, threads);
  if (bytes > limits.shared_bytes) return Declined{"the partial results do not fit in shared memory"};

  // Each thread by itself,
  std::vector<Stmt> parts;
  parts.push_back(thread_nest(
      "thread", 1, threads,
      [&](const Expr&, const Expr& thread) {
        const Partials sums = make_partials(reductions, "acc", {1});
        std::vector<Stmt> all = {clear_partials(reductions, sums, {0})};
        all.push_back(serial_loop(
            "round", (steps.extent + threads - 1) / threads,
            [&](const Var& round) {
              const Expr step = round * Expr(threads) + thread;
              VarMap here = at;
              steps.values_at(step, bounds, here);
              const Stmt update = add_element(reductions, sums, {0}, here);
              Expr there = inside;
              if (steps.extent % threads != 0) there = logical_and(there, step < Expr(steps.extent));
              return is_true(there) ? update : if_then(there, update);
            },
            bounds));
        for (size_t r = 0; r < reductions.size(); ++r) all.push_back(store(partial[r], {thread}, load(sums[r], {0})));
        return alloc_all(sums, seq(std::move(all)));
      },
      bounds));
  // then pairs of them, half as many threads at each level,
  for (int64_t half = threads / 2; half > 0; half /= 2)
    parts.push_back(thread_nest(
        fmt::format("pair{}", half), 1, half,
        [&](const Expr&, const Expr& thread) {
          return add_partials(reductions, partial, {thread}, partial, {thread + Expr(half)});
        },
        bounds));
  // and the first one finishes.
  parts.push_back(thread_nest(
      "last", 1, 1,
      [&](const Expr&, const Expr&) {
        VarMap finish = at;
        finish_partials(reductions, partial, {0}, finish);
        Stmt body = with_results(*kernel, 1, [&](const StoreResults& store_at) { return store_at(finish, 0); });
        return is_true(inside) ? body : if_then(inside, body);
      },
      bounds));
  const Stmt body = alloc_all(partial, seq(std::move(parts)));
  return gpu_program(program.name, *kernel, for_loop(block, 0, outputs.extent, ForKind::kBlockX, body));
}

}  // namespace tessera::inline schedule
