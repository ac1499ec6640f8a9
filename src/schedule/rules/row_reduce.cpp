#include <algorithm>

#include "schedule/kernel/linear_kernel.h"
#include "schedule/kernel/loop_builder.h"
#include "schedule/rules/rules.h"
#include "support/error.h"

namespace tessera::inline schedule {
namespace {

constexpr int64_t kVectors = 4;  // of partial results

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

  const auto one_row = [&](const VarMap& at) {
    const auto accumulate = [&](const Expr& start, int64_t count) {
      return vectorized("l", count, [&](const Var& l) {
        VarMap map = at;
        map[row.var.get()] = start + l;
        return store(partial, {l}, combine(kernel.combiner, load(partial, {l}), substitute(kernel.reduce_value, map)));
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
    finish[kernel.result_var.get()] = load(total, {0});
    return alloc(
        partial,
        alloc(total, seq({vectorized("l", lanes, [&](const Var& l) { return store(partial, {l}, identity); }), rows,
                          store(total, {0}, identity),
                          vectorized("l", lanes,
                                     [&](const Var& l) {
                                       return store(total, {0},
                                                    combine(kernel.combiner, load(total, {0}), load(partial, {l})));
                                     }),
                          store(kernel.out(), {substitute(kernel.out_index, at)}, substitute(kernel.value, finish))})));
  };
  ScheduledKernel result;
  result.program.name = program.name;
  result.program.params = kernel.params;
  result.program.body = outer_nest(kernel.loops, parallel, one_row);
  return result;
}

}  // namespace tessera::inline schedule
