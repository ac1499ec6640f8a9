#include <algorithm>

#include "schedule/kernel/linear_kernel.h"
#include "schedule/kernel/loop_builder.h"
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

Stmt for_all(const std::vector<LinearReduction>& reductions, const std::function<Stmt(size_t)>& make) {
  std::vector<Stmt> stmts;
  for (size_t i = 0; i < reductions.size(); ++i) stmts.push_back(make(i));
  return seq(std::move(stmts));
}

}  // namespace

RuleResult row_reduce(const TensorProgram& program, const Target& target, Knobs& knobs) {
  std::string why;
  auto made = make_flat_reduction(program, why, Results::kSeveral);
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
  std::vector<BufferPtr> partials, totals;
  for (const LinearReduction& reduction : reductions) {
    partials.push_back(make_buffer("partial", reduction.dtype, {lanes}, MemoryScope::kRegister));
    totals.push_back(make_buffer("total", reduction.dtype, {1}, MemoryScope::kRegister));
  }

  const auto identity = [&](size_t i) { return combiner_identity(reductions[i].combiner, reductions[i].dtype); };
  const auto combined = [&](size_t i, const Expr& a, const Expr& b) { return combine(reductions[i].combiner, a, b); };

  // The totals of one row, or of a part of it.
  const auto sweep = [&](const VarMap& at, const Part* part) {
    const auto accumulate = [&](const Expr& start, int64_t count) {
      return vectorized("l", count, [&](const Var& l) {
        VarMap map = at;
        map[row.var.get()] = start + l;
        return for_all(reductions, [&](size_t i) {
          return store(partials[i], {l}, combined(i, load(partials[i], {l}), substitute(reductions[i].value, map)));
        });
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
    return seq({vectorized("l", lanes,
                           [&](const Var& l) {
                             return for_all(reductions, [&](size_t i) { return store(partials[i], {l}, identity(i)); });
                           }),
                rows, for_all(reductions, [&](size_t i) { return store(totals[i], {0}, identity(i)); }),
                vectorized("l", lanes, [&](const Var& l) {
                  return for_all(reductions, [&](size_t i) {
                    return store(totals[i], {0}, combined(i, load(totals[i], {0}), load(partials[i], {l})));
                  });
                })});
  };
  const auto finished = [&](const VarMap& at, const std::vector<BufferPtr>& sums) {
    VarMap map = at;
    for (size_t i = 0; i < reductions.size(); ++i) map[reductions[i].result_var.get()] = load(sums[i], {0});
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
    std::vector<BufferPtr> parts, sums_of_parts;
    for (const LinearReduction& reduction : reductions) {
      parts.push_back(make_buffer("parts", reduction.dtype, {kParts}, MemoryScope::kLocal));
      sums_of_parts.push_back(make_buffer("all", reduction.dtype, {1}, MemoryScope::kRegister));
    }
    const Var p = make_var("p"), q = make_var("p");
    const int64_t all = iterations(cut), most = (all + kParts - 1) / kParts;
    const Expr begin = min(p * Expr(most), Expr(all));
    const Part part{cut, begin, min(Expr(most), Expr(all) - begin)};
    const Stmt one = in_registers(seq(
        {sweep(at, &part), for_all(reductions, [&](size_t i) { return store(parts[i], {p}, load(totals[i], {0})); })}));
    const auto into = [&](size_t i) { return sums_of_parts[i]; };
    Stmt last =
        seq({for_all(reductions, [&](size_t i) { return store(into(i), {0}, identity(i)); }),
             for_loop(q, 0, kParts, ForKind::kSerial,
                      for_all(reductions,
                              [&](size_t i) {
                                return store(into(i), {0}, combined(i, load(into(i), {0}), load(parts[i], {q})));
                              })),
             finished(at, sums_of_parts)});
    for (const BufferPtr& sum : sums_of_parts) last = alloc(sum, std::move(last));
    Stmt body = seq({for_loop(p, 0, kParts, ForKind::kParallel, one), last});
    for (const BufferPtr& buffer : parts) body = alloc(buffer, std::move(body));
    return body;
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
