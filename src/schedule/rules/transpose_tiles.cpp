#include "schedule/rules/transpose_tiles.h"

#include <optional>

#include "loop/intrinsic.h"
#include "schedule/kernel/loop_builder.h"

namespace tessera::inline schedule {
namespace {

constexpr int64_t kEnoughIterations = 32;  // of the parallel loop

// The loop along which `index` is contiguous, cut into tiles of `lanes`: index' = f(..., tile, place within the tile).
struct Contiguous {
  size_t loop = 0;
  Var tile, within;
  Expr index;
};

std::optional<Contiguous> find_contiguous(const LinearKernel& kernel, const Expr& index, int64_t lanes) {
  for (size_t i = kernel.loops.size() - 1; i-- > 0;) {
    const OutputLoop& loop = kernel.loops[i];
    if (loop.extent < lanes) continue;
    Contiguous found{i, make_var(loop.var->name + "_tile"), make_var("r"), {}};
    Bounds bounds = kernel.bounds;
    bounds.set(found.tile, 0, loop.extent / lanes - 1);
    bounds.set(found.within, 0, lanes - 1);
    found.index = simplify(substitute(index, {{loop.var.get(), found.tile * Expr(lanes) + found.within}}), bounds);
    if (linear_coefficient(found.index, found.within, bounds) == 1) return found;
  }
  return std::nullopt;
}

}  // namespace

Stmt transpose_tiles(const LinearKernel& kernel, const Target& target, const AlongLast& along_last) {
  const Expr& value = kernel.value;
  if (kernel.loops.size() < 2 || value->kind != ExprKind::kLoad || value->buffer == kernel.out()) return {};
  const TensorIntrinsic* intrinsic = best_transpose_intrinsic(target, value.dtype());
  if (!intrinsic) return {};
  const int64_t lanes = intrinsic->lanes;
  const OutputLoop last = kernel.loops.back();
  const Expr& index = value->operands[0];
  const auto stride = linear_coefficient(index, last.var, kernel.bounds);
  if (last.extent < lanes || !stride || *stride == 0 || *stride == 1) return {};
  const auto found = find_contiguous(kernel, index, lanes);
  if (!found) return {};

  const OutputLoop& rows = kernel.loops[found->loop];
  const int64_t row_tiles = rows.extent / lanes, column_tiles = last.extent / lanes;
  std::vector<OutputLoop> outer;
  for (size_t i = 0; i + 1 < kernel.loops.size(); ++i)
    if (i != found->loop) outer.push_back(kernel.loops[i]);
  OutputLoop tiles = rows;
  tiles.var = found->tile;
  tiles.extent = row_tiles;
  std::vector<OutputLoop> with_tiles = outer;
  with_tiles.push_back(tiles);

  bool matches = true;
  std::vector<Stmt> parts;
  parts.push_back(outer_nest(with_tiles, kEnoughIterations, [&](const VarMap& at) {
    const Var column = make_var("c"), r = make_var("r"), l = make_var("l");
    VarMap places = at;
    places[found->within.get()] = r;
    places[last.var.get()] = column * Expr(lanes) + l;
    VarMap stored = at;
    stored[rows.var.get()] = at.at(found->tile.get()) * Expr(lanes) + r;
    stored[last.var.get()] = column * Expr(lanes) + l;
    const Stmt move = store(kernel.out(), {substitute(kernel.out_index, stored)},
                            load(value->buffer, {substitute(found->index, places)}));
    const Stmt tile = for_loop(r, 0, lanes, ForKind::kUnrolled, for_loop(l, 0, lanes, ForKind::kVectorized, move));
    matches = matches && match_intrinsic(*intrinsic, tile).empty();
    return for_loop(column, 0, column_tiles, ForKind::kSerial, matches ? tensorized(intrinsic, tile) : tile);
  }));
  if (!matches) return {};
  // The columns behind the last whole tile, then the rows.
  std::vector<OutputLoop> with_rows = outer;
  OutputLoop part = rows;
  const auto rest = [&](int64_t first, int64_t count, int64_t begin, int64_t columns) {
    if (count == 0 || columns == 0) return;
    part.var = make_var(rows.var->name);
    part.extent = count;
    with_rows.resize(outer.size());
    with_rows.push_back(part);
    parts.push_back(outer_nest(with_rows, kEnoughIterations, [&](const VarMap& at) {
      VarMap places = at;
      places[rows.var.get()] = at.at(part.var.get()) + Expr(first);
      return along_last(begin, columns, places);
    }));
  };
  rest(0, row_tiles * lanes, column_tiles * lanes, last.extent % lanes);
  rest(row_tiles * lanes, rows.extent % lanes, 0, last.extent);
  return seq(std::move(parts));
}

}  // namespace tessera::inline schedule
