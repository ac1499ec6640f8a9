#include <fmt/format.h>

#include "schedule/kernel/linear_kernel.h"
#include "schedule/rules/rules.h"
#include "schedule/rules/winograd/winograd_emit.h"

namespace tessera::inline schedule {

RuleResult winograd(const TensorProgram& program, const Target& target, Knobs& knobs) {
  FilteredConv conv;
  if (std::string why = match_filtered_conv(program, conv); !why.empty()) return Declined{why};
  auto plan = choose_winograd_plan(conv, {2, 4, 6}, target);
  if (!plan) return Declined{"no strip of tiles fits the caches"};
  const double direct = direct_cost(conv, target);
  if (plan->cost > 0.9 * direct && !knobs.asked())
    return Declined{fmt::format("predicted cost {:.3g} against {:.3g} for direct summation", plan->cost, direct)};
  std::string why;
  auto kernel = make_linear_kernel(program, why);
  if (!kernel) return Declined{why};
  const Expr any = Expr(0);
  if (kernel->loops.size() != conv.loops_at(any, any, any, any, any, {}).size())
    return Declined{"the output has other loops than a blocked image"};

  if (why = ask_winograd_plan(conv, target, knobs, plan); !why.empty()) return Declined{why};
  const WinogradTile tile = ask_winograd_tile(conv, *plan, target, knobs);
  if (!tile.refused.empty()) return Declined{tile.refused};
  WinogradKernel parts{kernel->params, {}, kernel->value, kernel->result_var, kernel->out_index};
  for (const OutputLoop& loop : kernel->loops) parts.loops.push_back(loop.var);
  if (kernel->padded && !loads_in_bounds(kernel->value, kernel->bounds)) parts.inside = kernel->inside();
  ScheduledKernel result;
  result.program.name = program.name;
  result.program.body = emit_winograd(conv, *plan, fixed_sizes(conv, *plan), tile, parts, target);
  result.program.params = parts.params;
  result.packed.push_back(winograd_packing(conv, *plan));
  return result;
}

}  // namespace tessera::inline schedule
