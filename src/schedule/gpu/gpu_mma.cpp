#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "loop/intrinsic.h"
#include "schedule/gpu/gpu_loops.h"
#include "schedule/gpu/gpu_rules.h"
#include "schedule/gpu/product_tile.h"
#include "schedule/kernel/linear_kernel.h"
#include "schedule/kernel/loop_builder.h"

namespace tessera::inline schedule {
namespace {

constexpr int64_t kWarpThreads = 32, kWarpsDown = 2;
constexpr int64_t kTileRows = 16, kTileColumns = 8, kTileTerms = 16;  // of one instruction
constexpr int64_t kVector = 8;  // neighbours that are fetched at once; rows in shared memory are so much longer
constexpr int64_t kLeastSteps = 16, kMostThreads = 256;

// A factor of 16 bits that is converted to f32, as what it was; null for any other.
Expr narrow_factor(const Expr& factor) {
  if (factor->kind == ExprKind::kCast) {
    const DType dtype = factor->operands[0].dtype();
    return dtype == DType::kBF16 || dtype == DType::kF16 ? factor->operands[0] : Expr();
  }
  if (factor->kind != ExprKind::kSelect || !is_const_zero(factor->operands[2])) return {};
  const Expr inner = narrow_factor(factor->operands[1]);
  return inner ? select(factor->operands[0], inner, const_of(inner.dtype(), 0)) : Expr();
}

class WarpProduct : ProductTile {
 public:
  using ProductTile::ProductTile;

  // The reason why there is none for the kernel; empty when there is.
  std::string plan(const GpuLimits& limits) {
    if (limits.threads < kMostThreads) return fmt::format("a block has fewer than {} threads", kMostThreads);
    if (std::string reason = find_axes(); !reason.empty()) return reason;
    if (steps_.extent < kLeastSteps) return fmt::format("a sum of {} products is too short", steps_.extent);
    a_side_.factor = narrow_factor(factors_.a);
    b_side_.factor = narrow_factor(factors_.b);
    if (!a_side_.factor || !b_side_.factor || a_side_.factor.dtype() != b_side_.factor.dtype())
      return "the factors are not both bf16 or f16";
    const auto shape = [&](int64_t down, int64_t across) {
      down_ = down, across_ = across;
      a_side_.tile = kWarpsDown * kTileRows * down_;
      b_side_.tile = warps_across_ * kTileColumns * across_;
    };
    const auto is_busy = [&] { return row_tiles() * column_tiles() * batch_.extent >= limits.multiprocessors; };
    // Few warps with large tiles read least of shared memory; where there are few such tiles for the device, more warps
    // with smaller ones wait less for it.
    warps_across_ = 2, steps_of_piece_ = 64;
    shape(4, 8);
    // Elements that are fetched one by one need registers of their own.
    const bool vectors = in_vectors(a_side_) && in_vectors(b_side_);
    if (!vectors || !is_busy() || shared_bytes() > limits.shared_bytes) {
      warps_across_ = 4, steps_of_piece_ = 32;
      shape(4, 4);
      while (!is_busy() && (down_ > 1 || across_ > 2)) {
        if ((a_side_.tile >= b_side_.tile && down_ > 1) || across_ == 2) shape(down_ / 2, across_);
        else shape(down_, across_ / 2);
      }
    }
    if (!fits_grid()) return "too many tiles for a grid of blocks";
    if (shared_bytes() > limits.shared_bytes) return "the operands' pieces do not fit in shared memory";
    return {};
  }

  Stmt build() {
    return in_blocks([&] {
      a_ = make_operand("rows", a_side_);
      b_ = make_operand("columns", b_side_);
      sums_ =
          make_buffer("sums", DType::kF32, {num_warps(), kWarpThreads, down_ * across_ * 4}, MemoryScope::kRegister);
      const int64_t pieces = (steps_.extent + steps_of_piece_ - 1) / steps_of_piece_;
      const Stmt begin = threads("first", [&](const Thread& thread) { return fetch(Expr(0), thread); });
      const Stmt steps = serial_loop(
          "piece", pieces,
          [&](const Var& piece) {
            const Stmt arrive =
                threads("put", [&](const Thread& thread) { return seq({put(a_, thread), put(b_, thread)}); });
            const Stmt sum = threads("sum", [&](const Thread& thread) {
              const Stmt product = multiply(thread);
              if (pieces == 1) return product;
              return seq({if_then(piece + Expr(1) < Expr(pieces), fetch(piece + Expr(1), thread)), product});
            });
            return alloc(a_.piece, alloc(b_.piece, seq({arrive, sum})));
          },
          bounds_);
      return alloc(sums_, alloc(a_.next, alloc(b_.next, seq({clear(), begin, steps, finish()}))));
    });
  }

 private:
  struct Operand {
    const ProductOperand* side = nullptr;
    BufferPtr piece;    // [steps, rows or columns], or the other way round: neighbours in memory are neighbours there
    BufferPtr next;     // [warp, lane, elements]: of the thread's
    int64_t lanes = 1;  // elements that are moved at once

    int64_t fast = 1, moves = 1, rounds = 1;  // elements that are neighbours; groups of lanes, and of a thread
  };
  struct Thread {
    Expr warp, lane;
    Expr number() const { return warp * Expr(kWarpThreads) + lane; }
    int64_t warps_across;
    Expr down() const { return floordiv(warp, Expr(warps_across)); }
    Expr across() const { return floormod(warp, Expr(warps_across)); }
  };

  int64_t piece_elements(const ProductOperand& side) const {
    return side.by_steps ? side.tile * (steps_of_piece_ + kVector) : steps_of_piece_ * (side.tile + kVector);
  }
  int64_t shared_bytes() const { return dtype_bytes(dtype(), piece_elements(a_side_) + piece_elements(b_side_)); }

  // Vectors where what is read is one load of neighbours, all of them there or none.
  bool in_vectors(const ProductOperand& side) const {
    const Expr& factor = side.factor;
    if (factor->kind != ExprKind::kLoad || factor->operands.size() != 1) return false;
    const Axis& fast = side.by_steps ? steps_.axes.back() : side.axes.axes.back();
    return *as_int(fast.extent) % kVector == 0 && reads_neighbours(factor, fast.var, kernel_.bounds);
  }
  Operand make_operand(const std::string& name, const ProductOperand& side) const {
    Operand of;
    of.side = &side;
    of.lanes = in_vectors(side) ? kVector : 1;
    of.fast = side.by_steps ? steps_of_piece_ : side.tile;
    of.moves = side.tile * steps_of_piece_ / of.lanes;
    of.rounds = (of.moves + num_threads() - 1) / num_threads();
    of.piece = make_buffer(
        name, dtype(),
        side.by_steps ? Shape{side.tile, steps_of_piece_ + kVector} : Shape{steps_of_piece_, side.tile + kVector},
        MemoryScope::kLocal);
    of.next =
        make_buffer("next_" + name, dtype(), {num_warps(), kWarpThreads, of.rounds * of.lanes}, MemoryScope::kRegister);
    return of;
  }

  Stmt threads(const std::string& name, const std::function<Stmt(const Thread&)>& body) {
    return thread_nest(
        name, num_warps(), kWarpThreads,
        [&](const Expr& warp, const Expr& lane) { return body({warp, lane, warps_across_}); }, bounds_);
  }
  Stmt each(const std::string& name, ForKind kind, int64_t extent, const std::function<Stmt(const Expr&)>& body) {
    if (extent == 1) return body(Expr(0));
    return loop_over(name, extent, kind, body, bounds_);
  }

  // For each group of elements that a thread moves: where it begins in the piece, along the fast and the slow axis.
  Stmt each_move(const Operand& of, const Thread& thread,
                 const std::function<Stmt(const Expr& round, const Expr& fast, const Expr& slow)>& body) {
    return each("round", ForKind::kUnrolled, of.rounds, [&](const Expr& round) {
      const Expr number = round * Expr(num_threads()) + thread.number();
      const Expr moves = Expr(of.fast / of.lanes);
      const Stmt move = body(round, simplify(floormod(number, moves) * Expr(of.lanes), bounds_),
                             simplify(floordiv(number, moves), bounds_));
      return of.rounds * num_threads() == of.moves ? move : if_then(number < Expr(of.moves), move);
    });
  }

  Stmt fetch_one(const Operand& of, const Expr& first, const Thread& thread) {
    return each_move(of, thread, [&](const Expr& round, const Expr& fast, const Expr& slow) {
      const auto held = [&](const Expr& lane) -> std::vector<Expr> {
        return {thread.warp, thread.lane, round * Expr(of.lanes) + lane};
      };
      const auto at = [&](const Expr& lane) {
        const Expr& place = of.side->by_steps ? slow : fast;
        const Expr& step = of.side->by_steps ? fast : slow;
        return read(*of.side, of.side->factor, of.side->by_steps ? place : place + lane,
                    first + (of.side->by_steps ? step + lane : step), steps_of_piece_);
      };
      const Stmt move = each("lane", ForKind::kVectorized, of.lanes, [&](const Expr& lane) {
        const Expr value = at(lane).value;
        return store(
            of.next, held(lane),
            value->kind == ExprKind::kLoad ? load(value->buffer, {simplify(value->operands[0], bounds_)}) : value);
      });
      const Expr inside = at(Expr(0)).inside;
      if (is_true(inside)) return move;
      // Zeros first, not in an `else`: there a lane may have one value alone, and would no longer stand in the index.
      const Stmt zeros = each("lane", ForKind::kUnrolled, of.lanes,
                              [&](const Expr& lane) { return store(of.next, held(lane), const_of(dtype(), 0)); });
      return seq({zeros, if_then(inside, move)});
    });
  }
  Stmt fetch(const Expr& piece, const Thread& thread) {
    const Expr first = piece * Expr(steps_of_piece_);
    return seq({fetch_one(a_, first, thread), fetch_one(b_, first, thread)});
  }
  Stmt put(const Operand& of, const Thread& thread) {
    return each_move(of, thread, [&](const Expr& round, const Expr& fast, const Expr& slow) {
      return each("lane", ForKind::kVectorized, of.lanes, [&](const Expr& lane) {
        return store(of.piece, {slow, fast + lane},
                     load(of.next, {thread.warp, thread.lane, round * Expr(of.lanes) + lane}));
      });
    });
  }

  Stmt clear() {
    return threads("clear", [&](const Thread& thread) {
      return each("i", ForKind::kUnrolled, down_ * across_ * 4,
                  [&](const Expr& i) { return store(sums_, {thread.warp, thread.lane, i}, const_of(DType::kF32, 0)); });
    });
  }

  // Rows and columns of a thread's sums, of those of the tile: i, j: which of its instructions; h, l: which of four.
  Expr row_of(const Thread& thread, const Expr& i, const Expr& h) const {
    return thread.down() * Expr(kTileRows * down_) + i * Expr(kTileRows) + h * Expr(8) + floordiv(thread.lane, Expr(4));
  }
  Expr column_of(const Thread& thread, const Expr& j, const Expr& l) const {
    return thread.across() * Expr(kTileColumns * across_) + j * Expr(kTileColumns) +
           floormod(thread.lane, Expr(4)) * Expr(2) + l;
  }
  Expr sum_of(const Expr& i, const Expr& j, const Expr& h, const Expr& l) const {
    return i * Expr(across_ * 4) + j * Expr(4) + h * Expr(2) + l;
  }
  Expr element(const Operand& of, const Expr& place, const Expr& step) const {
    return cast(DType::kF32,
                load(of.piece, of.side->by_steps ? std::vector<Expr>{place, step} : std::vector<Expr>{step, place}));
  }

  Stmt multiply(const Thread& thread) {
    const TensorIntrinsic* intrinsic = find_intrinsic(dtype() == DType::kF16 ? "cuda.mma.f16" : "cuda.mma.bf16");
    std::vector<Stmt> parts;
    for (int64_t first = 0; first < steps_of_piece_; first += kTileTerms) {
      const auto loop = [&](const char* name, ForKind kind, int64_t extent,
                            const std::function<Stmt(const Var&)>& body) {
        return loop_over(name, extent, kind, body, bounds_);
      };
      const Stmt nest = loop("i", ForKind::kUnrolled, down_, [&](const Var& i) {
        return loop("j", ForKind::kUnrolled, across_, [&](const Var& j) {
          return loop("h", ForKind::kUnrolled, 2, [&](const Var& h) {
            return loop("l", ForKind::kUnrolled, 2, [&](const Var& l) {
              return loop("k", ForKind::kSerial, kTileTerms, [&](const Var& k) {
                const std::vector<Expr> sum = {thread.warp, thread.lane, sum_of(i, j, h, l)};
                return store(sums_, sum,
                             fma(element(a_, row_of(thread, i, h), k + Expr(first)),
                                 element(b_, column_of(thread, j, l), k + Expr(first)), load(sums_, sum)));
              });
            });
          });
        });
      });
      parts.push_back(match_intrinsic(*intrinsic, nest).empty() ? tensorized(intrinsic, nest) : nest);
    }
    return seq(std::move(parts));
  }

  Stmt finish() {
    return threads("finish", [&](const Thread& thread) {
      return each("i", ForKind::kUnrolled, down_, [&](const Expr& i) {
        return each("j", ForKind::kUnrolled, across_, [&](const Expr& j) {
          return each("h", ForKind::kUnrolled, 2, [&](const Expr& h) {
            return each("l", ForKind::kUnrolled, 2, [&](const Expr& l) {
              return store_results(row_of(thread, i, h), column_of(thread, j, l),
                                   load(sums_, {thread.warp, thread.lane, sum_of(i, j, h, l)}));
            });
          });
        });
      });
    });
  }

  DType dtype() const { return a_side_.factor.dtype(); }
  int64_t num_warps() const { return kWarpsDown * warps_across_; }
  int64_t num_threads() const { return num_warps() * kWarpThreads; }

  int64_t warps_across_ = 4, steps_of_piece_ = 32;  // of the sum in shared memory at once
  int64_t down_ = 1, across_ = 1;                   // instructions of a warp
  Operand a_, b_;
  BufferPtr sums_;
};

}  // namespace

GpuRuleResult gpu_mma(const TensorProgram& program, const GpuLimits& limits) {
  if (!limits.warp_products) return Declined{"the device's language has no products of warps"};
  std::string why;
  const auto kernel = make_linear_kernel(program, why);
  if (!kernel) return Declined{why};
  if (kernel->combiner != Combiner::kSum) return Declined{"nothing is summed"};
  if (kernel->reduce_dtype != DType::kF32) return Declined{"the sums are not f32"};
  auto factors = factors_of(kernel->reduce_value);
  if (!factors) return Declined{"what is summed is no product"};
  WarpProduct product(*kernel, std::move(*factors));
  if (std::string reason = product.plan(limits); !reason.empty()) return Declined{std::move(reason)};
  return gpu_program(program.name, *kernel, product.build());
}

}  // namespace tessera::inline schedule
