#include <algorithm>
#include <functional>

#include "schedule/kernel/linear_kernel.h"
#include "schedule/kernel/loop_builder.h"
#include "schedule/kernel/partial_results.h"
#include "schedule/rules/rules.h"

// Sums over everything but the contiguous axis: each lane has an output of its own, and several reductions of the same
// places share a pass (the sum and the sum of squares of each channel). A few partial results per output, whose number
// depends on sizes alone, let one step begin before the last has ended.
namespace tessera::inline schedule {
namespace {

constexpr int64_t kPartials = 4;

// Makes blocks and places in a block of the last loop where an operand in blocks is not linear along it.
void split_blocked_output(LinearKernel& kernel) {
  const OutputLoop last = kernel.loops.back();
  const int64_t block = *std::max_element(kernel.param_block.begin(), kernel.param_block.end());
  if (block == 1 || last.extent % block != 0 || last.extent == block || last.part != LayoutDim::Part::kWhole) return;
  OutputLoop outer = last, inner = last;
  outer.var = make_var(last.var->name + "b");
  inner.var = make_var(last.var->name + "l");
  outer.extent = last.extent / block;
  outer.stride = last.stride * block;
  inner.extent = block;
  kernel.bounds.set(outer.var, 0, outer.extent - 1);
  kernel.bounds.set(inner.var, 0, block - 1);
  const auto split = [&](Expr& e) {
    e = simplify(substitute(e, {{last.var.get(), outer.var * Expr(block) + inner.var}}), kernel.bounds);
  };
  for_each_value(kernel, split);
  split(kernel.out_index);
  for (Expr& index : kernel.logical) split(index);
  kernel.loops.back() = outer;
  kernel.loops.push_back(inner);
}

// Whether all that is reduced is read along the last loop, side by side, or does not move with it.
bool reads_lanes(const LinearKernel& kernel) {
  bool moves = false, ok = true;
  for_each_reduced_value(kernel, [&](const Expr& value) {
    walk(value, [&](const Expr& node) {
      if (node->kind != ExprKind::kLoad) return;
      const auto step = linear_coefficient(node->operands[0], kernel.loops.back().var, kernel.bounds);
      ok = ok && (step == 0 || step == 1);
      moves |= step == 1;
    });
  });
  return ok && moves;
}

}  // namespace

RuleResult lane_reduce(const TensorProgram& program, const Target& target, Knobs& knobs) {
  if (program.is_single()) return Declined{"register tiles are better for one reduction and one result"};
  std::string why;
  auto made = make_flat_reduction(program, why, Results::kPairs);
  if (!made) return Declined{why};
  LinearKernel& kernel = *made;
  if (kernel.loops.empty()) return Declined{"there is one output"};
  split_blocked_output(kernel);
  if (kernel.loops.back().stride != 1 || kernel.loops.back().extent < 4 || !reads_lanes(kernel))
    return Declined{"what is reduced is not contiguous along the output's innermost axis"};

  const std::vector<LinearReduction> reductions = all_reductions(kernel);
  const OutputLoop last = kernel.loops.back();
  const int64_t width =
      std::min<int64_t>(last.extent, std::max<int64_t>(4, target.f32_lanes()) * knobs.choose("vectors", {1, 2, 4}, 1));
  const int64_t parallel = knobs.choose("parallel", kParallelChoices, 256);
  const Axis along = kernel.reduce.back();
  const int64_t extent = *as_int(along.extent), partials = extent >= 2 * kPartials ? kPartials : 1;

  // `lanes` outputs from `begin` on.
  const auto outputs = [&](const VarMap& outer, const Expr& begin, int64_t lanes) {
    const Partials sums = make_partials(reductions, "partial", {partials, lanes});
    const auto each_lane = [&](const std::function<Stmt(const Var&, VarMap)>& make) {
      return vectorized("l", lanes, [&](const Var& lane) {
        VarMap at = outer;
        at[last.var.get()] = begin + lane;
        return make(lane, std::move(at));
      });
    };
    const auto update = [&](int64_t partial, const Expr& place) {
      return each_lane([&](const Var& lane, VarMap at) {
        at[along.var.get()] = place;
        return add_element(reductions, sums, {Expr(partial), lane}, at);
      });
    };
    std::vector<Stmt> parts;
    for (int64_t p = 0; p < partials; ++p)
      parts.push_back(
          each_lane([&](const Var& lane, const VarMap&) { return clear_partials(reductions, sums, {Expr(p), lane}); }));
    const Var step = make_var("r");
    std::vector<Stmt> steps, rest;
    for (int64_t p = 0; p < partials; ++p) steps.push_back(update(p, step * Expr(partials) + Expr(p)));
    rest.push_back(for_loop(step, 0, extent / partials, ForKind::kSerial, seq(std::move(steps))));
    for (int64_t p = extent / partials * partials; p < extent; ++p) rest.push_back(update(p % partials, p));
    Stmt all = seq(std::move(rest));
    for (size_t i = kernel.reduce.size() - 1; i-- > 0;)
      all = for_loop(kernel.reduce[i].var, 0, kernel.reduce[i].extent, ForKind::kSerial, all);
    parts.push_back(std::move(all));
    for (int64_t half = partials / 2; half > 0; half /= 2)
      for (int64_t p = 0; p < half; ++p)
        parts.push_back(each_lane([&](const Var& lane, const VarMap&) {
          return add_partials(reductions, sums, {Expr(p), lane}, sums, {Expr(p + half), lane});
        }));
    parts.push_back(with_results(kernel, lanes, [&](const StoreResults& store_at) {
      return vectorized("l", lanes, [&](const Var& lane) {
        VarMap at = outer;
        at[last.var.get()] = begin + lane;
        finish_partials(reductions, sums, {Expr(0), lane}, at);
        return store_at(at, lane);
      });
    }));
    return alloc_all(sums, seq(std::move(parts)));
  };

  ScheduledKernel result;
  result.program.name = program.name;
  result.program.params = kernel.params;
  result.program.num_outputs = static_cast<int>(kernel.num_results());
  std::vector<OutputLoop> blocks(kernel.loops.begin(), kernel.loops.end() - 1);
  const std::vector<OutputLoop> outer = blocks;
  OutputLoop chunks = last;
  chunks.var = make_var("chunk");
  chunks.extent = last.extent / width;
  blocks.push_back(chunks);
  std::vector<Stmt> nests = {outer_nest(
      blocks, parallel, [&](const VarMap& at) { return outputs(at, at.at(chunks.var.get()) * Expr(width), width); })};
  if (const int64_t rest = last.extent % width; rest != 0)
    nests.push_back(
        outer_nest(outer, parallel, [&](const VarMap& at) { return outputs(at, chunks.extent * width, rest); }));
  result.program.body = seq(std::move(nests));
  return result;
}

}  // namespace tessera::inline schedule
