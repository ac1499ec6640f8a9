#include <algorithm>

#include "schedule/kernel/linear_kernel.h"
#include "schedule/kernel/loop_builder.h"
#include "schedule/kernel/partial_results.h"
#include "schedule/rules/rules.h"
#include "support/error.h"

namespace tessera::inline schedule {
namespace {

constexpr int64_t kVectors = 4;  // of partial results

// A sum of many terms is one of parts that threads compute, if there are too few sums for them: how many follows from
// the kernel's shape, so that the sum's bits do not depend on threads.
constexpr int64_t kParts = 16, kFewSums = 4, kManyTerms = 1 << 17;

// Places [begin, begin + count) of the axis that is cut in parts; of the contiguous one, in whole `lanes`.
struct Part {
  size_t axis = 0;
  Expr begin, count;
};

}  // namespace

RuleResult row_reduce(const TensorProgram& program, const Target& target, Knobs& knobs) {
  std::string why;
  auto made = make_flat_reduction(program, why, Results::kPairs);
  if (!made) return Declined{why};
  LinearKernel& kernel = *made;
  split_blocked_reductions(kernel);
  const int axis = contiguous_reduced_axis(kernel);
  if (axis < 0) return Declined{"no reduced axis is contiguous in memory"};

  const Axis row = kernel.reduce[static_cast<size_t>(axis)];
  const int64_t extent = *as_int(row.extent);
  if (extent < 4) return Declined{"the contiguous reduced axis is shorter than 4"};
  // Several vectors of partial results, where the row is long enough, so that one step need not wait for the last.
  const std::vector<LinearReduction> reductions = all_reductions(kernel);
  int64_t vector = target.vector_bits() / dtype_bits(kernel.reduce_dtype);
  for (const LinearReduction& reduction : reductions)
    vector = std::min<int64_t>(vector, target.vector_bits() / dtype_bits(reduction.dtype));
  const int64_t vectors = knobs.choose("vectors", {1, 2, 4, 8}, extent >= 2 * kVectors * vector ? kVectors : 1);
  const int64_t parallel = knobs.choose("parallel", kParallelChoices, 256);
  const int64_t lanes = std::min(extent, vectors * vector);
  const Partials partials = make_partials(reductions, "partial", {lanes});
  const Partials totals = make_partials(reductions, "total", {1});

  // The totals of one row, or of a part of it.
  const auto sweep = [&](const VarMap& at, const Part* part) {
    const auto accumulate = [&](const Expr& start, int64_t count) {
      return vectorized("l", count, [&](const Var& l) {
        VarMap map = at;
        map[row.var.get()] = start + l;
        return add_element(reductions, partials, {l}, map);
      });
    };
    const bool cuts_row = part && static_cast<int>(part->axis) == axis;
    const Expr first = cuts_row ? part->begin : Expr(0), count = cuts_row ? part->count : Expr(extent / lanes);
    const Var step = make_var("r");
    std::vector<Stmt> steps;
    steps.push_back(for_loop(step, 0, count, ForKind::kSerial, accumulate((first + step) * Expr(lanes), lanes)));
    if (extent % lanes != 0) {
      const Stmt rest = accumulate(extent / lanes * lanes, extent % lanes);
      steps.push_back(cuts_row ? if_then(equal(first + count, Expr(extent / lanes)), rest) : rest);
    }
    Stmt rows = seq(std::move(steps));
    for (size_t i = kernel.reduce.size(); i-- > 0;) {
      if (static_cast<int>(i) == axis) continue;
      const Axis& outer = kernel.reduce[i];
      const bool is_cut = part && part->axis == i;
      rows = for_loop(outer.var, is_cut ? part->begin : Expr(0), is_cut ? part->count : outer.extent, ForKind::kSerial,
                      rows);
    }
    const auto over_lanes = [&](const std::function<Stmt(const Var&)>& body) { return vectorized("l", lanes, body); };
    return seq({over_lanes([&](const Var& l) { return clear_partials(reductions, partials, {l}); }), rows,
                clear_partials(reductions, totals, {0}), add_lanes(reductions, totals, {0}, partials, over_lanes)});
  };
  const auto finished = [&](const VarMap& at, const Partials& sums) {
    VarMap map = at;
    finish_partials(reductions, sums, {0}, map);
    return with_results(kernel, 1, [&](const StoreResults& store_at) { return store_at(map, 0); });
  };
  const auto in_registers = [&](Stmt body) {
    for (size_t i = reductions.size(); i-- > 0;) body = alloc(partials[i], alloc(totals[i], std::move(body)));
    return body;
  };
  const auto one_row = [&](const VarMap& at) { return in_registers(seq({sweep(at, nullptr), finished(at, totals)})); };

  // The axis that is cut is the one of most iterations.
  int64_t sums = 1, terms = 1;
  for (const OutputLoop& loop : kernel.loops) sums *= loop.extent;
  const auto iterations = [&](size_t i) {
    const int64_t all = *as_int(kernel.reduce[i].extent);
    return static_cast<int>(i) == axis ? all / lanes : all;
  };
  size_t cut = 0;
  for (size_t i = 0; i < kernel.reduce.size(); ++i) {
    terms *= *as_int(kernel.reduce[i].extent);
    if (iterations(i) > iterations(cut)) cut = i;
  }
  const bool in_parts = sums <= kFewSums && terms >= kManyTerms && iterations(cut) >= kParts;
  const auto row_of_parts = [&](const VarMap& at) {
    const Partials parts = make_partials(reductions, "parts", {kParts}, MemoryScope::kLocal);
    const Partials all_parts = make_partials(reductions, "all", {1});
    const Var p = make_var("p"), q = make_var("p");
    const int64_t all = iterations(cut), most = (all + kParts - 1) / kParts;
    const Expr begin = min(p * Expr(most), Expr(all));
    const Part part{cut, begin, min(Expr(most), Expr(all) - begin)};
    std::vector<Stmt> kept = {sweep(at, &part)};
    for (size_t i = 0; i < parts.size(); ++i) kept.push_back(store(parts[i], {p}, load(totals[i], {0})));
    const Stmt one = in_registers(seq(std::move(kept)));
    const Stmt last = alloc_all(
        all_parts, seq({clear_partials(reductions, all_parts, {0}),
                        for_loop(q, 0, kParts, ForKind::kSerial, add_partials(reductions, all_parts, {0}, parts, {q})),
                        finished(at, all_parts)}));
    return alloc_all(parts, seq({for_loop(p, 0, kParts, ForKind::kParallel, one), last}));
  };
  ScheduledKernel result;
  result.program.name = program.name;
  result.program.params = kernel.params;
  result.program.num_outputs = static_cast<int>(kernel.num_results());
  result.program.body =
      in_parts ? outer_nest(kernel.loops, 1, row_of_parts) : outer_nest(kernel.loops, parallel, one_row);
  return result;
}

}  // namespace tessera::inline schedule
