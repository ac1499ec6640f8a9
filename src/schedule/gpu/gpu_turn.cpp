#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "schedule/gpu/gpu_loops.h"
#include "schedule/gpu/gpu_rules.h"
#include "schedule/kernel/linear_kernel.h"
#include "schedule/kernel/loop_builder.h"

namespace tessera::inline schedule {
namespace {

constexpr int64_t kSide = 32, kHeight = 8;  // of a tile; of a block's threads, whose width is a tile's
constexpr int64_t kLeastExtent = 16;

struct Turned {
  Expr load;
  BufferPtr tile;  // [last axis, other axis]: a thread's neighbours along the other axis are neighbours here
};

}  // namespace

GpuRuleResult gpu_turn(const TensorProgram& program, const GpuLimits& limits) {
  std::string why;
  const auto kernel = make_linear_kernel(program, why);
  if (!kernel) return Declined{why};
  if (!all_reductions(*kernel).empty()) return Declined{"something is reduced"};
  if (kernel->padded || kernel->loops.size() < 2 || kernel->loops.back().stride != 1)
    return Declined{"the output has no rows"};
  if (limits.threads < kSide * kHeight) return Declined{"a block has too few threads"};
  const OutputLoop& last = kernel->loops.back();
  const OutputLoop* other = nullptr;  // along which turned operands have their neighbours
  std::vector<Turned> turned;
  for (const Expr& wanted : certain_loads(kernel->value)) {
    if (!uses_var(wanted, last.var) || reads_neighbours(wanted, last.var, kernel->bounds)) continue;
    const auto axis = std::find_if(kernel->loops.begin(), kernel->loops.end(), [&](const OutputLoop& loop) {
      return reads_neighbours(wanted, loop.var, kernel->bounds);
    });
    if (axis == kernel->loops.end() || (other && other != &*axis)) continue;
    other = &*axis;
    turned.push_back(
        {wanted, make_buffer(wanted->buffer->name + "_tile", wanted->dtype, {kSide, kSide + 1}, MemoryScope::kLocal)});
  }
  if (!other) return Declined{"no operand is turned"};
  if (other->extent < kLeastExtent || last.extent < kLeastExtent) return Declined{"an axis is too short for tiles"};
  int64_t bytes = 0;
  for (const Turned& one : turned) bytes += dtype_bytes(one.tile->dtype, kSide * (kSide + 1));
  if (bytes > limits.shared_bytes) return Declined{"the tiles do not fit in shared memory"};

  FlatAxes planes;
  for (const OutputLoop& loop : kernel->loops)
    if (&loop != other && &loop != &last) planes.add(loop.var, loop.extent);
  const int64_t down = (other->extent + kSide - 1) / kSide, across = (last.extent + kSide - 1) / kSide;
  if (down > kMostBlocksBeside || planes.extent > kMostBlocksBeside)
    return Declined{"too many tiles for a grid of blocks"};
  Bounds bounds = kernel->bounds;
  const auto axis_of_blocks = [&](const char* name, int64_t extent) {
    const Var var = make_var(name);
    bounds.set(var, 0, extent - 1);
    return var;
  };
  const Var plane = axis_of_blocks("plane", planes.extent), row = axis_of_blocks("row_tile", down),
            column = axis_of_blocks("column_tile", across);
  VarMap in_plane;
  planes.values_at(plane, bounds, in_plane);
  // A place of the tile; null where there is nothing.
  const auto at_place = [&](const Expr& of_other, const Expr& of_last, const std::function<Stmt(const VarMap&)>& body) {
    VarMap at = in_plane;
    at[other->var.get()] = row * Expr(kSide) + of_other;
    at[last.var.get()] = column * Expr(kSide) + of_last;
    Expr inside = const_int(DType::kBool, 1);
    if (other->extent % kSide != 0) inside = logical_and(inside, at[other->var.get()] < Expr(other->extent));
    if (last.extent % kSide != 0) inside = logical_and(inside, at[last.var.get()] < Expr(last.extent));
    const Stmt stmt = body(at);
    return is_true(inside) ? stmt : if_then(inside, stmt);
  };
  const auto each_row = [&](const Expr& y, const std::function<Stmt(const Expr&)>& body) {
    return unrolled_loop(
        "round", kSide / kHeight, [&](const Var& round) { return body(round * Expr(kHeight) + y); }, bounds);
  };
  const Stmt bring = thread_nest(
      "bring", kHeight, kSide,
      [&](const Expr& y, const Expr& x) {
        return each_row(y, [&](const Expr& of_last) {
          return at_place(x, of_last, [&](const VarMap& at) {
            std::vector<Stmt> stores;
            for (const Turned& one : turned) stores.push_back(store(one.tile, {of_last, x}, substitute(one.load, at)));
            return seq(std::move(stores));
          });
        });
      },
      bounds);
  const Stmt give = thread_nest(
      "give", kHeight, kSide,
      [&](const Expr& y, const Expr& x) {
        return each_row(y, [&](const Expr& of_other) {
          const Expr value = transform(kernel->value, [&](const Expr& e) -> Expr {
            for (const Turned& one : turned)
              if (e.same_node(one.load)) return load(one.tile, {x, of_other});
            return {};
          });
          return at_place(of_other, x, [&](const VarMap& at) {
            return store(kernel->out(), {substitute(kernel->out_index, at)}, substitute(value, at));
          });
        });
      },
      bounds);
  Stmt body = seq({bring, give});
  for (size_t i = turned.size(); i-- > 0;) body = alloc(turned[i].tile, std::move(body));
  body = for_loop(column, 0, across, ForKind::kBlockX, std::move(body));
  body = for_loop(row, 0, down, ForKind::kBlockY, std::move(body));
  return gpu_program(program.name, *kernel, for_loop(plane, 0, planes.extent, ForKind::kBlockZ, std::move(body)));
}

}  // namespace tessera::inline schedule
