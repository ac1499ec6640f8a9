#include <algorithm>
#include <bit>

#include "schedule/rules/register_tile/tiling.h"

// A block of the vector axis of which the output has few lanes costs as much as a whole one: a convolution to one
// channel computes sixteen. Where the factor with the rows is contiguous along the reduction, its vectors take some
// neighbours of the reduction for each column instead, and lanes of one column are added up at the end.
namespace tessera::inline schedule {
namespace {

// factor_of_rows along the last loop of the reduction, if vectors may hold neighbours along it.
std::optional<size_t> factor_of_parts(const Tiling& t) {
  // The same weights for all other axes: those that stand before the blocks would lie further apart than they do.
  if (t.dot || t.kernel.combiner != Combiner::kSum || t.reduce.empty() || t.packed.size() != 1 ||
      t.packed[0].parts.size() != 1 || t.dots.count != 0 || t.orders[0].block != 0)
    return std::nullopt;
  const ReduceLoop& loop = t.reduce.back();
  if (loop.expanded || loop.dynamic_extent || loop.multiplier != 1) return std::nullopt;
  for (const auto* guards : {&t.guards, &t.row_guards})
    for (const Expr& guard : *guards)
      if (uses_var(guard, loop.var)) return std::nullopt;
  return factor_of_rows(t, loop);
}

}  // namespace

void choose_split_block(Tiling& t, Knobs& knobs, const std::string& suffix) {
  constexpr double kLeastGain = 0.02;
  const int64_t whole = t.blocked ? t.kernel.extents[static_cast<size_t>(t.vector.axis)] / t.width : t.full_blocks;
  const int64_t columns = t.blocked ? t.kernel.extents[static_cast<size_t>(t.vector.axis)] % t.width : t.partial_lanes;
  if (columns == 0 || 2 * columns > t.width || !std::has_single_bit(static_cast<uint64_t>(t.width))) return;
  const auto rows = factor_of_parts(t);
  if (!rows) return;
  const auto lanes = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(columns)));
  const int64_t parts = t.width / lanes;
  ReduceLoop& loop = t.reduce.back();
  if (loop.extent % parts != 0) return;
  double steps = 1;
  for (const ReduceLoop& each : t.reduce) steps *= static_cast<double>(each.extent);
  // Kernels of different numbers of rows that share the weights decide alike.
  constexpr int64_t kSharedRows = 8;
  const int64_t num_rows = knobs.shares_weights() ? kSharedRows : t.row ? t.row->extent : 1;
  const double gain = steps - split_block_cost(columns, t.width, steps, num_rows);
  const bool pays = gain > kLeastGain * steps * static_cast<double>(whole + 1);
  if (!knobs.choose_flag("split" + suffix, pays)) return;

  // The block lies behind the whole ones: [others][reduce loops][column][part].
  std::vector<PackSpec>& parts_of = t.packed[0].parts;
  const PackedOrder& order = t.orders[0];
  PackSpec tail = parts_of[0];
  tail.offset += whole * t.width * tail.axes[0].stride;
  tail.axes[0].extent = columns;
  tail.dims.clear();
  t.split.place = make_var("s");
  t.kernel.bounds.set(t.split.place, 0, parts - 1);
  Expr address = 0;
  const auto add = [&](const Var& var, const PackDim& dim) {
    tail.dims.push_back(dim);
    address = address * Expr(dim.extent) + var;
  };
  PackDim place;
  for (size_t d = 0; d < order.vars.size(); ++d) {
    PackDim dim = parts_of[0].dims[d];
    if (d == order.block) continue;
    if (order.vars[d].same_node(loop.var)) {
      place = {parts, dim.axis, dim.multiplier};
      dim = {loop.extent / parts, dim.axis, dim.multiplier * parts};
    }
    if (order.vars[d].same_node(t.vector.var)) dim.extent = lanes;
    add(order.vars[d], dim);
  }
  if (place.extent == 1) return;  // weights that are the same for each step
  add(t.split.place, place);
  parts_of[0].dims[order.block].extent = whole;
  const int64_t first = parts_of[0].num_elements();
  if (whole == 0) parts_of.clear();
  t.split.columns = columns;
  t.split.lanes = lanes;
  t.split.elements = tail.num_elements();
  parts_of.push_back(std::move(tail));

  const BufferPtr packed = t.kernel.params[t.packed[0].param];
  const BufferPtr weights = make_buffer(packed->name, packed->dtype, {first + t.split.elements});
  t.kernel.params[t.packed[0].param] = weights;
  const Expr along = substitute(t.update->operands[*rows], {{loop.var.get(), loop.var * Expr(parts) + t.split.place}});
  t.split.update = along * load(weights, {Expr(first) + address});
  t.update = transform(t.update, [&](const Expr& node) -> Expr {
    if (node->kind != ExprKind::kLoad || node->buffer != packed) return {};
    return load(weights, node->operands);
  });
  t.full_blocks = whole;
  t.partial_lanes = 0;
}

Tiling tiling_of_split_block(const Tiling& t) {
  Tiling narrow = t;
  narrow.update = t.split.update;
  narrow.updates.clear();
  const int64_t parts = t.width / t.split.lanes;
  narrow.reduce.back().extent /= parts;
  narrow.reduce.back().multiplier *= parts;
  narrow.unroll = 1;
  narrow.stored_lanes = t.blocked ? 0 : t.split.columns;
  return narrow;
}

}  // namespace tessera::inline schedule
