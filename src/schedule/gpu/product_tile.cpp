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
    side.add(loop.var, loop.extent);
  }
  const FlatAxes &rows = a_side_.axes, &columns = b_side_.axes;
  for (size_t axis = 0; axis < kernel_.logical.size(); ++axis) {
    const Expr inside = simplify(kernel_.logical[axis] < Expr(kernel_.extents[axis]), kernel_.bounds);
    if (is_true(inside)) continue;
    if (uses_any(inside, rows) && uses_any(inside, columns)) return "rows and columns share a padded axis";
    inside_.push_back(inside);
  }
  for (const Axis& axis : kernel_.reduce) steps_.add(axis.var, *as_int(axis.extent));
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

bool ProductTile::fits_grid() const { return row_tiles() <= kMostBlocksBeside && batch_.extent <= kMostBlocksBeside; }

Stmt ProductTile::in_blocks(const std::function<Stmt()>& make) {
  const Var row_tile = make_var("row_tile"), column_tile = make_var("column_tile"), plane = make_var("plane");
  bounds_ = kernel_.bounds;
  bounds_.set(row_tile, 0, row_tiles() - 1);
  bounds_.set(column_tile, 0, column_tiles() - 1);
  bounds_.set(plane, 0, batch_.extent - 1);
  a_side_.first = row_tile * Expr(a_side_.tile);
  b_side_.first = column_tile * Expr(b_side_.tile);
  batch_.values_at(plane, bounds_, plane_);
  Stmt body = make();
  body = for_loop(column_tile, 0, column_tiles(), ForKind::kBlockX, body);
  body = for_loop(row_tile, 0, row_tiles(), ForKind::kBlockY, body);
  return for_loop(plane, 0, batch_.extent, ForKind::kBlockZ, body);
}

ProductTile::Read ProductTile::read(const ProductOperand& side, const Expr& value, const Expr& place, const Expr& step,
                                    int64_t multiple) const {
  VarMap at = plane_;
  const Expr whole = side.first + place;
  side.axes.values_at(whole, bounds_, at);
  steps_.values_at(step, bounds_, at);
  Expr inside = const_int(DType::kBool, 1);
  if (side.axes.extent % side.tile != 0) inside = logical_and(inside, whole < Expr(side.axes.extent));
  if (steps_.extent % multiple != 0) inside = logical_and(inside, step < Expr(steps_.extent));
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
  if (a_side_.axes.extent % a_side_.tile != 0) inside = logical_and(inside, row < Expr(a_side_.axes.extent));
  if (b_side_.axes.extent % b_side_.tile != 0) inside = logical_and(inside, column < Expr(b_side_.axes.extent));
  for (const Expr& condition : inside_) inside = logical_and(inside, substitute(condition, at));
  VarMap finished = at;
  finished[kernel_.result_var.get()] = sum;
  const Stmt stored = store_each(kernel_, at, finished);
  return is_true(inside) ? stored : if_then(inside, stored);
}

}  // namespace tessera::inline schedule
