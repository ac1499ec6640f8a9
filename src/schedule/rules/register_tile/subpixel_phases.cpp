#include "schedule/rules/register_tile/subpixel_phases.h"

#include <numeric>
#include <optional>

namespace tessera::inline schedule {
namespace {

// A condition (loop + dilation * reduce + offset) mod period = 0; without a reduced axis where the window has one
// place.
struct Gap {
  size_t loop = 0;               // index into LinearKernel::loops
  std::optional<size_t> reduce;  // index into LinearKernel::reduce
  int64_t period = 1;
  int64_t dilation = 1;
  int64_t offset = 0;
};

// The linear form of `e` in one output loop and one reduced axis, if that is all it has.
std::optional<Gap> match_gap(const LinearKernel& kernel, const Expr& e, int64_t period) {
  Gap gap;
  gap.period = period;
  bool has_loop = false;
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
    if (gap.reduce || !coefficient || *coefficient <= 0) return std::nullopt;
    gap.reduce = i;
    gap.dilation = *coefficient;
    zero[var.get()] = 0;
  }
  const auto offset = as_int(simplify(substitute(e, zero), kernel.bounds));
  if (!has_loop || !offset || std::gcd(gap.dilation, period) != 1) return std::nullopt;
  gap.offset = *offset;
  const OutputLoop& loop = kernel.loops[gap.loop];
  if (gap.reduce && !as_int(kernel.reduce[*gap.reduce].extent)) return std::nullopt;
  // Every phase has a row of its own.
  if (loop.part != LayoutDim::Part::kWhole || gap.loop + 1 == kernel.loops.size() || loop.extent < period)
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
  const auto counts = [&](int64_t place) { return (phase + gap.dilation * place + gap.offset) % gap.period == 0; };
  const int64_t window = gap.reduce ? *as_int(kernel.reduce[*gap.reduce].extent) : 1;
  int64_t first = 0;  // the first place of the window that counts
  while (first < window && !counts(first)) ++first;

  const Var row = make_var(loop.var->name);
  VarMap map{{loop.var.get(), row * Expr(gap.period) + Expr(phase)}};
  loop.var = row;
  loop.extent = (loop.extent - phase + gap.period - 1) / gap.period;
  loop.stride *= gap.period;
  part.bounds.set(row, 0, loop.extent - 1);
  if (first == window) {
    map[kernel.result_var.get()] = combiner_identity(kernel.combiner, kernel.reduce_dtype);
    part.combiner = Combiner::kNone;
    part.reduce.clear();
    part.reduce_value = Expr();
  } else if (gap.reduce) {
    Axis& axis = part.reduce[*gap.reduce];
    const Var place = make_var(axis.var->name);
    map[axis.var.get()] = place * Expr(gap.period) + Expr(first);
    axis.var = place;
    axis.extent = Expr((window - first + gap.period - 1) / gap.period);
    part.bounds.set(place, 0, *as_int(axis.extent) - 1);
  }
  const auto apply = [&](Expr& e) {
    if (e) e = simplify(substitute(e, map), part.bounds);
  };
  for (Expr& index : part.logical) apply(index);
  apply(part.out_index);
  for_each_value(part, apply);
  return part;
}

}  // namespace

Phases split_phases(LinearKernel kernel) {
  Phases result;
  if (kernel.combiner == Combiner::kNone) {
    result.empty.push_back(std::move(kernel));
    return result;
  }
  const auto gap = find_gap(kernel);
  if (!gap) {
    result.sums.push_back(std::move(kernel));
    return result;
  }
  for (int64_t phase = 0; phase < gap->period; ++phase) {
    Phases parts = split_phases(take_phase(kernel, *gap, phase));
    for (LinearKernel& part : parts.sums) result.sums.push_back(std::move(part));
    for (LinearKernel& part : parts.empty) result.empty.push_back(std::move(part));
  }
  return result;
}

}  // namespace tessera::inline schedule
