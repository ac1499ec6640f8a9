#include "schedule/rules/register_tile/subpixel_phases.h"

#include <numeric>
#include <optional>

namespace tessera::inline schedule {
namespace {

// A condition (loop + dilation * reduce + offset) mod period = 0.
struct Gap {
  size_t loop = 0;    // index into LinearKernel::loops
  size_t reduce = 0;  // index into LinearKernel::reduce
  int64_t period = 1;
  int64_t dilation = 1;
  int64_t offset = 0;
};

// The linear form of `e` in one output loop and one reduced axis, if that is all it has.
std::optional<Gap> match_gap(const LinearKernel& kernel, const Expr& e, int64_t period) {
  Gap gap;
  gap.period = period;
  bool has_loop = false;
  bool has_reduce = false;
  VarMap zero;
  for (size_t i = 0; i < kernel.loops.size(); ++i) {
    const Var& var = kernel.loops[i].var;
    if (!uses_var(e, var)) continue;
    if (has_loop || linear_coefficient(e, var, kernel.bounds) != 1) return std::nullopt;
    has_loop = true;
    gap.loop = i;
    zero[var.get()] = 0;
  }
  for (size_t i = 0; i < kernel.reduce.size(); ++i) {
    const Var& var = kernel.reduce[i].var;
    if (!uses_var(e, var)) continue;
    const auto coefficient = linear_coefficient(e, var, kernel.bounds);
    if (has_reduce || !coefficient || *coefficient <= 0) return std::nullopt;
    has_reduce = true;
    gap.reduce = i;
    gap.dilation = *coefficient;
    zero[var.get()] = 0;
  }
  const auto offset = as_int(simplify(substitute(e, zero), kernel.bounds));
  if (!has_loop || !has_reduce || !offset || std::gcd(gap.dilation, period) != 1) return std::nullopt;
  gap.offset = *offset;
  const OutputLoop& loop = kernel.loops[gap.loop];
  const auto window = as_int(kernel.reduce[gap.reduce].extent);
  // Every phase has a place of the window and a row of its own.
  if (loop.part != LayoutDim::Part::kWhole || gap.loop + 1 == kernel.loops.size() || loop.extent < period || !window ||
      *window < period)
    return std::nullopt;
  return gap;
}

std::optional<Gap> find_gap(const LinearKernel& kernel) {
  std::optional<Gap> found;
  if (!kernel.reduce_value) return found;
  walk(kernel.reduce_value, [&](const Expr& node) {
    if (found || node->kind != ExprKind::kBinary || node->binary != BinaryOp::kEq) return;
    const Expr& left = node->operands[0];
    if (!is_const_int(node->operands[1], 0) || left->kind != ExprKind::kBinary || left->binary != BinaryOp::kFloorMod)
      return;
    const auto period = as_int(left->operands[1]);
    if (period && *period > 1) found = match_gap(kernel, left->operands[0], *period);
  });
  return found;
}

// The part of `kernel` whose rows are `phase` modulo the period.
LinearKernel take_phase(const LinearKernel& kernel, const Gap& gap, int64_t phase) {
  LinearKernel part = kernel;
  OutputLoop& loop = part.loops[gap.loop];
  Axis& axis = part.reduce[gap.reduce];
  int64_t first = 0;  // the first place of the window that counts
  while ((phase + gap.dilation * first + gap.offset) % gap.period != 0) ++first;
  const int64_t window = *as_int(axis.extent);

  const Var row = make_var(loop.var->name);
  const Var place = make_var(axis.var->name);
  const VarMap map{{loop.var.get(), row * Expr(gap.period) + Expr(phase)},
                   {axis.var.get(), place * Expr(gap.period) + Expr(first)}};
  loop.var = row;
  loop.extent = (loop.extent - phase + gap.period - 1) / gap.period;
  loop.stride *= gap.period;
  axis.var = place;
  axis.extent = Expr((window - first + gap.period - 1) / gap.period);
  part.bounds.set(row, 0, loop.extent - 1);
  part.bounds.set(place, 0, *as_int(axis.extent) - 1);
  const auto apply = [&](Expr& e) {
    if (e) e = simplify(substitute(e, map), part.bounds);
  };
  for (Expr& index : part.logical) apply(index);
  apply(part.out_index);
  for_each_value(part, apply);
  return part;
}

}  // namespace

std::vector<LinearKernel> split_phases(LinearKernel kernel) {
  const auto gap = find_gap(kernel);
  if (!gap) return {std::move(kernel)};
  std::vector<LinearKernel> parts;
  for (int64_t phase = 0; phase < gap->period; ++phase)
    for (LinearKernel& part : split_phases(take_phase(kernel, *gap, phase))) parts.push_back(std::move(part));
  return parts;
}

}  // namespace tessera::inline schedule
