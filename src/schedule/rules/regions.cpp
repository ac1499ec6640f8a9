#include "schedule/rules/regions.h"

#include <algorithm>

#include "arith/simplify.h"
#include "schedule/kernel/guards.h"

namespace tessera::inline schedule {
namespace {

constexpr size_t kMostRegions = 6;

enum class State : uint8_t { kFails, kHolds, kOpen };
using States = std::vector<State>;

// What decides: the guard's terms and the conditions of selects.
std::vector<Expr> conditions_of(const LinearKernel& kernel) {
  std::vector<Expr> conditions;
  if (const Expr guard = guard_of(kernel)) split_conjunction(guard, conditions);
  walk(kernel.value, [&](const Expr& node) {
    if (node->kind == ExprKind::kSelect) split_conjunction(node->operands[0], conditions);
  });
  return conditions;
}

States states_at(const std::vector<Expr>& conditions, const Var& var, int64_t at, Bounds bounds) {
  bounds.set(var, at, at);
  States states;
  for (const Expr& condition : conditions) {
    const Interval range = bounds_of(simplify(condition, bounds), bounds);
    const bool decided = range.lo && range.hi && *range.lo == *range.hi;
    states.push_back(!decided ? State::kOpen : *range.lo ? State::kHolds : State::kFails);
  }
  return states;
}

// The places within (lo, hi] from which on the states are others, as far as bisection finds them.
void find_cuts(const std::vector<Expr>& conditions, const LinearKernel& kernel, const Var& var, int64_t lo,
               const States& at_lo, int64_t hi, const States& at_hi, std::vector<int64_t>& cuts) {
  if (at_lo == at_hi || cuts.size() >= kMostRegions) return;
  if (hi == lo + 1) {
    cuts.push_back(hi);
    return;
  }
  const int64_t middle = lo + (hi - lo) / 2;
  const States at_middle = states_at(conditions, var, middle, kernel.bounds);
  find_cuts(conditions, kernel, var, lo, at_lo, middle, at_middle, cuts);
  find_cuts(conditions, kernel, var, middle, at_middle, hi, at_hi, cuts);
}

LinearKernel piece_of(const LinearKernel& kernel, size_t loop, int64_t begin, int64_t end) {
  LinearKernel piece = kernel;
  OutputLoop& cut = piece.loops[loop];
  const Var var = make_var(cut.var->name);
  piece.bounds.set(var, 0, end - begin - 1);
  const auto moved = [&](const Expr& e) {
    return simplify(substitute(e, {{cut.var.get(), var + Expr(begin)}}), piece.bounds);
  };
  piece.value = moved(piece.value);
  piece.out_index = moved(piece.out_index);
  for (Expr& index : piece.logical) index = moved(index);
  cut.var = var;
  cut.extent = end - begin;
  return piece;
}

// Whether it is simpler to compute than a kernel with conditions.
bool is_plain(const LinearKernel& kernel) { return !guard_of(kernel) && kernel.value->kind == ExprKind::kLoad; }

// The pieces of a loop along which conditions change; none where there are no cuts, or too many.
std::vector<LinearKernel> pieces_along(const LinearKernel& kernel, size_t i, const std::vector<Expr>& conditions) {
  const OutputLoop& loop = kernel.loops[i];
  if (loop.extent == 1) return {};
  std::vector<int64_t> cuts = {0};
  find_cuts(conditions, kernel, loop.var, 0, states_at(conditions, loop.var, 0, kernel.bounds), loop.extent - 1,
            states_at(conditions, loop.var, loop.extent - 1, kernel.bounds), cuts);
  if (cuts.size() == 1 || cuts.size() > kMostRegions) return {};
  cuts.push_back(loop.extent);
  std::vector<LinearKernel> pieces;
  for (size_t c = 0; c + 1 < cuts.size(); ++c) pieces.push_back(piece_of(kernel, i, cuts[c], cuts[c + 1]));
  return pieces;
}

// Whether it reads with a stride along the loop along which it writes: elements that a turn in registers would gather.
bool is_strided_load(const LinearKernel& kernel) {
  if (!is_plain(kernel)) return false;
  const auto stride = linear_coefficient(kernel.value->operands[0], kernel.loops.back().var, kernel.bounds);
  return stride && *stride != 0 && *stride != 1;
}

// Cuts along the last loop, where rows end up in pieces, too, when each of these is a load with a stride: a
// concatenation of blocks of channels to rows of pixels. Else none.
std::vector<LinearKernel> strided_regions(const LinearKernel& kernel, const std::vector<Expr>& conditions) {
  std::vector<LinearKernel> regions;
  for (const LinearKernel& piece : pieces_along(kernel, kernel.loops.size() - 1, conditions))
    for (LinearKernel& region : decided_regions(piece)) regions.push_back(std::move(region));
  const bool all = std::all_of(regions.begin(), regions.end(), is_strided_load);
  return all && regions.size() <= kMostRegions ? regions : std::vector<LinearKernel>();
}

}  // namespace

Expr guard_of(const LinearKernel& kernel) {
  bool in_bounds = loads_in_bounds(kernel.value, kernel.bounds);
  for (const LinearResult& result : kernel.more_results)
    in_bounds = in_bounds && loads_in_bounds(result.value, kernel.bounds);
  return kernel.padded && !in_bounds ? kernel.inside() : Expr();
}

std::vector<LinearKernel> decided_regions(const LinearKernel& kernel) {
  const std::vector<Expr> conditions = conditions_of(kernel);
  if (conditions.empty() || kernel.num_results() > 1 || kernel.loops.empty()) return {kernel};
  if (auto strided = strided_regions(kernel, conditions); !strided.empty()) return strided;
  const bool guarded = static_cast<bool>(guard_of(kernel));
  std::vector<LinearKernel> best;
  size_t gained = 0;
  for (size_t i = 0; i + 1 < kernel.loops.size(); ++i) {
    std::vector<LinearKernel> pieces = pieces_along(kernel, i, conditions);
    size_t plain = 0, open = 0;
    for (const LinearKernel& piece : pieces) {
      plain += is_plain(piece);
      open += guarded && !guard_of(piece);
    }
    if (std::max(plain, open) <= gained) continue;
    gained = std::max(plain, open);
    best = std::move(pieces);
  }
  if (best.empty()) return {kernel};
  std::vector<LinearKernel> regions;
  for (const LinearKernel& piece : best) {
    if (is_plain(piece) || best.size() >= kMostRegions / 2) {
      regions.push_back(piece);
      continue;
    }
    for (LinearKernel& region : decided_regions(piece)) regions.push_back(std::move(region));
  }
  return regions;
}

}  // namespace tessera::inline schedule
