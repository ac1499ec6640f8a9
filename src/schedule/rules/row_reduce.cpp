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

// Places [begin, begin + count) of the axis that is cut in parts.
struct Part {
  size_t axis = 0;
  Expr begin, count;
};

int64_t extent_of(const Axis& axis) { return *as_int(axis.extent); }

}  // namespace

RuleResult row_reduce(const TensorProgram& program, const Target& target, Knobs& knobs) {
  std::string why;
  auto made = make_flat_reduction(program, why);
  if (!made) return Declined{why};
  LinearKernel& kernel = *made;
  split_blocked_reductions(kernel);
  const int axis = contiguous_reduced_axis(kernel);
  if (axis < 0) return Declined{"no reduced axis is contiguous in memory"};

  const Axis row = kernel.reduce[static_cast<size_t>(axis)];
  const int64_t extent = *as_int(row.extent);
  if (extent < 4) return Declined{"the contiguous reduced axis is shorter than 4"};
  // Several vectors of partial results, where the row is long enough, so that one step need not wait for the last.
  const int64_t vector = target.vector_bits() / dtype_bits(kernel.reduce_dtype);
  const int64_t vectors = knobs.choose("vectors", {1, 2, 4, 8}, extent >= 2 * kVectors * vector ? kVectors : 1);
  const int64_t parallel = knobs.choose("parallel", kParallelChoices, 256);
  const int64_t lanes = std::min(extent, vectors * vector);
  const Expr identity = combiner_identity(kernel.combiner, kernel.reduce_dtype);
  const BufferPtr partial = make_buffer("partial", kernel.reduce_dtype, {lanes}, MemoryScope::kRegister);
  const BufferPtr total = make_buffer("total", kernel.reduce_dtype, {1}, MemoryScope::kRegister);

  // The partial results of one sum, or of a part of it; the row's axis is cut in whole `lanes`.
  const auto sweep = [&](const VarMap& at, const Part* part) {
    const auto accumulate = [&](const Expr& start, int64_t count) {
      return vectorized("l", count, [&](const Var& l) {
        VarMap map = at;
        map[row.var.get()] = start + l;
        return store(partial, {l}, combine(kernel.combiner, load(partial, {l}), substitute(kernel.reduce_value, map)));
      });
    };
    const bool cuts_row = part && static_cast<int>(part->axis) == axis;
    const Var step = make_var("r");
    std::vector<Stmt> steps;
    if (cuts_row) {
      steps.push_back(
          for_loop(step, 0, part->count, ForKind::kSerial, accumulate((part->begin + step) * Expr(lanes), lanes)));
      if (extent % lanes != 0)
        steps.push_back(if_then(equal(part->begin + part->count, Expr(extent / lanes)),
                                accumulate(extent / lanes * lanes, extent % lanes)));
    } else {
      steps.push_back(for_loop(step, 0, extent / lanes, ForKind::kSerial, accumulate(step * Expr(lanes), lanes)));
      if (extent % lanes != 0) steps.push_back(accumulate(extent / lanes * lanes, extent % lanes));
    }
    Stmt rows = seq(std::move(steps));
    for (size_t i = kernel.reduce.size(); i-- > 0;) {
      if (static_cast<int>(i) == axis) continue;
      const Axis& outer = kernel.reduce[i];
      const bool is_cut = part && part->axis == i;
      rows = for_loop(outer.var, is_cut ? part->begin : Expr(0), is_cut ? part->count : outer.extent, ForKind::kSerial,
                      rows);
    }
    return seq({vectorized("l", lanes, [&](const Var& l) { return store(partial, {l}, identity); }), rows,
                store(total, {0}, identity), vectorized("l", lanes, [&](const Var& l) {
                  return store(total, {0}, combine(kernel.combiner, load(total, {0}), load(partial, {l})));
                })});
  };
  const auto finish = [&](const VarMap& at) {
    VarMap map = at;
    map[kernel.result_var.get()] = load(total, {0});
    return store(kernel.out(), {substitute(kernel.out_index, at)}, substitute(kernel.value, map));
  };
  const auto one_row = [&](const VarMap& at) {
    return alloc(partial, alloc(total, seq({sweep(at, nullptr), finish(at)})));
  };

  // The axis that is cut: the one of most iterations.
  int64_t sums = 1, terms = 1;
  for (const OutputLoop& loop : kernel.loops) sums *= loop.extent;
  const auto iterations = [&](size_t i) {
    const int64_t all = extent_of(kernel.reduce[i]);
    return static_cast<int>(i) == axis ? all / lanes : all;
  };
  size_t cut = 0;
  for (size_t i = 0; i < kernel.reduce.size(); ++i) {
    terms *= extent_of(kernel.reduce[i]);
    if (iterations(i) > iterations(cut)) cut = i;
  }
  const bool in_parts = sums <= kFewSums && terms >= kManyTerms && iterations(cut) >= kParts;
  const auto sum_of_parts = [&](const VarMap& at) {
    const BufferPtr parts = make_buffer("parts", kernel.reduce_dtype, {kParts}, MemoryScope::kLocal);
    const Var p = make_var("p"), q = make_var("p");
    const int64_t all = iterations(cut), most = (all + kParts - 1) / kParts;
    const Expr begin = min(p * Expr(most), Expr(all));
    const Part part{cut, begin, min(Expr(most), Expr(all) - begin)};
    const Stmt one = alloc(partial, alloc(total, seq({sweep(at, &part), store(parts, {p}, load(total, {0}))})));
    return alloc(
        parts,
        seq({for_loop(p, 0, kParts, ForKind::kParallel, one),
             alloc(total,
                   seq({store(total, {0}, identity),
                        for_loop(q, 0, kParts, ForKind::kSerial,
                                 store(total, {0}, combine(kernel.combiner, load(total, {0}), load(parts, {q})))),
                        finish(at)}))}));
  };
  ScheduledKernel result;
  result.program.name = program.name;
  result.program.params = kernel.params;
  result.program.body =
      in_parts ? outer_nest(kernel.loops, 1, sum_of_parts) : outer_nest(kernel.loops, parallel, one_row);
  return result;
}

}  // namespace tessera::inline schedule
