#include <algorithm>

#include "schedule/kernel/linear_kernel.h"
#include "schedule/kernel/loop_builder.h"
#include "schedule/rules/rules.h"
#include "support/error.h"

namespace tessera::inline schedule {
namespace {

constexpr int64_t kVectors = 4;  // of partial results

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

  const auto one_row = [&](const VarMap& at) {
    const auto accumulate = [&](const Expr& start, int64_t count) {
      return vectorized("l", count, [&](const Var& l) {
        VarMap map = at;
        map[row.var.get()] = start + l;
        return for_all(reductions, [&](size_t i) {
          return store(partials[i], {l},
                       combine(reductions[i].combiner, load(partials[i], {l}), substitute(reductions[i].value, map)));
        });
      });
    };
    std::vector<Stmt> sweep;
    const Var step = make_var("r");
    sweep.push_back(for_loop(step, 0, extent / lanes, ForKind::kSerial, accumulate(step * Expr(lanes), lanes)));
    if (extent % lanes != 0) sweep.push_back(accumulate(extent / lanes * lanes, extent % lanes));
    Stmt rows = seq(std::move(sweep));
    for (size_t i = kernel.reduce.size(); i-- > 0;)
      if (static_cast<int>(i) != axis)
        rows = for_loop(kernel.reduce[i].var, 0, kernel.reduce[i].extent, ForKind::kSerial, rows);
    VarMap finish = at;
    for (size_t i = 0; i < reductions.size(); ++i) finish[reductions[i].result_var.get()] = load(totals[i], {0});
    const auto identity = [&](size_t i) { return combiner_identity(reductions[i].combiner, reductions[i].dtype); };
    Stmt body =
        seq({vectorized("l", lanes,
                        [&](const Var& l) {
                          return for_all(reductions, [&](size_t i) { return store(partials[i], {l}, identity(i)); });
                        }),
             rows, for_all(reductions, [&](size_t i) { return store(totals[i], {0}, identity(i)); }),
             vectorized("l", lanes,
                        [&](const Var& l) {
                          return for_all(reductions, [&](size_t i) {
                            return store(totals[i], {0},
                                         combine(reductions[i].combiner, load(totals[i], {0}), load(partials[i], {l})));
                          });
                        }),
             with_results(kernel, 1, [&](const StoreResults& store_at) { return store_at(finish, 0); })});
    for (size_t i = reductions.size(); i-- > 0;) body = alloc(partials[i], alloc(totals[i], std::move(body)));
    return body;
  };
  ScheduledKernel result;
  result.program.name = program.name;
  result.program.params = kernel.params;
  result.program.num_outputs = static_cast<int>(kernel.num_results());
  result.program.body = outer_nest(kernel.loops, parallel, one_row);
  return result;
}

}  // namespace tessera::inline schedule
