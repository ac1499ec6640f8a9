#include <fmt/format.h>

#include <algorithm>

#include "loop/intrinsic.h"
#include "schedule/kernel/guards.h"
#include "schedule/kernel/linear_kernel.h"
#include "schedule/kernel/loop_builder.h"
#include "schedule/rules/regions.h"
#include "schedule/rules/register_tile/subpixel_phases.h"
#include "schedule/rules/register_tile/tile_shape.h"
#include "schedule/rules/register_tile/tiling.h"
#include "schedule/rules/rules.h"
#include "support/error.h"

// How a kernel is cut. The output has a vector axis (its innermost dimension), a row axis (the next one that moves,
// output width for images, m for matrix products) and other axes. A tile is `vectors` blocks of the vector axis times
// `rows` rows, accumulated in registers over the whole reduction and then finished by the epilogue. Padding of
// convolutions never reaches the inner loop: conditions on the row axis decide, at compile time, which rows of a tile
// take part for which window column; conditions on other axes become `if`s outside the inner loops.
namespace tessera::inline schedule {
namespace {

bool all_loads(const Expr& e, const std::function<bool(const Expr&)>& test) {
  bool ok = true;
  walk(e, [&](const Expr& node) { ok &= node->kind != ExprKind::kLoad || test(node); });
  return ok;
}

std::string choose_axes(Tiling& t, Knobs& knobs, const std::string& suffix) {
  LinearKernel& k = t.kernel;
  if (k.loops.empty()) return "the output is a scalar";
  const Var last = k.loops.back().var;
  merge_loops(k, [&](const OutputLoop& outer, const OutputLoop& inner) {
    return outer.part == LayoutDim::Part::kWhole && inner.part == LayoutDim::Part::kWhole && !inner.var.same_node(last);
  });
  t.vector = k.loops.back();
  t.blocked = t.vector.part == LayoutDim::Part::kRemainder;
  for (const OutputLoop& loop : k.loops) {
    if (loop.var.same_node(t.vector.var)) continue;
    if (loop.part == LayoutDim::Part::kQuotient && loop.axis == t.vector.axis) t.block = loop;
    else if (loop.part != LayoutDim::Part::kWhole) return "the output's layout blocks another axis than the innermost";
    else t.others.push_back(loop);
  }
  const int64_t lanes = t.target->vector_bits() / dtype_bits(k.reduce_dtype);
  if (t.blocked) {
    t.width = t.vector.extent;
    t.full_blocks = t.block.extent;
  } else {
    t.width = lanes;
    t.full_blocks = t.vector.extent / lanes;
    t.partial_lanes = t.vector.extent % lanes;
    t.block = t.vector;
    t.block.var = make_var("nb");
    t.block.extent = ceildiv(t.vector.extent, lanes)->int_value;
    t.block.stride = lanes;
    k.bounds.set(t.block.var, 0, t.block.extent - 1);
    // n = block * width + lane
    const Var lane = make_var("nl");
    k.bounds.set(lane, 0, t.width - 1);
    const VarMap split{{t.vector.var.get(), t.block.var * Expr(t.width) + lane}};
    for_each_value(k, [&](Expr& value) { value = substitute(value, split); });
    k.out_index = substitute(k.out_index, split);
    for (Expr& index : k.logical) index = substitute(index, split);
    t.vector.var = lane;
  }
  std::vector<int64_t> movable;  // numbers in `others`, innermost first
  std::vector<int64_t> choices;
  for (size_t i = t.others.size(); i-- > 0;)
    if (t.others[i].extent > 1) {
      choices.push_back(static_cast<int64_t>(movable.size()));
      movable.push_back(static_cast<int64_t>(i));
    }
  if (!movable.empty()) {
    // Rows that share vectors, if there are any: not the heads of attention that lie between its rows and columns.
    const auto shares = [&](int64_t other) {
      const Var& var = t.others[static_cast<size_t>(other)].var;
      return !all_loads(k.reduce_value, [&](const Expr& node) {
        return uses_var(node, var) || !(uses_var(node, t.vector.var) || uses_var(node, t.block.var));
      });
    };
    const auto sharing = std::find_if(movable.begin(), movable.end(), shares);
    const int64_t preferred = sharing == movable.end() ? 0 : sharing - movable.begin();
    const int64_t row = movable[static_cast<size_t>(knobs.choose("row_axis" + suffix, choices, preferred))];
    t.row = t.others[static_cast<size_t>(row)];
    t.others.erase(t.others.begin() + row);
  }
  return "";
}

// A network's first layer to few channels: straight code runs ahead into the next tile's image. Measured on Zen 5 in
// MobileNets while the other core works as well: 73 and 104 us instead of 140 and 196; alone as fast as loops. With
// more channels the larger tiles of loops are the better ones.
bool is_straight_image(const Tiling& t) {
  constexpr int64_t kFewBlocks = 3;
  const Expr image = image_of(t);
  return image && image->dtype == DType::kF32 && t.block.extent <= kFewBlocks && t.target->vector_registers() >= 32;
}

// A pool whose windows are more than one pixel apart. Straight code for few outputs runs ahead into the next tile's
// image, which comes from a far cache: measured on Zen 5 in networks, 3 x 3 places of 56 x 56 x 64 outputs take 44 to
// 56 us instead of 84 as loops over 14 outputs, and the first pool of VGG-16 450 instead of 580.
bool is_strided_pool(const Tiling& t) {
  constexpr int64_t kMostPlaces = 9;  // of a window
  int64_t places = 1;
  for (const Axis& axis : t.kernel.reduce) places *= *as_int(axis.extent);
  const Expr own = own_load(t);
  if (!own || places > kMostPlaces || t.target->vector_registers() < 32) return false;
  const bool alone = all_loads(t.update, [&](const Expr& node) { return node.same_node(own); });
  return alone && linear_coefficient(own->operands[0], t.row->var, t.kernel.bounds).value_or(0) > t.width;
}

std::string choose_reduce_loops(Tiling& t, Knobs& knobs, const std::string& suffix) {
  LinearKernel& k = t.kernel;
  constexpr int64_t kShort = 7;  // window rows and columns that may be copied although no condition asks for it
  const bool expand = knobs.choose_flag("expand" + suffix, is_straight_image(t) || is_strided_pool(t));
  ReduceLoop inner;
  for (size_t i = 0; i < k.reduce.size(); ++i) {
    const Axis& axis = k.reduce[i];
    const int64_t extent = *as_int(axis.extent);
    ReduceLoop loop;
    loop.var = axis.var;
    loop.extent = extent;
    loop.axis = static_cast<int>(i);
    const auto linear_in = [&](const Var& var) {
      return all_loads(
          t.update, [&](const Expr& node) { return linear_coefficient(node->operands[0], var, k.bounds).has_value(); });
    };
    if (extent > 1 && !linear_in(axis.var)) {
      // A blocked axis is walked block by block.
      int64_t block = 1;
      for (size_t p = 0; p < k.param_block.size(); ++p) block = std::max(block, k.param_block[p]);
      if (block == 1 || inner.var) return "an operand's address is not linear in a reduced axis";
      const Var quotient = make_var(axis.var->name + "b");
      const Var remainder = make_var(axis.var->name + "i");
      k.bounds.set(quotient, 0, ceildiv(extent, block)->int_value - 1);
      k.bounds.set(remainder, 0, block - 1);
      t.update = simplify(substitute(t.update, {{axis.var.get(), quotient * Expr(block) + remainder}}), k.bounds);
      if (!linear_in(quotient) || !linear_in(remainder)) return "an operand's address is not linear in a reduced axis";
      loop.var = quotient;
      loop.extent = ceildiv(extent, block)->int_value;
      loop.multiplier = block;
      inner.var = remainder;
      inner.extent = block;
      inner.axis = loop.axis;
      if (extent % block != 0) inner.dynamic_extent = min(Expr(block), Expr(extent) - quotient * Expr(block));
      if (loop.extent == 1) {
        inner.extent = extent;
        inner.dynamic_extent = {};
      }
      for (const Expr& guard : t.guards)
        if (uses_var(guard, axis.var)) return "a condition depends on a blocked axis";
      for (const Expr& guard : t.row_guards)
        if (uses_var(guard, axis.var)) return "a condition depends on a blocked axis";
    }
    loop.expanded = std::any_of(t.row_guards.begin(), t.row_guards.end(),
                                [&](const Expr& guard) { return uses_var(guard, axis.var); }) ||
                    (expand && loop.extent <= kShort && loop.multiplier == 1);
    t.reduce.push_back(loop);
  }
  if (inner.var) t.reduce.push_back(inner);
  // Loops that run once need no variable.
  VarMap zero;
  std::vector<ReduceLoop> kept;
  for (ReduceLoop& loop : t.reduce) {
    if (loop.extent == 1) {
      zero[loop.var.get()] = 0;
      k.bounds.set(loop.var, 0, 0);
    } else {
      kept.push_back(loop);
    }
  }
  t.reduce = std::move(kept);
  if (t.reduce.size() > 1) {
    // Which loop of the reduction is outermost; the others keep their order.
    std::vector<int64_t> choices;
    for (size_t i = 0; i < t.reduce.size(); ++i) choices.push_back(static_cast<int64_t>(i));
    const int64_t outer = knobs.choose("reduce_outer" + suffix, choices, 0);
    if (t.reduce[static_cast<size_t>(outer)].dynamic_extent) return "the outermost loop's extent depends on another";
    std::rotate(t.reduce.begin(), t.reduce.begin() + outer, t.reduce.begin() + outer + 1);
  }
  t.update = simplify(substitute(t.update, zero), k.bounds);
  for (auto* guards : {&t.guards, &t.row_guards})
    for (Expr& guard : *guards) guard = simplify(substitute(guard, zero), k.bounds);
  int64_t copies = 1;
  for (const ReduceLoop& loop : t.reduce) copies *= loop.expanded ? loop.extent : 1;
  if (copies > 32) return fmt::format("{} window columns would be expanded, more than 32", copies);
  return "";
}

// Whether `e` is a product of conversions of loads.
bool multiplies_narrow(const Expr& e) {
  return e->kind == ExprKind::kBinary && e->binary == BinaryOp::kMul &&
         std::all_of(e->operands.begin(), e->operands.end(), [](const Expr& factor) {
           return factor->kind == ExprKind::kCast && factor->operands[0]->kind == ExprKind::kLoad;
         });
}

// The instruction for sums of f32 of products of pairs of 16-bit floats, or of i32 of groups of bytes.
const TensorIntrinsic* dot_intrinsic(const Target& target, DType sums, DType row, DType stored) {
  if (sums == DType::kI32) return byte_dot_intrinsic(target, row, stored);
  return sums == DType::kF32 && row == stored ? best_dot_intrinsic(target, row) : nullptr;
}

// Products of 16-bit floats are summed in pairs and those of bytes in groups of four where the machine has an
// instruction for it: neighbours along a reduced loop, which becomes the last, that lie side by side in the operand
// without the vector axis; the other one is stored in such groups. The places between the end of an axis and the end of
// its last block take part in sums of integers: what lies there, whatever it is, is multiplied by zeros.
void choose_groups(Tiling& t) {
  LinearKernel& k = t.kernel;
  if (!multiplies_narrow(t.update) || k.combiner != Combiner::kSum || t.reduce.empty()) return;
  const auto coefficient = [&](size_t factor, const Var& var) {
    return linear_coefficient(t.update->operands[factor]->operands[0]->operands[0], var, k.bounds);
  };
  const size_t row = coefficient(0, t.vector.var) == 0 ? 0 : 1;
  const BufferPtr& stored = t.update->operands[1 - row]->operands[0]->buffer;
  const TensorIntrinsic* dot =
      dot_intrinsic(*t.target, t.update.dtype(), t.update->operands[row]->operands[0].dtype(), stored->dtype);
  if (!dot || (dot->dtype == DType::kF32 ? t.width != dot->lanes : t.width % dot->lanes != 0)) return;
  const int64_t depth = dot->depth;
  for (size_t p = 0; p + 1 < k.params.size(); ++p)
    if (k.params[p] == stored && !k.may_be_packed(p)) return;
  const bool to_the_end = dot->dtype == DType::kI32;
  int64_t block = 1;  // in which places side by side are stored
  for (size_t p = 0; p + 1 < k.params.size(); ++p)
    if (k.params[p] == t.update->operands[row]->operands[0]->buffer) block = k.param_block[p];
  const auto places = [&](const ReduceLoop& loop) {
    const int64_t whole = (loop.extent + depth - 1) / depth * depth;
    return to_the_end && whole <= block ? whole : loop.extent;
  };
  const auto has_groups = [&](const ReduceLoop& loop) {
    for (const auto* guards : {&t.guards, &t.row_guards})
      for (const Expr& guard : *guards)
        if (uses_var(guard, loop.var)) return false;
    return places(loop) % depth == 0 && (!loop.dynamic_extent || to_the_end) && !loop.expanded &&
           coefficient(row, loop.var) == 1;
  };
  const auto found = std::find_if(t.reduce.rbegin(), t.reduce.rend(), has_groups);
  if (coefficient(row, t.vector.var) != 0 || found == t.reduce.rend()) return;
  std::rotate(found.base() - 1, found.base(), t.reduce.end());
  ReduceLoop& loop = t.reduce.back();
  // The first factor has no vector axis, as the intrinsic wants it.
  if (row == 1) t.update = t.update->operands[1] * t.update->operands[0];
  const Var group = make_var(loop.var->name + "h");
  t.place = make_var("s");
  loop.extent = places(loop) / depth;
  loop.dynamic_extent = {};
  // A single group's variable stays in the addresses, too: packing goes by its coefficient.
  k.bounds.set(group, 0, std::max<int64_t>(loop.extent, 2) - 1);
  k.bounds.set(t.place, 0, depth - 1);
  t.update = simplify(substitute(t.update, {{loop.var.get(), group * Expr(depth) + t.place}}), k.bounds);
  loop.var = group;
  loop.multiplier *= depth;
  t.dot = dot;
}

// Vectors of several blocks are read together. Blocks that lie a multiple of the distance apart at which addresses
// compete for the same lines of the first level of cache get a step of zeros behind them.
int64_t blank_steps(const Tiling& t, DType dtype) {
  constexpr int64_t kSets = 4096;
  if (t.reduce.size() != 1 || t.block.extent == 1) return 0;
  return dtype_bytes(dtype, t.reduce[0].extent * t.width * t.depth()) % kSets == 0 ? 1 : 0;
}

// Constant operands that depend on the vector axis, but not on rows, are stored in the order
// [others][block][reduce loops][lane], with groups [others][block][reduce loops][lane][2 or 4].
void pack_operands(Tiling& t) {
  LinearKernel& k = t.kernel;
  for (size_t p = 0; p + 1 < k.params.size(); ++p) {
    if (!k.may_be_packed(p) || k.param_block[p] != 1) continue;
    std::vector<Expr> loads;
    walk(t.update, [&](const Expr& node) {
      if (node->kind == ExprKind::kLoad && node->buffer == k.params[p]) loads.push_back(node);
    });
    bool elsewhere = false;
    const auto look = [&](const Expr& node) {
      elsewhere |= node->kind == ExprKind::kLoad && node->buffer == k.params[p];
    };
    walk(k.value, look);
    for (const LinearResult& result : k.more_results) walk(result.value, look);
    if (loads.size() != 1 || elsewhere) continue;
    const Expr& address = loads[0]->operands[0];
    const auto coefficient = [&](const Var& var) { return linear_coefficient(address, var, k.bounds); };
    const auto lane = coefficient(t.vector.var);
    const auto block = coefficient(t.block.var);
    // A single block's variable is zero everywhere and has no coefficient.
    if (!lane || !block || *lane == 0 || (t.block.extent > 1 && *block != *lane * t.width)) continue;
    if (t.row && coefficient(t.row->var) != 0) continue;

    PackSpec spec;
    const int64_t vector_extent = t.blocked ? k.extents[static_cast<size_t>(t.vector.axis)] : t.vector.extent;
    spec.axes.push_back({vector_extent, *lane});
    VarMap zero{{t.vector.var.get(), Expr(0)}, {t.block.var.get(), Expr(0)}};
    Expr packed_address = 0;
    PackedOrder order;
    bool linear = true;
    const auto add = [&](const Var& var, int64_t extent, int axis, int64_t multiplier) {
      spec.dims.push_back({extent, axis, multiplier});
      order.vars.push_back(var);
      packed_address = packed_address * Expr(extent) + var;
      zero[var.get()] = 0;
    };
    for (const OutputLoop& loop : t.others) {
      const auto c = coefficient(loop.var);
      linear &= c.has_value();
      if (!c || *c == 0) continue;
      spec.axes.push_back({loop.extent, *c});
      add(loop.var, loop.extent, static_cast<int>(spec.axes.size()) - 1, 1);
    }
    order.block = spec.dims.size();
    add(t.block.var, t.block.extent, 0, t.width);
    const size_t first_reduce = spec.dims.size();
    std::vector<int> pack_axis(k.reduce.size(), -1);
    for (const ReduceLoop& loop : t.reduce) {
      const auto c = coefficient(loop.var);
      linear &= c.has_value();
      if (!c || *c == 0) continue;
      int& axis = pack_axis[static_cast<size_t>(loop.axis)];
      if (axis < 0) {
        axis = static_cast<int>(spec.axes.size());
        spec.axes.push_back({*as_int(k.reduce[static_cast<size_t>(loop.axis)].extent), *c / loop.multiplier});
      }
      add(loop.var, loop.extent + blank_steps(t, k.params[p]->dtype), axis, loop.multiplier);
    }
    add(t.vector.var, t.width, 0, 1);
    if (t.dot) {
      const ReduceLoop& loop = t.reduce.back();
      const int axis = pack_axis[static_cast<size_t>(loop.axis)];
      if (axis < 0) continue;
      add(t.place, t.depth(), axis, loop.multiplier / t.depth());
    }
    const auto offset = as_int(simplify(substitute(address, zero), k.bounds));
    if (!linear || !offset) continue;
    spec.offset = *offset;
    t.block_elements = 1;
    for (size_t d = first_reduce; d < spec.dims.size(); ++d) t.block_elements *= spec.dims[d].extent;
    const BufferPtr buffer = make_buffer(k.params[p]->name + "_packed", k.params[p]->dtype, {spec.num_elements()});
    const Expr replaced = loads[0];
    t.update = transform(t.update, [&](const Expr& node) -> Expr {
      return structurally_equal(node, replaced) ? load(buffer, {simplify(packed_address, k.bounds)}) : Expr();
    });
    k.params[p] = buffer;
    t.packed.push_back({p, {std::move(spec)}});
    t.orders.push_back(std::move(order));
  }
}

// Stores packed operands in the order [others][group of blocks][reduce loops][block of the group][lane], each of
// block_groups as a part of its own: a tile then reads its vectors one behind the other instead of as many streams.
void store_by_groups(Tiling& t) {
  LinearKernel& k = t.kernel;
  const std::vector<BlockGroups> groups = block_groups(t);
  t.group = make_var("gb");
  t.member = make_var("vb");
  t.updates.assign(groups.size(), t.update);
  k.bounds.set(t.group, 0, groups[0].count - 1);
  k.bounds.set(t.member, 0, groups[0].vectors - 1);
  for (size_t i = 0; i < t.packed.size(); ++i) {
    // Behind the blocks there may be columns that are dot products.
    std::vector<PackSpec>& parts = t.packed[i].parts;
    const PackSpec whole = parts[0];
    const std::vector<PackSpec> behind(parts.begin() + 1, parts.end());
    const PackedOrder& order = t.orders[i];
    parts.clear();
    int64_t begin = 0;  // of the part
    for (size_t g = 0; g < groups.size(); ++g) {
      const BlockGroups& group = groups[g];
      PackSpec part = whole;
      part.dims.clear();
      part.offset += group.first_block * t.width * whole.axes[0].stride;
      part.axes[0].extent -= group.first_block * t.width;
      Expr address = 0;
      const auto add = [&](const Var& var, const PackDim& dim) {
        part.dims.push_back(dim);
        address = address * Expr(dim.extent) + var;
      };
      // The lane is the last dimension, but for groups.
      const size_t lane = whole.dims.size() - (t.dot ? 2 : 1);
      for (size_t d = 0; d < whole.dims.size(); ++d) {
        if (d == lane) add(t.member, {group.vectors, 0, t.width});
        if (d == order.block) add(t.group, {group.count, 0, group.vectors * t.width});
        else add(order.vars[d], whole.dims[d]);
      }
      address = simplify(address + Expr(begin), k.bounds);
      begin += part.num_elements();
      t.updates[g] = transform(t.updates[g], [&](const Expr& node) -> Expr {
        if (node->kind != ExprKind::kLoad || node->buffer != k.params[t.packed[i].param]) return {};
        return load(node->buffer, {address});
      });
      parts.push_back(std::move(part));
    }
    parts.insert(parts.end(), behind.begin(), behind.end());
  }
}

std::string check_operands(Tiling& t) {
  LinearKernel& k = t.kernel;
  if (!all_loads(t.update, [&](const Expr& node) {
        const auto c = linear_coefficient(node->operands[0], t.vector.var, k.bounds);
        return c == 0 || c == t.depth();
      }))
    return "an operand is not contiguous along the output's innermost axis";
  // Lanes of padding are computed like the others, so what is read for them must be there.
  if (t.blocked && k.extents[static_cast<size_t>(t.vector.axis)] % t.width != 0) {
    std::vector<const Buffer*> unpadded;
    for (size_t p = 0; p + 1 < k.params.size(); ++p) {
      const bool packed =
          std::any_of(t.packed.begin(), t.packed.end(), [&](const PackedParam& q) { return q.param == p; });
      if (!packed && k.param_block[p] == 1) unpadded.push_back(k.params[p].get());
    }
    if (!all_loads(t.update, [&](const Expr& node) {
          return std::find(unpadded.begin(), unpadded.end(), node->buffer.get()) == unpadded.end() ||
                 !(uses_var(node, t.vector.var) || uses_var(node, t.block.var));
        }))
      return "an operand without padding is read along the padded axis";
  }
  for (const Expr& guard : t.guards)
    if (uses_var(guard, t.vector.var)) return "a condition depends on the vector axis";
  for (const Expr& guard : t.row_guards)
    if (uses_var(guard, t.vector.var)) return "a condition depends on the vector axis";
  return "";
}

// Where what is read along the vector axis is stored in whole blocks, the last one is computed like the others, and the
// lanes that the output does not have are not stored.
void join_partial_block(Tiling& t) {
  if (t.partial_lanes == 0) return;
  const LinearKernel& k = t.kernel;
  const auto packed = [&](const BufferPtr& buffer) {
    return std::any_of(t.packed.begin(), t.packed.end(),
                       [&](const PackedParam& p) { return k.params[p.param] == buffer; });
  };
  if (!all_loads(t.update, [&](const Expr& node) {
        return packed(node->buffer) || !(uses_var(node, t.vector.var) || uses_var(node, t.block.var));
      }))
    return;
  t.stored_lanes = t.partial_lanes;
  t.partial_lanes = 0;
  ++t.full_blocks;
}

// Which rows take part in each tile, for each assignment of the expanded loops.
std::string find_row_runs(Tiling& t) {
  const int64_t num_rows = t.row ? t.row->extent : 1;
  const int64_t rows = t.shape.rows;
  std::vector<const ReduceLoop*> expanded;
  for (const ReduceLoop& loop : t.reduce)
    if (loop.expanded) expanded.push_back(&loop);
  int64_t assignments = 1;
  for (const ReduceLoop* loop : expanded) assignments *= loop->extent;

  // Validity of every row for every assignment.
  std::vector<std::vector<bool>> valid(static_cast<size_t>(assignments),
                                       std::vector<bool>(static_cast<size_t>(num_rows), true));
  if (!t.row_guards.empty())
    for (int64_t a = 0; a < assignments; ++a) {
      VarMap at;
      int64_t rest = a;
      for (size_t i = expanded.size(); i-- > 0; rest /= expanded[i]->extent)
        at[expanded[i]->var.get()] = rest % expanded[i]->extent;
      std::vector<Expr> conditions;
      for (const Expr& guard : t.row_guards) conditions.push_back(substitute(guard, at));
      for (int64_t r = 0; r < num_rows; ++r)
        for (const Expr& condition : conditions) {
          const Expr answer = simplify(substitute(condition, {{t.row->var.get(), Expr(r)}}), t.kernel.bounds);
          if (!is_true(answer) && !is_false(answer)) return "a condition mixes the row axis with another";
          if (is_false(answer)) valid[static_cast<size_t>(a)][static_cast<size_t>(r)] = false;
        }
    }
  t.runs.clear();
  for (int64_t tile = 0; tile * rows < num_rows; ++tile) {
    RowRun run;
    run.first_tile = tile;
    run.num_tiles = 1;
    run.rows = std::min(rows, num_rows - tile * rows);
    for (const auto& flags : valid) {
      int64_t begin = 0;
      int64_t end = run.rows;
      while (begin < end && !flags[static_cast<size_t>(tile * rows + begin)]) ++begin;
      while (end > begin && !flags[static_cast<size_t>(tile * rows + end - 1)]) --end;
      for (int64_t r = begin; r < end; ++r)
        if (!flags[static_cast<size_t>(tile * rows + r)]) return "the rows that take part are not one interval";
      run.active.emplace_back(begin, end);
    }
    if (!t.runs.empty() && t.runs.back().rows == run.rows && t.runs.back().active == run.active)
      ++t.runs.back().num_tiles;
    else t.runs.push_back(std::move(run));
  }
  if (t.runs.size() > 12) return fmt::format("padding makes {} different kinds of tiles, more than 12", t.runs.size());
  return "";
}

// Whether a depthwise convolution has new weights so often that waiting for them shows: in a network they come from a
// far cache, and few tiles share those of a group of channels. Measured on Zen 5 in networks: asking ahead gains 5 to
// 15 % on images of 14 x 14 places, and with windows of 5 x 5 on those of 28 x 28; with more tiles to a group it gains
// nothing, and with stride 2 it costs up to a fifth.
bool waits_for_weights(const Tiling& t) {
  constexpr int64_t kLine = 64, kPlacesPerLine = 3;
  const Expr own = own_load(t);
  if (!own || t.packed.size() != 1) return false;
  if (linear_coefficient(own->operands[0], t.row->var, t.kernel.bounds) != t.width) return false;
  const int64_t places = (t.row->extent + t.shape.rows - 1) / t.shape.rows * places_beside_rows(t);
  const DType dtype = t.kernel.params[t.packed[0].param]->dtype;
  return places * kLine <= kPlacesPerLine * t.shape.vectors * dtype_bytes(dtype, t.block_elements);
}

// The knobs of the loops around the tiles and of the innermost loop within.
std::string ask_loops(Tiling& t, Knobs& knobs, const std::string& suffix) {
  t.group_block = knobs.choose("group_block" + suffix, {0, 1, 2, 4, 8, 16}, 0);
  t.place_block = knobs.choose("place_block" + suffix, {0, 1, 2, 4, 8, 16, 32}, near_places(t));
  // Joined loops divide to find their tile, and tiles of few steps feel it.
  constexpr int64_t kRowsForThreads = 32;
  const bool few_steps = is_straight_image(t) && 8 * t.target->num_threads <= kRowsForThreads;
  t.parallel = knobs.choose("parallel" + suffix, kParallelChoices, few_steps ? kRowsForThreads : kJoinAll);
  t.unroll = knobs.choose("unroll" + suffix, {1, 2, 4, 8}, 1);
  // Less stays in the nearest caches.
  constexpr int64_t kFarBytes = 32 << 10;
  int64_t bytes = 0;
  for (const PackedParam& packed : t.packed) {
    const Buffer& weights = *t.kernel.params[packed.param];
    bytes += dtype_bytes(weights.dtype, *as_int(weights.shape[0]));
  }
  t.prefetch = knobs.choose_flag("prefetch" + suffix,
                                 bytes >= kFarBytes || image_of(t) || waits_for_weights(t) || scattered_image_of(t));
  if (t.unroll > 1) {
    if (t.reduce.empty() || t.reduce.back().expanded || t.reduce.back().dynamic_extent)
      return "the innermost loop of the reduction cannot be unrolled further";
    if (t.reduce.back().extent % t.unroll != 0)
      return fmt::format("unroll {} does not divide {} steps", t.unroll, t.reduce.back().extent);
  }
  return "";
}

// Everything about `t.kernel` up to the tile shape; a reason when the rule does not take it.
std::string make_tiling(Tiling& t, bool with_groups, Knobs& knobs, const std::string& suffix) {
  std::string why;
  if (why = choose_axes(t, knobs, suffix); !why.empty()) return why;
  std::vector<Expr> conditions;
  const Expr value = simplify(t.kernel.reduce_value, t.kernel.bounds);
  t.update = take_guards(value, t.kernel.combiner, conditions, true);
  const auto on_lanes = [&](const Expr& condition) { return uses_var(condition, t.vector.var); };
  if (!is_float(value.dtype()) && std::any_of(conditions.begin(), conditions.end(), on_lanes)) {
    conditions.clear();
    t.update = take_guards(value, t.kernel.combiner, conditions);
  }
  for (const Expr& condition : conditions)
    (t.row && uses_var(condition, t.row->var) ? t.row_guards : t.guards).push_back(condition);
  if (why = choose_reduce_loops(t, knobs, suffix); !why.empty()) return why;
  if (with_groups) choose_groups(t);
  if (knobs.choose_flag("pack" + suffix, true)) pack_operands(t);
  if (t.dot && t.packed.empty()) return "the weights cannot be stored in groups";
  if (why = check_operands(t); !why.empty()) return why;
  if (suffix.empty()) choose_dot_columns(t, knobs);
  choose_split_block(t, knobs, suffix);
  join_partial_block(t);

  int64_t steps = 1;
  for (const ReduceLoop& loop : t.reduce) steps *= loop.extent;
  TileProblem problem;
  problem.rows = t.row ? t.row->extent : 1;
  problem.blocks = std::max<int64_t>(1, t.full_blocks);
  problem.registers_per_block =
      std::max<int64_t>(1, t.width * dtype_bits(t.kernel.reduce_dtype) / t.target->vector_bits());
  problem.steps = steps;
  // Products that are added by another instruction need a place.
  const bool adds = t.dot ? t.dot->code == IntrinsicCode::kPairsOfBytes : !t.target->has_fma();
  problem.registers = t.target->vector_registers() - (adds ? 1 : 0);
  if (!t.packed.empty()) {
    problem.block_bytes = dtype_bytes(t.kernel.params[t.packed[0].param]->dtype, steps * t.width * t.depth());
    problem.cache_bytes = t.target->l2_bytes;
  }
  if (t.row)
    walk(t.update, [&](const Expr& node) {
      if (node->kind != ExprKind::kLoad) return;
      if (const auto c = linear_coefficient(node->operands[0], t.row->var, t.kernel.bounds); c && *c != 0)
        problem.row_bytes = dtype_bytes(node->dtype, std::abs(*c));
    });
  // With 16 registers tiles are too small for this to show: measured on x86-64-v2 and v3.
  problem.is_depthwise = problem.registers >= 32 && own_load(t);
  // Copies of the innermost loop are straight-line code in which loads move up and registers spill: leave room, the
  // more where each accumulator has loads of its own.
  if (!t.reduce.empty() && t.reduce.back().expanded) {
    const bool few = t.reduce.back().extent <= 3 && !problem.is_depthwise;
    problem.registers = problem.registers * (few ? 5 : 4) / 8;
  }
  if (streams_weights(t)) {
    // This group of weights and the next one stay in the second level of cache.
    constexpr int64_t kTileRows = 8;
    if (problem.rows > kTileRows / 2 && problem.rows <= 2 * kTileRows)
      problem.most_vectors =
          std::clamp<int64_t>(problem.cache_bytes * 3 / 10 / std::max<int64_t>(problem.block_bytes, 1), 1, 8);
    if (problem.most_vectors == 1) problem.most_rows = kTileRows;
  }
  if (is_strided_pool(t)) {
    problem.blocks = 1;
    problem.most_rows = 4;
  }
  const AskedTile tile = ask_tile(problem, knobs, t.target->vector_registers(), suffix);
  t.shape = tile;
  if (!tile.refused.empty()) return tile.refused;
  if (why = ask_loops(t, knobs, suffix); !why.empty()) return why;
  if (why = find_row_runs(t); !why.empty()) return why;
  if (!t.packed.empty() && t.full_blocks > 0 && t.shape.vectors > 1 && !knobs.shares_weights()) {
    // One stream is read faster than several. That shows where the vectors bound a tile: with few rows, or where they
    // come from the first level of cache. Measured on Zen 5; BERT's large products lose 3 % by it.
    constexpr int64_t kFewRows = 4, kFirstLevel = 32 << 10;
    const bool read_fast =
        streams_weights(t) || t.shape.rows <= kFewRows || t.shape.vectors * problem.block_bytes <= kFirstLevel;
    if (knobs.choose_flag("by_group" + suffix, read_fast)) store_by_groups(t);
  }

  // Lanes beyond the logical extent are computed and stored into padding unless the epilogue would read out of bounds.
  t.store_guard = guard_of(t.kernel);
  return "";
}

// The phases of a transposed convolution pack different places of the same weights: one buffer holds their parts one
// after another.
std::string join_packed(std::vector<Tiling>& phases) {
  const size_t count = phases[0].packed.size();
  for (const Tiling& t : phases) {
    if (t.packed.size() != count) return "the phases do not pack the same operands";
    for (size_t i = 0; i < count; ++i)
      if (t.packed[i].param != phases[0].packed[i].param) return "the phases do not pack the same operands";
  }
  for (size_t i = 0; i < count; ++i) {
    const size_t param = phases[0].packed[i].param;
    int64_t total = 0;
    for (const Tiling& t : phases) total += t.packed[i].num_elements();
    const BufferPtr first = phases[0].kernel.params[param];
    const BufferPtr joined = make_buffer(first->name, first->dtype, {total});
    int64_t offset = 0;
    for (Tiling& t : phases) {
      const BufferPtr own = t.kernel.params[param];
      const auto moved = [&](const Expr& node) -> Expr {
        if (node->kind != ExprKind::kLoad || node->buffer != own) return {};
        return load(joined, {node->operands[0] + Expr(offset)});
      };
      t.update = transform(t.update, moved);
      for (Expr& update : t.updates) update = transform(update, moved);
      if (t.split.update) t.split.update = transform(t.split.update, moved);
      t.kernel.params[param] = joined;
      offset += t.packed[i].num_elements();
      if (&t != &phases[0])
        for (PackSpec& part : t.packed[i].parts) phases[0].packed[i].parts.push_back(std::move(part));
    }
  }
  return "";
}

// What a kernel that does not reduce stores, in vectors of its innermost loop.
Stmt store_empty_sums(const LinearKernel& kernel, const Target& target) {
  const std::vector<OutputLoop> outer(kernel.loops.begin(), kernel.loops.end() - 1);
  const OutputLoop& last = kernel.loops.back();
  const int64_t width = std::min<int64_t>(last.extent, target.vector_bits() / dtype_bits(kernel.reduce_dtype));
  bool in_bounds = loads_in_bounds(kernel.value, kernel.bounds);
  for (const LinearResult& result : kernel.more_results)
    in_bounds = in_bounds && loads_in_bounds(result.value, kernel.bounds);
  const bool guarded = kernel.padded && !in_bounds;
  return outer_nest(outer, kJoinAll, [&](const VarMap& at) {
    const auto vector = [&](const Expr& begin, int64_t lanes) {
      return vectorized("l", lanes, [&](const Var& l) {
        VarMap map = at;
        map[last.var.get()] = begin + l;
        const Stmt body = store_each(kernel, map, map);
        return guarded ? if_then(substitute(kernel.inside(), map), body) : body;
      });
    };
    const Var v = make_var("v");
    std::vector<Stmt> row = {for_loop(v, 0, last.extent / width, ForKind::kSerial, vector(v * Expr(width), width))};
    const int64_t rest = last.extent % width;
    if (rest != 0) row.push_back(vector(last.extent - rest, rest));
    return seq(std::move(row));
  });
}

}  // namespace

RuleResult register_tile(const TensorProgram& program, const Target& target, Knobs& knobs) {
  std::string why;
  auto made = make_linear_kernel(program, why, Results::kSeveral);
  if (!made) return Declined{why};
  if (!made->more_reductions.empty()) return Declined{"the kernel has several reductions"};
  if (made->combiner == Combiner::kNone) return Declined{"the kernel does not reduce"};
  // A tile would have one lane, and row_reduce has them all.
  if (!made->padded && !made->loops.empty() && made->loops.back().extent == 1) {
    LinearKernel split = *made;
    split_blocked_reductions(split);
    if (const int axis = contiguous_reduced_axis(split);
        axis >= 0 && *as_int(split.reduce[static_cast<size_t>(axis)].extent) >= 4)
      return Declined{"the output's innermost axis has one element, and a reduced axis is contiguous"};
  }

  Phases parts = split_phases(std::move(*made));
  if (parts.sums.empty()) return Declined{"no place of a window counts"};
  std::vector<Tiling> phases;
  phases.reserve(parts.sums.size());
  for (LinearKernel& kernel : parts.sums) {
    Tiling& t = phases.emplace_back();
    t.kernel = std::move(kernel);
    t.target = &target;
    t.name = program.name;
    // Each phase has knobs of its own.
    const std::string suffix = phases.size() > 1 ? fmt::format(".{}", phases.size() - 1) : "";
    const Tiling untouched = t;
    Knobs asked = knobs;
    if (why = make_tiling(t, true, asked, suffix); !why.empty() && t.dot) {
      t = untouched;
      asked = knobs;
      why = make_tiling(t, false, asked, suffix);
    }
    knobs = asked;
    if (!why.empty()) return Declined{why};
  }
  if (phases.size() > 1)
    if (why = join_packed(phases); !why.empty()) return Declined{why};

  ScheduledKernel result;
  std::vector<Stmt> nests;
  for (const Tiling& t : phases) nests.push_back(emit_tiling_loops(t));
  for (const LinearKernel& kernel : parts.empty) nests.push_back(store_empty_sums(kernel, target));
  result.packed = std::move(phases[0].packed);
  result.program.name = program.name;
  result.program.params = phases[0].kernel.params;
  result.program.num_outputs = static_cast<int>(phases[0].kernel.num_results());
  result.program.body = nests.size() == 1 ? nests[0] : seq(std::move(nests));
  return result;
}

}  // namespace tessera::inline schedule
