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

constexpr int64_t kLeastSteps = 32;  // of a reduction that is worth several threads
constexpr int64_t kWidth = 32;       // outputs of a block, whose operands a warp reads together
constexpr int64_t kInFlight = 16;    // steps whose operands a thread waits for at once

}  // namespace

GpuRuleResult gpu_columns(const TensorProgram& program, const GpuLimits& limits) {
  std::string why;
  const auto kernel = make_linear_kernel(program, why, Results::kPairs, Sizes::kOpen);
  if (!kernel) return Declined{why};
  const std::vector<LinearReduction> reductions = all_reductions(*kernel);
  if (reductions.empty()) return Declined{"nothing is reduced"};
  if (kernel->padded) return Declined{"the output's layout has blocks"};
  FlatAxes outputs, steps;
  for (const OutputLoop& loop : kernel->loops) outputs.add(loop.var, loop.size);
  for (const Axis& axis : kernel->reduce) steps.add(axis.var, axis.extent);
  if (steps.extent < kLeastSteps)
    return Declined{fmt::format("a reduction of {} steps is no work for several threads", steps.extent)};
  if (outputs.extent >= limits.wanted_threads)
    return Declined{fmt::format("{} outputs keep the device busy by themselves", outputs.extent)};
  if (kernel->loops.empty() || typical_size(kernel->loops.back().size) < kWidth)
    return Declined{"there are no neighbours in the output"};
  const auto side_by_side = [&](const Var& var) {
    return std::any_of(reductions.begin(), reductions.end(), [&](const LinearReduction& reduction) {
      return reads_neighbours(reduction.value, var, kernel->bounds);
    });
  };
  if (!side_by_side(kernel->loops.back().var) || side_by_side(kernel->reduce.back().var))
    return Declined{"neighbours in memory are steps of the reduction"};

  const int64_t groups = limits.threads / kWidth;
  Bounds bounds = kernel->bounds;
  if (!outputs.is_at_most(INT32_MAX, kWidth)) return Declined{"too many outputs for a grid of blocks"};
  const Expr blocks = outputs.tiles(kWidth);
  const Var block = var_below("block", blocks, bounds);
  const auto output_of = [&](const Expr& x) { return block * Expr(kWidth) + x; };
  const auto if_inside = [&](const Expr& x, Stmt body) {
    return outputs.has_whole(kWidth) ? body : if_then(output_of(x) < outputs.size, std::move(body));
  };
  const Partials partial = make_partials(reductions, "partial", {groups, kWidth}, MemoryScope::kLocal);
  int64_t bytes = 0;
  for (const LinearReduction& reduction : reductions) bytes += dtype_bytes(reduction.dtype, groups * kWidth);
  if (bytes > limits.shared_bytes) return Declined{"the partial results do not fit in shared memory"};

  // Each group takes every groups-th step,
  const Stmt sums = thread_nest(
      "group", groups, kWidth,
      [&](const Expr& group, const Expr& x) {
        VarMap at;
        outputs.values_at(output_of(x), bounds, at);
        const Partials sums = make_partials(reductions, "acc", {1});
        std::vector<Stmt> all = {clear_partials(reductions, sums, {0})};
        const auto update = [&](const Expr& step) {
          VarMap here = at;
          steps.values_at(step, bounds, here);
          return add_element(reductions, sums, {0}, here);
        };
        std::vector<Stmt> loops;
        const int64_t round = groups * kInFlight;
        const Expr whole = simplify(floordiv(steps.size, Expr(round)));
        const Expr rest = simplify(steps.size - whole * Expr(round));
        if (!is_const_int(whole, 0))
          loops.push_back(serial_loop(
              "round", whole,
              [&](const Var& number) {
                return unrolled_loop(
                    "flight", kInFlight,
                    [&](const Var& i) { return update((number * Expr(kInFlight) + i) * Expr(groups) + group); },
                    bounds);
              },
              bounds));
        if (!is_const_int(rest, 0))
          loops.push_back(serial_loop(
              "rest", simplify(floordiv(rest + Expr(groups - 1), Expr(groups))),
              [&](const Var& number) {
                const Expr step = whole * Expr(round) + number * Expr(groups) + group;
                const Stmt one = update(step);
                return as_int(rest) && *as_int(rest) % groups == 0 ? one : if_then(step < steps.size, one);
              },
              bounds));
        all.push_back(if_inside(x, seq(std::move(loops))));
        for (size_t r = 0; r < reductions.size(); ++r) all.push_back(store(partial[r], {group, x}, load(sums[r], {0})));
        return alloc_all(sums, seq(std::move(all)));
      },
      bounds);
  // and the first one adds what they have, in their order.
  const Stmt finish = thread_nest(
      "last", 1, kWidth,
      [&](const Expr&, const Expr& x) {
        VarMap at;
        outputs.values_at(output_of(x), bounds, at);
        std::vector<Stmt> all;
        for (int64_t group = 1; group < groups; ++group)
          all.push_back(add_partials(reductions, partial, {0, x}, partial, {Expr(group), x}));
        VarMap finished = at;
        finish_partials(reductions, partial, {0, x}, finished);
        all.push_back(with_results(*kernel, 1, [&](const StoreResults& store_at) { return store_at(finished, 0); }));
        return if_inside(x, seq(std::move(all)));
      },
      bounds);
  const Stmt body = alloc_all(partial, seq({sums, finish}));
  return gpu_program(program.name, *kernel, for_loop(block, 0, blocks, ForKind::kBlockX, body));
}

}  // namespace tessera::inline schedule
