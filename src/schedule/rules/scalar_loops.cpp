#include "schedule/kernel/linear_kernel.h"
#include "schedule/kernel/loop_builder.h"
#include "schedule/rules/rules.h"

namespace tessera::inline schedule {

RuleResult scalar_loops(const TensorProgram& program, const Target& target, Knobs&) {
  std::string why;
  auto made = make_linear_kernel(program, why);
  if (!made) return Declined{why};
  LinearKernel& kernel = *made;
  const Expr guard = kernel.padded ? kernel.inside() : Expr();

  ScheduledKernel result;
  result.program.name = program.name;
  result.program.params = kernel.params;
  result.program.body = outer_nest(kernel.loops, 64, [&](const VarMap& at) {
    Stmt body;
    if (kernel.combiner == Combiner::kNone) {
      body = store(kernel.out(), {substitute(kernel.out_index, at)}, substitute(kernel.value, at));
    } else {
      const BufferPtr acc = make_buffer("acc", kernel.reduce_dtype, {1}, MemoryScope::kRegister);
      Stmt sum = store(acc, {0}, combine(kernel.combiner, load(acc, {0}), substitute(kernel.reduce_value, at)));
      for (size_t i = kernel.reduce.size(); i-- > 0;)
        sum = for_loop(kernel.reduce[i].var, 0, kernel.reduce[i].extent, ForKind::kSerial, sum);
      VarMap finish = at;
      finish[kernel.result_var.get()] = load(acc, {0});
      body =
          alloc(acc, seq({store(acc, {0}, combiner_identity(kernel.combiner, kernel.reduce_dtype)), sum,
                          store(kernel.out(), {substitute(kernel.out_index, at)}, substitute(kernel.value, finish))}));
    }
    return guard ? if_then(substitute(guard, at), body) : body;
  });
  return result;
}

}  // namespace tessera::inline schedule
