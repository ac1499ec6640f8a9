#include "te/extremum_place.h"

#include <algorithm>

#include "arith/simplify.h"

namespace tessera::inline tensor_programs {
namespace {

bool is_extreme(Combiner combiner) { return combiner == Combiner::kMin || combiner == Combiner::kMax; }

bool has_load(const Expr& e) {
  bool found = false;
  walk(e, [&](const Expr& node) { found = found || node->kind == ExprKind::kLoad; });
  return found;
}

// `m` at the index of the stage's own axes.
bool reads_own(const Expr& e, const Stage& m, const Body& body) {
  if (e->kind != ExprKind::kLoad || e->buffer != m.out) return false;
  for (size_t i = 0; i < e->operands.size(); ++i)
    if (!e->operands[i].same_node(body.axes[i].var) && !is_const_int(body.axes[i].extent, 1)) return false;
  return true;
}

// What `m` reduces, in terms of the axes of `body`.
std::optional<Expr> reduced_by(const Stage& m, const Body& body) {
  const auto match = [](const std::vector<Axis>& from, const std::vector<Axis>& to, VarMap& map) {
    if (from.size() != to.size()) return false;
    for (size_t i = 0; i < from.size(); ++i) {
      if (!structurally_equal(from[i].extent, to[i].extent)) return false;
      map[from[i].var.get()] = to[i].var;
    }
    return true;
  };
  VarMap map;
  if (!match(m.body.axes, body.axes, map) || !match(m.body.reduce_axes, body.reduce_axes, map)) return std::nullopt;
  return substitute(m.body.value, map);
}

}  // namespace

std::optional<ExtremumPlace> place_of_extremum(const std::vector<const Stage*>& reductions, size_t which) {
  const Body& body = reductions[which]->body;
  const Expr& value = body.value;
  if (!is_extreme(body.combiner) || value->kind != ExprKind::kSelect) return std::nullopt;
  ExtremumPlace result{0, false, value->operands[1], value->operands[2]};
  if (has_load(result.place) || has_load(result.none)) return std::nullopt;
  for (const auto* axes : {&body.axes, &body.reduce_axes})
    for (const Axis& axis : *axes)
      if (uses_var(result.none, axis.var)) return std::nullopt;
  Expr same = value->operands[0], nan;
  if (same->kind == ExprKind::kBinary && same->binary == BinaryOp::kOr) {
    const bool first = same->operands[0]->kind == ExprKind::kUnary;
    nan = same->operands[first ? 0 : 1];
    same = same->operands[first ? 1 : 0];
    if (nan->kind != ExprKind::kUnary || nan->unary != UnaryOp::kIsNan) return std::nullopt;
    result.takes_nan = true;
  }
  if (same->kind != ExprKind::kBinary || same->binary != BinaryOp::kEq) return std::nullopt;
  // An extremum of numbers; none is as good as every place at least.
  Bounds bounds;
  for (const Axis& axis : body.reduce_axes)
    if (const auto extent = as_int(axis.extent)) bounds.set(axis.var, 0, *extent - 1);
    else bounds.set(axis.var, Interval{0, std::nullopt});
  const bool first = body.combiner == Combiner::kMin;
  const Expr& least = first ? result.place : result.none;
  const Expr& most = first ? result.none : result.place;
  const bool is_extent = std::any_of(body.reduce_axes.begin(), body.reduce_axes.end(), [&](const Axis& axis) {
    return first && result.place.same_node(axis.var) && structurally_equal(result.none, axis.extent);
  });
  if (!is_extent && !can_prove(least <= most, bounds)) return std::nullopt;
  for (size_t m = 0; m < reductions.size(); ++m) {
    if (m == which || !is_extreme(reductions[m]->body.combiner)) continue;
    for (const size_t side : {0, 1}) {
      const Expr &x = same->operands[side], &extremum = same->operands[1 - side];
      if (!reads_own(extremum, *reductions[m], body)) continue;
      const auto reduced = reduced_by(*reductions[m], body);
      if (!reduced || !structurally_equal(*reduced, x)) return std::nullopt;
      if (nan && !structurally_equal(nan->operands[0], x)) return std::nullopt;
      result.extremum = m;
      return result;
    }
  }
  return std::nullopt;
}

Expr is_extremum(bool takes_nan, const Expr& x, const Expr& m) {
  const Expr same = equal(x, m);
  return takes_nan ? logical_or(same, unary(UnaryOp::kIsNan, x)) : same;
}

}  // namespace tessera::inline tensor_programs
