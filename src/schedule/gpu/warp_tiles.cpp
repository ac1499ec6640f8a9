#include "schedule/gpu/warp_tiles.h"

#include <algorithm>
#include <utility>

#include "schedule/gpu/gpu_loops.h"
#include "schedule/gpu/product_tile.h"
#include "schedule/kernel/loop_builder.h"

namespace tessera::inline schedule {
namespace {

constexpr int64_t kMostAcross = 8;  // tiles of one call's

Stmt each_of(const std::string& name, ForKind kind, int64_t extent, const std::function<Stmt(const Expr&)>& body,
             Bounds& bounds) {
  if (extent == 1) return body(Expr(0));
  return loop_over(name, extent, kind, body, bounds);
}

}  // namespace

Expr narrow_factor(const Expr& factor) {
  if (factor->kind == ExprKind::kCast) {
    const DType dtype = factor->operands[0].dtype();
    return dtype == DType::kBF16 || dtype == DType::kF16 ? factor->operands[0] : Expr();
  }
  if (factor->kind != ExprKind::kSelect || !is_const_zero(factor->operands[2])) return {};
  const Expr inner = narrow_factor(factor->operands[1]);
  return inner ? select(factor->operands[0], inner, const_of(inner.dtype(), 0)) : Expr();
}

Stmt each_warp_thread(const std::string& name, int64_t warps, const std::function<Stmt(const WarpThread&)>& body,
                      Bounds& bounds) {
  return thread_nest(
      name, warps, kWarpThreads, [&](const Expr& warp, const Expr& lane) { return body({warp, lane}); }, bounds);
}

// ---- operands ----

WarpOperand::WarpOperand(const std::string& name, const Layout& layout)
    : layout_(layout),
      buffer_(make_buffer(name, layout.dtype, {layout.stages, layout.slow(), layout.pitch()}, MemoryScope::kLocal)) {}

int64_t WarpOperand::rounds(int64_t num_threads) const {
  const int64_t moves = layout_.places * layout_.steps / layout_.lanes;
  return (moves + num_threads - 1) / num_threads;
}

Stmt WarpOperand::each_move(const WarpThread& thread, int64_t num_threads,
                            const std::function<Stmt(const Expr& round, const Expr& place, const Expr& step)>& body,
                            Bounds& bounds) const {
  const int64_t moves = layout_.places * layout_.steps / layout_.lanes;
  return each_of(
      "round", ForKind::kUnrolled, rounds(num_threads),
      [&](const Expr& round) {
        const Expr number = round * Expr(num_threads) + thread.number();
        const Expr moves_of_row = Expr(layout_.fast() / layout_.lanes);
        const Expr fast = simplify(floormod(number, moves_of_row) * Expr(layout_.lanes), bounds);
        const Expr slow = simplify(floordiv(number, moves_of_row), bounds);
        const Stmt move = layout_.by_steps ? body(round, slow, fast) : body(round, fast, slow);
        return rounds(num_threads) * num_threads == moves ? move : if_then(number < Expr(moves), move);
      },
      bounds);
}

Stmt WarpOperand::copy(const Expr& stage, const WarpThread& thread, int64_t num_threads, const Read& read,
                       Bounds& bounds) const {
  const TensorIntrinsic* intrinsic = find_intrinsic("cuda.copy.b16");
  return each_move(
      thread, num_threads,
      [&](const Expr&, const Expr& place, const Expr& step) {
        const Element first = read(place, step);
        const Expr zero = const_of(layout_.dtype, 0);
        if (layout_.lanes == 1)
          return store(buffer_, at(stage, place, step),
                       is_true(first.inside) ? first.value : select(first.inside, first.value, zero));
        const auto lanes = [&](ForKind kind, const std::function<Expr(const Expr&, const Expr&)>& value) {
          return loop_over(
              "lane", layout_.lanes, kind,
              [&](const Var& number) {
                const auto [own_place, own_step] = lane(place, step, number);
                return store(buffer_, at(stage, own_place, own_step), value(own_place, own_step));
              },
              bounds);
        };
        const Stmt move = lanes(ForKind::kVectorized, [&](const Expr& own_place, const Expr& own_step) {
          const Expr value = read(own_place, own_step).value;
          return load(value->buffer, {simplify(value->operands[0], bounds)});
        });
        const Stmt copied = match_intrinsic(*intrinsic, move).empty() ? tensorized(intrinsic, move) : move;
        if (is_true(first.inside)) return copied;
        return if_then(first.inside, copied, lanes(ForKind::kUnrolled, [&](const Expr&, const Expr&) { return zero; }));
      },
      bounds);
}

// ---- sums ----

WarpSums::WarpSums(const std::string& name, int64_t warps, int64_t rows, int64_t columns)
    : buffer(make_buffer(name, DType::kF32, {warps, kWarpThreads, rows / kWarpRows * (columns / kWarpColumns) * 4},
                         MemoryScope::kRegister)),
      down(rows / kWarpRows),
      across(columns / kWarpColumns) {}

Stmt WarpSums::each(const Body& body, Bounds& bounds) const {
  return each_of(
      "i", ForKind::kUnrolled, down,
      [&](const Expr& i) {
        return each_of(
            "j", ForKind::kUnrolled, across,
            [&](const Expr& j) {
              return unrolled_loop(
                  "h", 2,
                  [&](const Var& h) {
                    return unrolled_loop("l", 2, [&](const Var& l) { return body(i, j, h, l); }, bounds);
                  },
                  bounds);
            },
            bounds);
      },
      bounds);
}

Stmt WarpSums::clear(const WarpThread& thread, Bounds& bounds) const {
  return each_of(
      "i", ForKind::kUnrolled, down * across * 4,
      [&](const Expr& i) { return store(buffer, {thread.warp, thread.lane, i}, const_of(DType::kF32, 0)); }, bounds);
}

Expr row_of_sum(const WarpThread& thread, const Expr& i, const Expr& h) {
  return i * Expr(kWarpRows) + h * Expr(8) + floordiv(thread.lane, Expr(4));
}
Expr column_of_sum(const WarpThread& thread, const Expr& j, const Expr& l) {
  return j * Expr(kWarpColumns) + floormod(thread.lane, Expr(4)) * Expr(2) + l;
}

Stmt multiply_warp(const WarpFactor& a, const WarpFactor& b, const WarpSums& sums, const WarpThread& thread,
                   Bounds& bounds, const Stmt& meanwhile) {
  const WarpOperand::Layout& layout = a.operand.layout();
  const TensorIntrinsic* intrinsic = find_intrinsic(layout.dtype == DType::kF16 ? "cuda.mma.f16" : "cuda.mma.bf16");
  const auto element = [](const WarpFactor& of, const Expr& place, const Expr& step) {
    return cast(DType::kF32, load(of.operand.buffer(), of.operand.at(of.stage, of.first + place, step)));
  };
  std::vector<Stmt> parts;
  for (int64_t first = 0; first < layout.steps; first += kWarpTerms) {
    for (int64_t tile = 0; tile < sums.across; tile += kMostAcross) {
      const auto loop = [&](const char* name, ForKind kind, int64_t extent,
                            const std::function<Stmt(const Var&)>& body) {
        return loop_over(name, extent, kind, body, bounds);
      };
      const Stmt nest = loop("i", ForKind::kUnrolled, sums.down, [&](const Var& i) {
        return loop("j", ForKind::kUnrolled, std::min(kMostAcross, sums.across - tile), [&](const Var& number) {
          return loop("h", ForKind::kUnrolled, 2, [&](const Var& h) {
            return loop("l", ForKind::kUnrolled, 2, [&](const Var& l) {
              return loop("k", ForKind::kSerial, kWarpTerms, [&](const Var& k) {
                const Expr j = tile == 0 ? Expr(number) : number + Expr(tile);
                const std::vector<Expr> sum = sums.at(thread, i, j, h, l);
                return store(sums.buffer, sum,
                             fma(element(a, row_of_sum(thread, i, h), k + Expr(first)),
                                 element(b, column_of_sum(thread, j, l), k + Expr(first)), load(sums.buffer, sum)));
              });
            });
          });
        });
      });
      parts.push_back(match_intrinsic(*intrinsic, nest).empty() ? tensorized(intrinsic, nest) : nest);
    }
    if (first == 0 && meanwhile) parts.push_back(meanwhile);
  }
  return seq(std::move(parts));
}

}  // namespace tessera::inline schedule
