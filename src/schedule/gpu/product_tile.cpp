#include "schedule/gpu/product_tile.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "schedule/kernel/loop_builder.h"

namespace tessera::inline schedule {
namespace {

constexpr int64_t kLeastSide = 8;  // rows or columns that are worth tiles

bool uses_any(const Expr& e, const FlatAxes& axes) {
  return std::any_of(axes.axes.begin(), axes.axes.end(), [&](const Axis& axis) { return uses_var(e, axis.var); });
}

}  // namespace

bool is_const_zero(const Expr& e) {
  return e->kind == ExprKind::kConst && (is_float(e->dtype) ? e->float_value == 0 : e->int_value == 0);
}

std::optional<Factors> factors_of(const Expr& value) {
  if (value->kind == ExprKind::kBinary && value->binary == BinaryOp::kMul)
    return Factors{value->operands[0], value->operands[1]};
  if (value->kind != ExprKind::kSelect || !is_const_zero(value->operands[2])) return std::nullopt;
  auto inner = factors_of(value->operands[1]);
  if (!inner) return std::nullopt;
  // What a mask leaves out of a sum may be no number: only conditions on places are padding.
  const Expr& condition = value->operands[0];
  bool loads = false;
  walk(condition, [&](const Expr& e) { loads = loads || e->kind == ExprKind::kLoad; });
  if (loads) return std::nullopt;
  bool in_a = true, in_b = true;
  walk(condition, [&](const Expr& e) {
    if (e->kind != ExprKind::kVar) return;
    in_a = in_a && uses_var(inner->a, e);
    in_b = in_b && uses_var(inner->b, e);
  });
  if (!in_a && !in_b) return std::nullopt;
  Expr& guarded = in_a ? inner->a : inner->b;
  guarded = select(condition, guarded, const_of(guarded.dtype(), 0));
  return inner;
}

std::string ProductTile::find_axes() {
  // The last axis is the columns', whose neighbours are neighbours in memory.
  const auto in = [](const Expr& factor, const OutputLoop& loop) { return uses_var(factor, loop.var); };
  const OutputLoop* last = nullptr;
  for (const OutputLoop& loop : kernel_.loops)
    if (in(factors_.a, loop) != in(factors_.b, loop)) last = &loop;
  if (!last) return "both operands depend on the same axes of the output";
  if (in(factors_.a, *last)) std::swap(factors_.a, factors_.b);
  for (const OutputLoop& loop : kernel_.loops) {
    const bool of_a = in(factors_.a, loop), of_b = in(factors_.b, loop);
    FlatAxes& side = of_a == of_b ? batch_ : of_a ? a_side_.axes : b_side_.axes;
    side.add(loop.var, loop.size);
  }
  const FlatAxes &rows = a_side_.axes, &columns = b_side_.axes;
  for (size_t axis = 0; axis < kernel_.logical.size(); ++axis) {
    if (kernel_.extents[axis] == 0) continue;  // no layout's blocks fill it up
    const Expr inside = simplify(kernel_.logical[axis] < Expr(kernel_.extents[axis]), kernel_.bounds);
    if (is_true(inside)) continue;
    if (uses_any(inside, rows) && uses_any(inside, columns)) return "rows and columns share a padded axis";
    inside_.push_back(inside);
  }
  for (const Axis& axis : kernel_.reduce) steps_.add(axis.var, axis.extent);
  if (rows.extent < kLeastSide || columns.extent < kLeastSide)
    return fmt::format("{} rows and {} columns are no work for a tile", rows.extent, columns.extent);
  const auto by_steps = [&](const Expr& factor, const FlatAxes& side, bool otherwise) {
    const bool steps = reads_neighbours(factor, steps_.axes.back().var, kernel_.bounds);
    const bool places = reads_neighbours(factor, side.axes.back().var, kernel_.bounds);
    return steps == places ? otherwise : steps;
  };
  a_side_.factor = factors_.a, a_side_.by_steps = by_steps(factors_.a, rows, true);
  b_side_.factor = factors_.b, b_side_.by_steps = by_steps(factors_.b, columns, false);
  return {};
}

bool ProductTile::fits_grid() const {
  return a_side_.axes.is_at_most(kMostBlocksBeside, a_side_.tile) && batch_.is_at_most(kMostBlocksBeside) &&
         b_side_.axes.is_at_most(INT32_MAX, b_side_.tile);
}

Stmt ProductTile::in_blocks(const std::function<Stmt()>& make) {
  bounds_ = kernel_.bounds;
  const Expr rows = a_side_.axes.tiles(a_side_.tile), columns = b_side_.axes.tiles(b_side_.tile);
  const Var row_tile = var_below("row_tile", rows, bounds_), column_tile = var_below("column_tile", columns, bounds_);
  const Var plane = var_below("plane", batch_.size, bounds_);
  a_side_.first = row_tile * Expr(a_side_.tile);
  b_side_.first = column_tile * Expr(b_side_.tile);
  batch_.values_at(plane, bounds_, plane_);
  Stmt body = make();
  body = for_loop(column_tile, 0, columns, ForKind::kBlockX, body);
  body = for_loop(row_tile, 0, rows, ForKind::kBlockY, body);
  return for_loop(plane, 0, batch_.size, ForKind::kBlockZ, body);
}

ProductTile::Read ProductTile::read(const ProductOperand& side, const Expr& value, const Expr& place, const Expr& step,
                                    int64_t multiple) const {
  VarMap at = plane_;
  const Expr whole = side.first + place;
  side.axes.values_at(whole, bounds_, at);
  steps_.values_at(step, bounds_, at);
  Expr inside = const_int(DType::kBool, 1);
  if (!side.axes.has_whole(side.tile)) inside = logical_and(inside, whole < side.axes.size);
  if (!steps_.has_whole(multiple)) inside = logical_and(inside, step < steps_.size);
  // Nothing lies where a layout's blocks are filled up.
  for (const Expr& condition : inside_)
    if (uses_any(condition, side.axes) || uses_any(condition, batch_))
      inside = logical_and(inside, substitute(condition, at));
  return {substitute(value, at), inside};
}

Stmt ProductTile::store_results(const Expr& row_of_tile, const Expr& column_of_tile, const Expr& sum) const {
  const Expr row = a_side_.first + row_of_tile, column = b_side_.first + column_of_tile;
  VarMap at = plane_;
  a_side_.axes.values_at(row, bounds_, at);
  b_side_.axes.values_at(column, bounds_, at);
  Expr inside = const_int(DType::kBool, 1);
  if (!a_side_.axes.has_whole(a_side_.tile)) inside = logical_and(inside, row < a_side_.axes.size);
  if (!b_side_.axes.has_whole(b_side_.tile)) inside = logical_and(inside, column < b_side_.axes.size);
  for (const Expr& condition : inside_) inside = logical_and(inside, substitute(condition, at));
  VarMap finished = at;
  finished[kernel_.result_var.get()] = sum;
  const Stmt stored = store_each(kernel_, at, finished);
  return is_true(inside) ? stored : if_then(inside, stored);
}

}  // namespace tessera::inline schedule
