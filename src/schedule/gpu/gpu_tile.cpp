#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "schedule/gpu/gpu_loops.h"
#include "schedule/gpu/gpu_rules.h"
#include "schedule/kernel/linear_kernel.h"
#include "schedule/kernel/loop_builder.h"

namespace tessera::inline schedule {
namespace {

constexpr int64_t kSteps = 16;               // of the sum that are in shared memory at once
constexpr int64_t kLanes = 4;                // neighbours in shared memory that a thread reads at once
constexpr int64_t kLeastSide = 8;            // rows or columns that are worth tiles
constexpr int64_t kMostBlocks = UINT16_MAX;  // along axes y and z

bool uses_any(const Expr& e, const FlatAxes& axes) {
  return std::any_of(axes.axes.begin(), axes.axes.end(), [&](const Axis& axis) { return uses_var(e, axis.var); });
}

bool is_const_zero(const Expr& e) {
  return e->kind == ExprKind::kConst && (is_float(e->dtype) ? e->float_value == 0 : e->int_value == 0);
}

// The two factors of what is summed.
struct Factors {
  Expr a, b;
};

// A product; or one that a condition on the variables of one factor alone makes zero, as padding does.
std::optional<Factors> factors_of(const Expr& value) {
  if (value->kind == ExprKind::kBinary && value->binary == BinaryOp::kMul)
    return Factors{value->operands[0], value->operands[1]};
  if (value->kind != ExprKind::kSelect || !is_const_zero(value->operands[2])) return std::nullopt;
  auto inner = factors_of(value->operands[1]);
  if (!inner) return std::nullopt;
  const Expr& condition = value->operands[0];
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

// Whether the elements that a factor reads at neighbouring values of the variable are neighbours in memory.
bool are_neighbours(const Expr& factor, const Var& var, const Bounds& bounds) {
  bool loads = false, near = true;
  walk(factor, [&](const Expr& e) {
    if (e->kind != ExprKind::kLoad || !uses_var(e, var)) return;
    const Expr& here = e->operands[0];
    VarMap next;
    next[var.get()] = var + Expr(1);
    const auto step = as_int(simplify(substitute(here, next) - here, bounds));
    loads = true;
    near = near && step == 1;
  });
  return loads && near;
}

// Rows and columns of a tile, and how they are dealt to the block's threads: up to kLanes neighbours at a time.
struct TileSide {
  int64_t threads = 1, each = 1;
  int64_t size() const { return threads * each; }
  int64_t lanes() const { return std::min(each, kLanes); }
  // Of a thread's i-th row or column.
  Expr place(const Expr& i, const Expr& thread, const Bounds& bounds) const {
    if (each == 1) return thread;
    const Expr lane = simplify(floormod(i, Expr(lanes())), bounds), group = simplify(floordiv(i, Expr(lanes())), bounds);
    return simplify(group * Expr(threads * lanes()) + thread * Expr(lanes()) + lane, bounds);
  }
};

TileSide side_for(int64_t extent, int64_t threads, int64_t most_of_thread) {
  TileSide side{threads, 1};
  while (side.each < most_of_thread && side.size() < extent) side.each *= 2;
  return side;
}

class TiledProduct {
 public:
  TiledProduct(const LinearKernel& kernel, Factors factors) : kernel_(kernel), factors_(std::move(factors)) {}

  // The reason why there is no tile for the kernel; empty when there is.
  std::string plan(const GpuLimits& limits) {
    std::vector<const OutputLoop*> loops;
    for (const OutputLoop& loop : kernel_.loops) loops.push_back(&loop);
    // The last axis is the columns', whose neighbours are neighbours in memory.
    const auto in = [](const Expr& factor, const OutputLoop& loop) { return uses_var(factor, loop.var); };
    const OutputLoop* last = nullptr;
    for (const OutputLoop* loop : loops)
      if (in(factors_.a, *loop) != in(factors_.b, *loop)) last = loop;
    if (!last) return "both operands depend on the same axes of the output";
    if (in(factors_.a, *last)) std::swap(factors_.a, factors_.b);  // a: of the rows, b: of the columns
    for (const OutputLoop* loop : loops) {
      const bool of_a = in(factors_.a, *loop), of_b = in(factors_.b, *loop);
      FlatAxes& side = of_a == of_b ? batch_ : of_a ? rows_ : columns_;
      side.add(loop->var, loop->extent);
    }
    for (size_t axis = 0; axis < kernel_.logical.size(); ++axis) {
      const Expr inside = simplify(kernel_.logical[axis] < Expr(kernel_.extents[axis]), kernel_.bounds);
      if (is_true(inside)) continue;
      if (uses_any(inside, rows_) && uses_any(inside, columns_)) return "rows and columns share a padded axis";
      inside_.push_back(inside);
    }
    for (const Axis& axis : kernel_.reduce) steps_.add(axis.var, *as_int(axis.extent));
    if (rows_.extent < kLeastSide || columns_.extent < kLeastSide)
      return fmt::format("{} rows and {} columns are no work for a tile", rows_.extent, columns_.extent);
    const int64_t width = limits.threads >= 256 ? 16 : 8;
    down_ = side_for(rows_.extent, width, limits.sums_of_thread);
    across_ = side_for(columns_.extent, width, limits.sums_of_thread);
    // Few tiles leave threads idle: smaller ones then.
    while (num_blocks() * width * width < limits.wanted_threads && std::max(down_.each, across_.each) > 1)
      (down_.each >= across_.each ? down_ : across_).each /= 2;
    if (row_tiles() > kMostBlocks || batch_.extent > kMostBlocks) return "too many tiles for a grid of blocks";
    if (dtype_bytes(factors_.a.dtype(), (down_.size() + kLanes) * kSteps) +
            dtype_bytes(factors_.b.dtype(), (across_.size() + kLanes) * kSteps) >
        limits.shared_bytes)
      return "the operands' pieces do not fit in shared memory";
    return {};
  }

  Stmt build() {
    const Var row_tile = make_var("row_tile"), column_tile = make_var("column_tile"), plane = make_var("plane");
    bounds_ = kernel_.bounds;
    bounds_.set(row_tile, 0, row_tiles() - 1);
    bounds_.set(column_tile, 0, column_tiles() - 1);
    bounds_.set(plane, 0, batch_.extent - 1);
    first_row_ = row_tile * Expr(down_.size());
    first_column_ = column_tile * Expr(across_.size());
    batch_.values_at(plane, bounds_, plane_);

    rows_by_steps_ = takes_steps_first(factors_.a, rows_, true);
    columns_by_steps_ = takes_steps_first(factors_.b, columns_, false);
    // What is written across is written to other banks with some lanes more.
    const auto pitch = [](const TileSide& side, bool by_steps) { return side.size() + (by_steps ? kLanes : 0); };
    a_ = make_buffer("rows", factors_.a.dtype(), {kSteps, pitch(down_, rows_by_steps_)}, MemoryScope::kLocal);
    b_ = make_buffer("columns", factors_.b.dtype(), {kSteps, pitch(across_, columns_by_steps_)}, MemoryScope::kLocal);
    sums_ = make_buffer("sums", kernel_.reduce_dtype, {down_.threads, across_.threads, down_.each, across_.each},
                        MemoryScope::kRegister);
    const Stmt steps = serial_loop(
        "piece", (steps_.extent + kSteps - 1) / kSteps,
        [&](const Var& piece) {
          const Expr first = piece * Expr(kSteps);
          return alloc(a_, alloc(b_, seq({fetch(first), multiply()})));
        },
        bounds_);
    Stmt body = alloc(sums_, seq({clear(), steps, finish()}));
    body = for_loop(column_tile, 0, column_tiles(), ForKind::kBlockX, body);
    body = for_loop(row_tile, 0, row_tiles(), ForKind::kBlockY, body);
    return for_loop(plane, 0, batch_.extent, ForKind::kBlockZ, body);
  }

 private:
  int64_t row_tiles() const { return (rows_.extent + down_.size() - 1) / down_.size(); }
  int64_t column_tiles() const { return (columns_.extent + across_.size() - 1) / across_.size(); }
  int64_t num_blocks() const { return row_tiles() * column_tiles() * batch_.extent; }

  Stmt threads(const std::string& name, const std::function<Stmt(const Expr& y, const Expr& x)>& body) {
    return thread_nest(name, down_.threads, across_.threads, body, bounds_);
  }
  // Of a thread's rows and columns, as its places in registers.
  Stmt each_sum(const std::function<Stmt(const Var& i, const Var& j)>& body) {
    return unrolled_loop(
        "i", down_.each,
        [&](const Var& i) {
          return unrolled_loop("j", across_.each, [&](const Var& j) { return body(i, j); }, bounds_);
        },
        bounds_);
  }

  Stmt clear() {
    return threads("clear", [&](const Expr& y, const Expr& x) {
      return each_sum([&](const Var& i, const Var& j) {
        return store(sums_, {y, x, i, j}, combiner_identity(Combiner::kSum, kernel_.reduce_dtype));
      });
    });
  }

  // Whether neighbouring threads fetch neighbouring steps of an operand, rather than neighbouring rows or columns.
  bool takes_steps_first(const Expr& factor, const FlatAxes& side, bool otherwise) const {
    const bool steps = are_neighbours(factor, steps_.axes.back().var, kernel_.bounds);
    const bool places = are_neighbours(factor, side.axes.back().var, kernel_.bounds);
    return steps == places ? otherwise : steps;
  }

  // A piece of one operand: `size` places along its side by kSteps; `steps_first`: neighbouring threads take
  // neighbouring steps. Zeros stand for what is outside.
  Stmt fetch_one(const BufferPtr& piece, const Expr& factor, const FlatAxes& side, int64_t size,
                 const Expr& first_place, const Expr& first_step, bool steps_first, const Expr& thread) {
    const int64_t num_threads = down_.threads * across_.threads;
    const int64_t rounds = (size * kSteps + num_threads - 1) / num_threads;
    return unrolled_loop(
        "round", rounds,
        [&](const Var& round) {
          const Expr number = round * Expr(num_threads) + thread;
          const int64_t fast = steps_first ? kSteps : size;
          const Expr quick = simplify(floormod(number, Expr(fast)), bounds_);
          const Expr slow = simplify(floordiv(number, Expr(fast)), bounds_);
          const Expr step = steps_first ? quick : slow, place = steps_first ? slow : quick;
          VarMap at = plane_;
          side.values_at(first_place + place, bounds_, at);
          steps_.values_at(first_step + step, bounds_, at);
          Expr value = substitute(factor, at);
          Expr inside = const_int(DType::kBool, 1);
          if (side.extent % size != 0) inside = logical_and(inside, first_place + place < Expr(side.extent));
          if (steps_.extent % kSteps != 0) inside = logical_and(inside, first_step + step < Expr(steps_.extent));
          // Nothing lies where a layout's blocks are filled up.
          for (const Expr& condition : inside_)
            if (uses_any(condition, side) || uses_any(condition, batch_))
              inside = logical_and(inside, substitute(condition, at));
          if (!is_true(inside)) value = select(inside, value, const_of(value.dtype(), 0));
          const Stmt stored = store(piece, {step, place}, value);
          return rounds * num_threads == size * kSteps ? stored : if_then(number < Expr(size * kSteps), stored);
        },
        bounds_);
  }

  Stmt fetch(const Expr& first_step) {
    return threads("fetch", [&](const Expr& y, const Expr& x) {
      const Expr thread = y * Expr(across_.threads) + x;
      return seq({fetch_one(a_, factors_.a, rows_, down_.size(), first_row_, first_step, rows_by_steps_, thread),
                  fetch_one(b_, factors_.b, columns_, across_.size(), first_column_, first_step, columns_by_steps_, thread)});
    });
  }

  Stmt multiply() {
    const BufferPtr a = make_buffer("a", factors_.a.dtype(), {down_.each}, MemoryScope::kRegister);
    const BufferPtr b = make_buffer("b", factors_.b.dtype(), {across_.each}, MemoryScope::kRegister);
    return threads("sum", [&](const Expr& y, const Expr& x) {
      const auto along = [&](const TileSide& side, const BufferPtr& to, const BufferPtr& from, const Var& step,
                             const Expr& thread) {
        return unrolled_loop(
            "i", side.each,
            [&](const Var& i) { return store(to, {i}, load(from, {step, side.place(i, thread, bounds_)})); }, bounds_);
      };
      const Stmt loop = serial_loop(
          "step", kSteps,
          [&](const Var& step) {
            return seq({along(down_, a, a_, step, y), along(across_, b, b_, step, x),
                        each_sum([&](const Var& i, const Var& j) {
                          const std::vector<Expr> place = {y, x, i, j};
                          const Expr sum = load(sums_, place), left = load(a, {i}), right = load(b, {j});
                          return store(sums_, place,
                                       is_float(kernel_.reduce_dtype) ? fma(left, right, sum) : sum + left * right);
                        })});
          },
          bounds_);
      return alloc(a, alloc(b, loop));
    });
  }

  Stmt finish() {
    return threads("finish", [&](const Expr& y, const Expr& x) {
      return each_sum([&](const Var& i, const Var& j) {
        const Expr row = first_row_ + down_.place(i, y, bounds_);
        const Expr column = first_column_ + across_.place(j, x, bounds_);
        VarMap at = plane_;
        rows_.values_at(row, bounds_, at);
        columns_.values_at(column, bounds_, at);
        Expr inside = const_int(DType::kBool, 1);
        if (rows_.extent % down_.size() != 0) inside = logical_and(inside, row < Expr(rows_.extent));
        if (columns_.extent % across_.size() != 0) inside = logical_and(inside, column < Expr(columns_.extent));
        for (const Expr& condition : inside_) inside = logical_and(inside, substitute(condition, at));
        VarMap finished = at;
        finished[kernel_.result_var.get()] = load(sums_, {y, x, i, j});
        const Stmt stored = store_each(kernel_, at, finished);
        return is_true(inside) ? stored : if_then(inside, stored);
      });
    });
  }

  const LinearKernel& kernel_;
  Factors factors_;
  FlatAxes batch_, rows_, columns_, steps_;
  TileSide down_, across_;
  bool rows_by_steps_ = true, columns_by_steps_ = false;
  Bounds bounds_;
  Expr first_row_, first_column_;
  VarMap plane_;
  std::vector<Expr> inside_;  // what holds of places inside the logical extents
  BufferPtr a_, b_, sums_;
};

}  // namespace

GpuRuleResult gpu_tile(const TensorProgram& program, const GpuLimits& limits) {
  std::string why;
  const auto kernel = make_linear_kernel(program, why);
  if (!kernel) return Declined{why};
  if (kernel->combiner != Combiner::kSum) return Declined{"nothing is summed"};
  auto factors = factors_of(kernel->reduce_value);
  if (!factors) return Declined{"what is summed is no product"};
  if (factors->a.dtype() != kernel->reduce_dtype) return Declined{"factors and sums are of different types"};
  TiledProduct product(*kernel, std::move(*factors));
  if (std::string reason = product.plan(limits); !reason.empty()) return Declined{std::move(reason)};
  return gpu_program(program.name, *kernel, product.build());
}

}  // namespace tessera::inline schedule
