#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "schedule/gpu/gpu_loops.h"
#include "schedule/gpu/gpu_rules.h"
#include "schedule/gpu/product_tile.h"
#include "schedule/gpu/warp_tiles.h"
#include "schedule/kernel/linear_kernel.h"
#include "schedule/kernel/loop_builder.h"

namespace tessera::inline schedule {
namespace {

constexpr int64_t kWarpsDown = 2;
constexpr int64_t kLeastSteps = 16, kMostThreads = 256;
constexpr int64_t kMostStages = 5;  // pieces in shared memory, of which one is being multiplied

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
    choose_shape(limits);
    if (!fits_grid()) return "too many tiles for a grid of blocks";
    if (shared_bytes(stages_) > (stages_ > 1 ? limits.staged_bytes : limits.shared_bytes))
      return "the operands' pieces do not fit in shared memory";
    return {};
  }

  Stmt build() {
    return in_blocks([&] {
      a_ = WarpOperand("rows", layout(a_side_, stages_));
      b_ = WarpOperand("columns", layout(b_side_, stages_));
      sums_ = WarpSums("sums", num_warps(), down_ * kWarpRows, across_ * kWarpColumns);
      const Stmt clear = threads("clear", [&](const WarpThread& thread) { return sums_.clear(thread, bounds_); });
      const Stmt steps = stages_ > 1 ? in_stages() : by_registers();
      return alloc(sums_.buffer, alloc(a_.buffer(), alloc(b_.buffer(), seq({clear, steps, finish()}))));
    });
  }

 private:
  // Few warps with large tiles read least of shared memory; where there are few such tiles for the device, more warps
  // with smaller ones wait less for it. Elements that are fetched one by one need registers of their own.
  void choose_shape(const GpuLimits& limits) {
    const auto shape = [&](int64_t down, int64_t across) {
      down_ = down, across_ = across;
      a_side_.tile = kWarpsDown * kWarpRows * down_;
      b_side_.tile = warps_across_ * kWarpColumns * across_;
    };
    const auto is_busy = [&] { return row_tiles() * column_tiles() * batch_.extent >= limits.multiprocessors; };
    const bool vectors = in_vectors(a_side_) && in_vectors(b_side_), stages = vectors && limits.staged_bytes > 0;
    warps_across_ = 2, steps_of_piece_ = stages ? 32 : 64;
    shape(4, 8);
    if (!vectors || !is_busy() || shared_bytes(1) > limits.shared_bytes) {
      warps_across_ = 4, steps_of_piece_ = 32;
      shape(4, 4);
      while (!is_busy() && (down_ > 1 || across_ > 2)) {
        if ((a_side_.tile >= b_side_.tile && down_ > 1) || across_ == 2) shape(down_ / 2, across_);
        else shape(down_, across_ / 2);
      }
    }
    if (stages) stages_ = std::min({kMostStages, limits.staged_bytes / shared_bytes(1), num_pieces() + 1});
  }

  WarpOperand::Layout layout(const ProductOperand& side, int64_t stages) const {
    return {.dtype = side.factor.dtype(),
            .by_steps = side.by_steps,
            .places = side.tile,
            .steps = steps_of_piece_,
            .stages = stages,
            .lanes = in_vectors(side) ? kWarpVector : 1};
  }
  int64_t shared_bytes(int64_t stages) const {
    return layout(a_side_, stages).bytes() + layout(b_side_, stages).bytes();
  }
  int64_t num_pieces() const { return (steps_.extent + steps_of_piece_ - 1) / steps_of_piece_; }

  // Vectors where what is read is one load of neighbours, all of them there or none.
  bool in_vectors(const ProductOperand& side) const {
    const Expr& factor = side.factor;
    if (factor->kind != ExprKind::kLoad || factor->operands.size() != 1) return false;
    const Axis& fast = side.by_steps ? steps_.axes.back() : side.axes.axes.back();
    return *as_int(fast.extent) % kWarpVector == 0 && reads_neighbours(factor, fast.var, kernel_.bounds);
  }

  Stmt threads(const std::string& name, const std::function<Stmt(const WarpThread&)>& body) {
    return each_warp_thread(name, num_warps(), body, bounds_);
  }
  WarpOperand::Read reading(const ProductOperand& side, const Expr& piece) const {
    const Expr first = piece * Expr(steps_of_piece_);
    return [this, &side, first](const Expr& place, const Expr& step) -> WarpOperand::Element {
      const Read element = read(side, side.factor, place, first + step, steps_of_piece_);
      return {element.value, element.inside};
    };
  }
  Stmt multiply(const WarpThread& thread, const Expr& stage, const Stmt& meanwhile = {}) {
    const Expr row = floordiv(thread.warp, Expr(warps_across_)) * Expr(kWarpRows * down_);
    const Expr column = floormod(thread.warp, Expr(warps_across_)) * Expr(kWarpColumns * across_);
    return multiply_warp({a_, stage, row}, {b_, stage, column}, sums_, thread, bounds_, meanwhile);
  }

  // Pieces go round through the stages, all but one of them ahead of what is multiplied.
  Stmt in_stages() {
    const auto copy = [&](const Expr& piece, const WarpThread& thread) {
      const Expr stage = simplify(floormod(piece, Expr(stages_)));
      return seq({a_.copy(stage, thread, num_threads(), reading(a_side_, piece), bounds_),
                  b_.copy(stage, thread, num_threads(), reading(b_side_, piece), bounds_)});
    };
    const int64_t ahead = stages_ - 1;
    std::vector<Stmt> parts;
    for (int64_t piece = 0; piece < ahead; ++piece)
      parts.push_back(threads("first", [&](const WarpThread& thread) { return copy(Expr(piece), thread); }));
    parts.push_back(serial_loop(
        "piece", num_pieces(),
        [&](const Var& piece) {
          return threads("sum", [&](const WarpThread& thread) {
            Stmt next;
            if (num_pieces() > ahead)
              next = if_then(piece + Expr(ahead) < Expr(num_pieces()), copy(piece + Expr(ahead), thread));
            return multiply(thread, floormod(piece, Expr(stages_)), next);
          });
        },
        bounds_));
    return seq(std::move(parts));
  }

  // The next piece comes to registers while one is multiplied.
  Stmt by_registers() {
    const auto next = [&](const char* name, const WarpOperand& of) {
      return make_buffer(name, of.layout().dtype,
                         {num_warps(), kWarpThreads, of.rounds(num_threads()) * of.layout().lanes},
                         MemoryScope::kRegister);
    };
    const BufferPtr next_a = next("next_rows", a_), next_b = next("next_columns", b_);
    const auto fetch = [&](const Expr& piece, const WarpThread& thread) {
      return seq({fetch_one(a_, next_a, reading(a_side_, piece), thread),
                  fetch_one(b_, next_b, reading(b_side_, piece), thread)});
    };
    const Stmt begin = threads("first", [&](const WarpThread& thread) { return fetch(Expr(0), thread); });
    const Stmt steps = serial_loop(
        "piece", num_pieces(),
        [&](const Var& piece) {
          const Stmt arrive = threads(
              "put", [&](const WarpThread& thread) { return seq({put(a_, next_a, thread), put(b_, next_b, thread)}); });
          const Stmt sum = threads("sum", [&](const WarpThread& thread) {
            const Stmt product = multiply(thread, Expr(0));
            if (num_pieces() == 1) return product;
            return seq({if_then(piece + Expr(1) < Expr(num_pieces()), fetch(piece + Expr(1), thread)), product});
          });
          return seq({arrive, sum});
        },
        bounds_);
    return alloc(next_a, alloc(next_b, seq({begin, steps})));
  }
  Stmt each_lane(ForKind kind, int64_t lanes, const std::function<Stmt(const Expr&)>& body) {
    return lanes == 1 ? body(Expr(0)) : loop_over("lane", lanes, kind, body, bounds_);
  }
  Stmt fetch_one(const WarpOperand& of, const BufferPtr& to, const WarpOperand::Read& read, const WarpThread& thread) {
    const int64_t lanes = of.layout().lanes;
    return of.each_move(
        thread, num_threads(),
        [&](const Expr& round, const Expr& place, const Expr& step) {
          const auto held = [&](const Expr& lane) -> std::vector<Expr> {
            return {thread.warp, thread.lane, round * Expr(lanes) + lane};
          };
          const Stmt move = each_lane(ForKind::kVectorized, lanes, [&](const Expr& lane) {
            const auto [own_place, own_step] = of.lane(place, step, lane);
            const Expr value = read(own_place, own_step).value;
            return store(
                to, held(lane),
                value->kind == ExprKind::kLoad ? load(value->buffer, {simplify(value->operands[0], bounds_)}) : value);
          });
          const Expr inside = read(place, step).inside;
          if (is_true(inside)) return move;
          // Zeros first, not in an `else`: there a lane may have one value alone, and would no longer stand in the
          // index.
          const Stmt zeros = each_lane(ForKind::kUnrolled, lanes, [&](const Expr& lane) {
            return store(to, held(lane), const_of(of.layout().dtype, 0));
          });
          return seq({zeros, if_then(inside, move)});
        },
        bounds_);
  }
  Stmt put(const WarpOperand& of, const BufferPtr& from, const WarpThread& thread) {
    const int64_t lanes = of.layout().lanes;
    return of.each_move(
        thread, num_threads(),
        [&](const Expr& round, const Expr& place, const Expr& step) {
          return each_lane(ForKind::kVectorized, lanes, [&](const Expr& lane) {
            const auto [own_place, own_step] = of.lane(place, step, lane);
            return store(of.buffer(), of.at(Expr(0), own_place, own_step),
                         load(from, {thread.warp, thread.lane, round * Expr(lanes) + lane}));
          });
        },
        bounds_);
  }

  Stmt finish() {
    return threads("finish", [&](const WarpThread& thread) {
      const Expr row = floordiv(thread.warp, Expr(warps_across_)) * Expr(kWarpRows * down_);
      const Expr column = floormod(thread.warp, Expr(warps_across_)) * Expr(kWarpColumns * across_);
      return sums_.each(
          [&](const Expr& i, const Expr& j, const Expr& h, const Expr& l) {
            return store_results(row + row_of_sum(thread, i, h), column + column_of_sum(thread, j, l),
                                 load(sums_.buffer, sums_.at(thread, i, j, h, l)));
          },
          bounds_);
    });
  }

  int64_t num_warps() const { return kWarpsDown * warps_across_; }
  int64_t num_threads() const { return num_warps() * kWarpThreads; }

  int64_t warps_across_ = 4, steps_of_piece_ = 32;  // of the sum in shared memory at once
  int64_t down_ = 1, across_ = 1;                   // instructions of a warp
  int64_t stages_ = 1;                              // pieces in shared memory; 1: they come by registers
  WarpOperand a_, b_;
  WarpSums sums_;
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
