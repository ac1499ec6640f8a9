#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "schedule/gpu/gpu_loops.h"
#include "schedule/gpu/gpu_rules.h"
#include "schedule/gpu/gpu_tile_shape.h"
#include "schedule/gpu/product_tile.h"
#include "schedule/kernel/linear_kernel.h"
#include "schedule/kernel/loop_builder.h"

namespace tessera::inline schedule {
namespace {

class TiledProduct : ProductTile {
 public:
  using ProductTile::ProductTile;

  // The reason why there is no tile for the kernel; empty when there is.
  std::string plan(const GpuLimits& limits) {
    if (std::string reason = find_axes(); !reason.empty()) return reason;
    const int64_t bytes = dtype_bytes(factors_.a.dtype(), 1), sum_bytes = dtype_bytes(kernel_.reduce_dtype, 1);
    shape_ =
        choose_tile({a_side_.axes.extent, b_side_.axes.extent, steps_.extent, batch_.extent}, limits, bytes, sum_bytes);
    a_side_.tile = down().size(), b_side_.tile = across().size();
    if (!fits_grid()) return "too many tiles for a grid of blocks";
    if (shared_bytes_of(shape_, bytes, sum_bytes) > limits.shared_bytes)
      return "the operands' pieces do not fit in shared memory";
    return {};
  }

  Stmt build() {
    return in_blocks([&] {
      // What is written across is written to other banks with some lanes more.
      const auto piece_of = [&](const char* name, const ProductOperand& side) {
        return make_buffer(name, side.factor.dtype(),
                           {groups(), kTileSteps, side.tile + (side.by_steps ? kTileLanes : 0)}, MemoryScope::kLocal);
      };
      a_ = piece_of("rows", a_side_);
      b_ = piece_of("columns", b_side_);
      sums_ = make_buffer("sums", kernel_.reduce_dtype,
                          {groups() * down().threads, across().threads, down().each, across().each},
                          MemoryScope::kRegister);
      const Expr pieces = steps_.tiles(kTileSteps * groups());
      const Stmt steps = shape_.ahead ? steps_ahead(pieces) : steps_in_turn(pieces);
      return alloc(sums_, seq({clear(), steps, groups() > 1 ? join() : finish()}));
    });
  }

 private:
  const TileSide& down() const { return shape_.down; }
  const TileSide& across() const { return shape_.across; }
  int64_t groups() const { return shape_.groups; }

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
        return store(sums_, {thread.block_y, thread.x, i, j}, combiner_identity(Combiner::kSum, kernel_.reduce_dtype));
      });
    });
  }

  // The groups take pieces in turn.
  Expr first_step(const Expr& piece, const Thread& thread) const {
    return (piece * Expr(groups()) + thread.group) * Expr(kTileSteps);
  }

  Stmt steps_in_turn(const Expr& pieces) {
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
  Stmt steps_ahead(const Expr& pieces) {
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
          const Stmt arrive = threads(
              "put", [&](const Thread& thread) { return seq({put_one(side_a(), thread), put_one(side_b(), thread)}); });
          const Stmt sum = threads("sum", [&](const Thread& thread) {
            const Stmt product = multiply(thread);
            if (is_const_int(pieces, 1)) return product;
            return seq({if_then(piece + Expr(1) < pieces, fetch(piece + Expr(1), thread)), product});
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
    const ProductOperand& side;
    const TileSide& dealt;
  };
  Operand side_a() const { return {a_, next_a_, a_side_, down()}; }
  Operand side_b() const { return {b_, next_b_, b_side_, across()}; }

  // Where an element of a thread's belongs in a piece.
  struct Place {
    Expr step, place, round;
  };
  // For each element of a piece that the thread fetches.
  Stmt each_element(const Operand& of, const Thread& thread, const std::function<Stmt(const Place&)>& body) {
    const int64_t threads = shape_.threads_of_group(), rounds = shape_.rounds(of.dealt);
    const int64_t elements = of.side.tile * kTileSteps;
    return unrolled_loop(
        "round", rounds,
        [&](const Var& round) {
          const Expr number = round * Expr(threads) + thread.number;
          const int64_t fast = of.side.by_steps ? kTileSteps : of.side.tile;
          const Expr quick = simplify(floormod(number, Expr(fast)), bounds_);
          const Expr slow = simplify(floordiv(number, Expr(fast)), bounds_);
          const Stmt stmt = body(of.side.by_steps ? Place{quick, slow, round} : Place{slow, quick, round});
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
      const auto [value, inside] =
          read(of.side, of.side.factor, place.place, first + place.step, kTileSteps * groups());
      return keeps(of, thread, place, is_true(inside) ? value : select(inside, value, const_of(value.dtype(), 0)));
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
    const BufferPtr parts =
        make_buffer("parts", kernel_.reduce_dtype, {groups(), down().size(), across().size()}, MemoryScope::kLocal);
    const Stmt give = threads("give", [&](const Thread& thread) {
      return each_sum([&](const Var& i, const Var& j) {
        return store(parts, {thread.group, down().place(i, thread.y, bounds_), across().place(j, thread.x, bounds_)},
                     load(sums_, {thread.block_y, thread.x, i, j}));
      });
    });
    const int64_t elements = down().size() * across().size(),
                  rounds = (elements + shape_.threads() - 1) / shape_.threads();
    const Stmt add = threads("join", [&](const Thread& thread) {
      return unrolled_loop(
          "round", rounds,
          [&](const Var& round) {
            const Expr number = round * Expr(shape_.threads()) + thread.block_y * Expr(across().threads) + thread.x;
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

  GpuTileShape shape_;
  bool rows_by_steps_ = true, columns_by_steps_ = false;
  BufferPtr a_, b_, next_a_, next_b_, sums_;
};

}  // namespace

GpuRuleResult gpu_tile(const TensorProgram& program, const GpuLimits& limits) {
  std::string why;
  const auto kernel = make_linear_kernel(program, why, Results::kOne, Sizes::kOpen);
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
