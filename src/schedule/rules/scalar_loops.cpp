#include "schedule/kernel/linear_kernel.h"
#include "schedule/kernel/loop_builder.h"
#include "schedule/rules/rules.h"

namespace tessera::inline schedule {

RuleResult scalar_loops(const TensorProgram& program, const Target& target, Knobs&) {
  std::string why;
  auto made = make_linear_kernel(program, why, Results::kPairs);
  if (!made) return Declined{why};
  const LinearKernel& kernel = *made;
  const Expr guard = kernel.padded ? kernel.inside() : Expr();

  ScheduledKernel result;
  result.program.name = program.name;
  result.program.params = kernel.params;
  result.program.num_outputs = static_cast<int>(kernel.num_results());
  result.program.body = outer_nest(kernel.loops, 64, [&](const VarMap& at) {
    const Stmt body = one_element(kernel, at);
    return guard ? if_then(substitute(guard, at), body) : body;
  });
  return result;
}

}  // namespace tessera::inline schedule
