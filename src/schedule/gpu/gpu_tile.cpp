#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "schedule/gpu/gpu_loops.h"
#include "schedule/gpu/gpu_rules.h"
#include "schedule/gpu/gpu_tile_shape.h"
#include "schedule/kernel/linear_kernel.h"
#include "schedule/kernel/loop_builder.h"

namespace tessera::inline schedule {
namespace {

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
    const int64_t bytes = dtype_bytes(factors_.a.dtype(), 1), sum_bytes = dtype_bytes(kernel_.reduce_dtype, 1);
    shape_ = choose_tile({rows_.extent, columns_.extent, steps_.extent, batch_.extent}, limits, bytes, sum_bytes);
    if (row_tiles() > kMostBlocks || batch_.extent > kMostBlocks) return "too many tiles for a grid of blocks";
    if (shared_bytes_of(shape_, bytes, sum_bytes) > limits.shared_bytes)
      return "the operands' pieces do not fit in shared memory";
    return {};
  }

  Stmt build() {
    const Var row_tile = make_var("row_tile"), column_tile = make_var("column_tile"), plane = make_var("plane");
    bounds_ = kernel_.bounds;
    bounds_.set(row_tile, 0, row_tiles() - 1);
    bounds_.set(column_tile, 0, column_tiles() - 1);
    bounds_.set(plane, 0, batch_.extent - 1);
    first_row_ = row_tile * Expr(down().size());
    first_column_ = column_tile * Expr(across().size());
    batch_.values_at(plane, bounds_, plane_);

    rows_by_steps_ = takes_steps_first(factors_.a, rows_, true);
    columns_by_steps_ = takes_steps_first(factors_.b, columns_, false);
    // What is written across is written to other banks with some lanes more.
    const auto piece_of = [&](const char* name, const Expr& factor, const TileSide& side, bool by_steps) {
      return make_buffer(name, factor.dtype(), {groups(), kTileSteps, side.size() + (by_steps ? kTileLanes : 0)},
                         MemoryScope::kLocal);
    };
    a_ = piece_of("rows", factors_.a, down(), rows_by_steps_);
    b_ = piece_of("columns", factors_.b, across(), columns_by_steps_);
    sums_ = make_buffer("sums", kernel_.reduce_dtype,
                        {groups() * down().threads, across().threads, down().each, across().each},
                        MemoryScope::kRegister);
    const int64_t pieces = (steps_.extent + kTileSteps * groups() - 1) / (kTileSteps * groups());
    const Stmt steps = shape_.ahead ? steps_ahead(pieces) : steps_in_turn(pieces);
    Stmt body = alloc(sums_, seq({clear(), steps, groups() > 1 ? join() : finish()}));
    body = for_loop(column_tile, 0, column_tiles(), ForKind::kBlockX, body);
    body = for_loop(row_tile, 0, row_tiles(), ForKind::kBlockY, body);
    return for_loop(plane, 0, batch_.extent, ForKind::kBlockZ, body);
  }

 private:
  const TileSide& down() const { return shape_.down; }
  const TileSide& across() const { return shape_.across; }
  int64_t groups() const { return shape_.groups; }
  int64_t row_tiles() const { return (rows_.extent + down().size() - 1) / down().size(); }
  int64_t column_tiles() const { return (columns_.extent + across().size() - 1) / across().size(); }

  // A thread of a block: along both axes, its group, and along both axes of that.
  struct Thread {
    Expr block_y, x, group, y;
    Expr number;  // in the group
  };
  Stmt threads(const std::string& name, const std::function<Stmt(const Thread&)>& body) {
    return thread_nest(
        name, groups() * down().threads, across().threads,
        [&](const Expr& y, const Expr& x) {
          Thread thread{y, x, Expr(0), y, Expr(0)};
          if (groups() > 1) {
            thread.group = simplify(floordiv(y, Expr(down().threads)), bounds_);
            thread.y = simplify(floormod(y, Expr(down().threads)), bounds_);
          }
          thread.number = thread.y * Expr(across().threads) + x;
          return body(thread);
        },
        bounds_);
  }
  // Of a thread's rows and columns, as its places in registers.
  Stmt each_sum(const std::function<Stmt(const Var& i, const Var& j)>& body) {
    return unrolled_loop(
        "i", down().each,
        [&](const Var& i) {
          return unrolled_loop("j", across().each, [&](const Var& j) { return body(i, j); }, bounds_);
        },
        bounds_);
  }

  Stmt clear() {
    return threads("clear", [&](const Thread& thread) {
      return each_sum([&](const Var& i, const Var& j) {
        return store(sums_, {thread.block_y, thread.x, i, j},
                     combiner_identity(Combiner::kSum, kernel_.reduce_dtype));
      });
    });
  }

  // The groups take pieces in turn.
  Expr first_step(const Expr& piece, const Thread& thread) const {
    return (piece * Expr(groups()) + thread.group) * Expr(kTileSteps);
  }

  Stmt steps_in_turn(int64_t pieces) {
    return serial_loop(
        "piece", pieces,
        [&](const Var& piece) {
          const Stmt fetch = threads("fetch", [&](const Thread& thread) {
            const Expr first = first_step(piece, thread);
            return seq({fetch_one(side_a(), first, thread, &put), fetch_one(side_b(), first, thread, &put)});
          });
          return alloc(a_, alloc(b_, seq({fetch, threads("sum", [&](const Thread& t) { return multiply(t); })})));
        },
        bounds_);
  }

  // Each piece comes to registers while threads multiply the one before it.
  Stmt steps_ahead(int64_t pieces) {
    const auto registers_of = [&](const char* name, const BufferPtr& piece, const TileSide& side) {
      return make_buffer(name, piece->dtype, {groups() * down().threads, across().threads, shape_.rounds(side)},
                         MemoryScope::kRegister);
    };
    next_a_ = registers_of("next_rows", a_, down());
    next_b_ = registers_of("next_columns", b_, across());
    const auto fetch = [&](const Expr& piece, const Thread& thread) {
      const Expr first = first_step(piece, thread);
      return seq({fetch_one(side_a(), first, thread, &keep), fetch_one(side_b(), first, thread, &keep)});
    };
    const Stmt begin = threads("first", [&](const Thread& thread) { return fetch(Expr(0), thread); });
    const Stmt steps = serial_loop(
        "piece", pieces,
        [&](const Var& piece) {
          const Stmt arrive = threads("put", [&](const Thread& thread) {
            return seq({put_one(side_a(), thread), put_one(side_b(), thread)});
          });
          const Stmt sum = threads("sum", [&](const Thread& thread) {
            const Stmt product = multiply(thread);
            if (pieces == 1) return product;
            return seq({if_then(piece + Expr(1) < Expr(pieces), fetch(piece + Expr(1), thread)), product});
          });
          return alloc(a_, alloc(b_, seq({arrive, sum})));
        },
        bounds_);
    return alloc(next_a_, alloc(next_b_, seq({begin, steps})));
  }

  // Whether neighbouring threads fetch neighbouring steps of an operand, rather than neighbouring rows or columns.
  bool takes_steps_first(const Expr& factor, const FlatAxes& side, bool otherwise) const {
    const bool steps = reads_neighbours(factor, steps_.axes.back().var, kernel_.bounds);
    const bool places = reads_neighbours(factor, side.axes.back().var, kernel_.bounds);
    return steps == places ? otherwise : steps;
  }

  // An operand, as what is fetched of it.
  struct Operand {
    const BufferPtr& piece;
    const BufferPtr& next;
    const Expr& factor;
    const FlatAxes& axes;
    const TileSide& side;
    const Expr& first_place;
    bool steps_first;  // neighbouring threads take neighbouring steps
  };
  Operand side_a() const { return {a_, next_a_, factors_.a, rows_, down(), first_row_, rows_by_steps_}; }
  Operand side_b() const { return {b_, next_b_, factors_.b, columns_, across(), first_column_, columns_by_steps_}; }

  // Where an element of a thread's belongs in a piece.
  struct Place {
    Expr step, place, round;
  };
  // For each element of a piece that the thread fetches.
  Stmt each_element(const Operand& of, const Thread& thread, const std::function<Stmt(const Place&)>& body) {
    const int64_t threads = shape_.threads_of_group(), rounds = shape_.rounds(of.side);
    const int64_t elements = of.side.size() * kTileSteps;
    return unrolled_loop(
        "round", rounds,
        [&](const Var& round) {
          const Expr number = round * Expr(threads) + thread.number;
          const int64_t fast = of.steps_first ? kTileSteps : of.side.size();
          const Expr quick = simplify(floormod(number, Expr(fast)), bounds_);
          const Expr slow = simplify(floordiv(number, Expr(fast)), bounds_);
          const Stmt stmt = body(of.steps_first ? Place{quick, slow, round} : Place{slow, quick, round});
          return rounds * threads == elements ? stmt : if_then(number < Expr(elements), stmt);
        },
        bounds_);
  }

  using Keep = Stmt (*)(const Operand& of, const Thread& thread, const Place& at, const Expr& value);
  static Stmt put(const Operand& of, const Thread& thread, const Place& at, const Expr& value) {
    return store(of.piece, {thread.group, at.step, at.place}, value);
  }
  static Stmt keep(const Operand& of, const Thread& thread, const Place& at, const Expr& value) {
    return store(of.next, {thread.block_y, thread.x, at.round}, value);
  }
  Stmt put_one(const Operand& of, const Thread& thread) {
    return each_element(of, thread, [&](const Place& at) {
      return put(of, thread, at, load(of.next, {thread.block_y, thread.x, at.round}));
    });
  }

  // A piece of one operand from `first` on. Zeros stand for what is outside.
  Stmt fetch_one(const Operand& of, const Expr& first, const Thread& thread, Keep keeps) {
    return each_element(of, thread, [&](const Place& place) {
      VarMap at = plane_;
      of.axes.values_at(of.first_place + place.place, bounds_, at);
      steps_.values_at(first + place.step, bounds_, at);
      Expr value = substitute(of.factor, at);
      Expr inside = const_int(DType::kBool, 1);
      if (of.axes.extent % of.side.size() != 0)
        inside = logical_and(inside, of.first_place + place.place < Expr(of.axes.extent));
      if (steps_.extent % (kTileSteps * groups()) != 0)
        inside = logical_and(inside, first + place.step < Expr(steps_.extent));
      // Nothing lies where a layout's blocks are filled up.
      for (const Expr& condition : inside_)
        if (uses_any(condition, of.axes) || uses_any(condition, batch_))
          inside = logical_and(inside, substitute(condition, at));
      if (!is_true(inside)) value = select(inside, value, const_of(value.dtype(), 0));
      return keeps(of, thread, place, value);
    });
  }

  Stmt multiply(const Thread& thread) {
    const BufferPtr a = make_buffer("a", factors_.a.dtype(), {down().each}, MemoryScope::kRegister);
    const BufferPtr b = make_buffer("b", factors_.b.dtype(), {across().each}, MemoryScope::kRegister);
    const auto along = [&](const TileSide& side, const BufferPtr& to, const BufferPtr& from, const Var& step,
                           const Expr& place) {
      return unrolled_loop(
          "i", side.each,
          [&](const Var& i) { return store(to, {i}, load(from, {thread.group, step, side.place(i, place, bounds_)})); },
          bounds_);
    };
    const Stmt loop = serial_loop(
        "step", kTileSteps,
        [&](const Var& step) {
          return seq({along(down(), a, a_, step, thread.y), along(across(), b, b_, step, thread.x),
                      each_sum([&](const Var& i, const Var& j) {
                        const std::vector<Expr> place = {thread.block_y, thread.x, i, j};
                        const Expr sum = load(sums_, place), left = load(a, {i}), right = load(b, {j});
                        return store(sums_, place,
                                     is_float(kernel_.reduce_dtype) ? fma(left, right, sum) : sum + left * right);
                      })});
        },
        bounds_);
    return alloc(a, alloc(b, loop));
  }

  // The results that follow from a finished sum of the tile.
  Stmt store_results(const Expr& row_of_tile, const Expr& column_of_tile, const Expr& sum) {
    const Expr row = first_row_ + row_of_tile, column = first_column_ + column_of_tile;
    VarMap at = plane_;
    rows_.values_at(row, bounds_, at);
    columns_.values_at(column, bounds_, at);
    Expr inside = const_int(DType::kBool, 1);
    if (rows_.extent % down().size() != 0) inside = logical_and(inside, row < Expr(rows_.extent));
    if (columns_.extent % across().size() != 0) inside = logical_and(inside, column < Expr(columns_.extent));
    for (const Expr& condition : inside_) inside = logical_and(inside, substitute(condition, at));
    VarMap finished = at;
    finished[kernel_.result_var.get()] = sum;
    const Stmt stored = store_each(kernel_, at, finished);
    return is_true(inside) ? stored : if_then(inside, stored);
  }

  Stmt finish() {
    return threads("finish", [&](const Thread& thread) {
      return each_sum([&](const Var& i, const Var& j) {
        return store_results(down().place(i, thread.y, bounds_), across().place(j, thread.x, bounds_),
                             load(sums_, {thread.block_y, thread.x, i, j}));
      });
    });
  }

  // Adds the groups' sums, in their order, and goes on from there.
  Stmt join() {
    const BufferPtr parts = make_buffer("parts", kernel_.reduce_dtype, {groups(), down().size(), across().size()},
                                        MemoryScope::kLocal);
    const Stmt give = threads("give", [&](const Thread& thread) {
      return each_sum([&](const Var& i, const Var& j) {
        return store(parts,
                     {thread.group, down().place(i, thread.y, bounds_), across().place(j, thread.x, bounds_)},
                     load(sums_, {thread.block_y, thread.x, i, j}));
      });
    });
    const int64_t elements = down().size() * across().size(), rounds = (elements + shape_.threads() - 1) / shape_.threads();
    const Stmt add = threads("join", [&](const Thread& thread) {
      return unrolled_loop(
          "round", rounds,
          [&](const Var& round) {
            const Expr number =
                round * Expr(shape_.threads()) + thread.block_y * Expr(across().threads) + thread.x;
            const Expr row = simplify(floordiv(number, Expr(across().size())), bounds_);
            const Expr column = simplify(floormod(number, Expr(across().size())), bounds_);
            const BufferPtr total = make_buffer("total", kernel_.reduce_dtype, {1}, MemoryScope::kRegister);
            const Stmt sum = unrolled_loop(
                "group", groups(),
                [&](const Var& group) {
                  return store(total, {0}, load(total, {0}) + load(parts, {group, row, column}));
                },
                bounds_);
            const Stmt stored =
                alloc(total, seq({store(total, {0}, combiner_identity(Combiner::kSum, kernel_.reduce_dtype)), sum,
                                  store_results(row, column, load(total, {0}))}));
            return rounds * shape_.threads() == elements ? stored : if_then(number < Expr(elements), stored);
          },
          bounds_);
    });
    return alloc(parts, seq({give, add}));
  }

  const LinearKernel& kernel_;
  Factors factors_;
  FlatAxes batch_, rows_, columns_, steps_;
  TileShape shape_;
  bool rows_by_steps_ = true, columns_by_steps_ = false;
  Bounds bounds_;
  Expr first_row_, first_column_;
  VarMap plane_;
  std::vector<Expr> inside_;  // what holds of places inside the logical extents
  BufferPtr a_, b_, next_a_, next_b_, sums_;
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
