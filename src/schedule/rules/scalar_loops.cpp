#include "schedule/kernel/linear_kernel.h"
#include "schedule/kernel/loop_builder.h"
#include "schedule/rules/rules.h"

namespace tessera::inline schedule {

RuleResult scalar_loops(const TensorProgram& program, const Target& target, Knobs&) {
  std::string why;
  auto made = make_linear_kernel(program, why, Results::kSeveral);
  if (!made) return Declined{why};
  LinearKernel& kernel = *made;
  const Expr guard = kernel.padded ? kernel.inside() : Expr();
  const std::vector<LinearReduction> reductions = all_reductions(kernel);

  ScheduledKernel result;
  result.program.name = program.name;
  result.program.params = kernel.params;
  result.program.num_outputs = static_cast<int>(kernel.num_results());
  result.program.body = outer_nest(kernel.loops, 64, [&](const VarMap& at) {
    VarMap finish = at;
    std::vector<BufferPtr> accumulators;
    std::vector<Stmt> parts, sums;
    for (const LinearReduction& reduction : reductions) {
      const BufferPtr acc = make_buffer("acc", reduction.dtype, {1}, MemoryScope::kRegister);
      parts.push_back(store(acc, {0}, combiner_identity(reduction.combiner, reduction.dtype)));
      sums.push_back(store(acc, {0}, combine(reduction.combiner, load(acc, {0}), substitute(reduction.value, at))));
      finish[reduction.result_var.get()] = load(acc, {0});
      accumulators.push_back(acc);
    }
    if (!sums.empty()) {
      Stmt sum = seq(std::move(sums));
      for (size_t i = kernel.reduce.size(); i-- > 0;)
        sum = for_loop(kernel.reduce[i].var, 0, kernel.reduce[i].extent, ForKind::kSerial, sum);
      parts.push_back(std::move(sum));
    }
    parts.push_back(with_results(kernel, 1, [&](const StoreResults& store_at) { return store_at(finish, 0); }));
    Stmt body = seq(std::move(parts));
    for (size_t i = accumulators.size(); i-- > 0;) body = alloc(accumulators[i], std::move(body));
    return guard ? if_then(substitute(guard, at), body) : body;
  });
  return result;
}

}  // namespace tessera::inline schedule
