#include <algorithm>
#include <limits>
#include <utility>

#include "schedule/gpu/attention_members.h"
#include "schedule/gpu/gpu_attention.h"
#include "schedule/gpu/warp_tiles.h"
#include "schedule/kernel/loop_builder.h"

namespace tessera::inline schedule {
namespace {

constexpr int64_t kWarps = 4;
constexpr int64_t kMostColumns = 128;  // of queries and of the result: a warp's sums of them are in registers
constexpr int64_t kQuad = 4;           // lanes that share rows of sums
constexpr double kLowest = std::numeric_limits<float>::lowest();

// exp(x) for x <= 0 with 2^-18 of relative error, which 16 bits do not show: 2^(n + f) with n in the bits of a float
// and a polynomial for f from -1/2 to 1/2. NaN stays; what is less than exp(-87) is 0.
Expr short_exp(const Expr& x) {
  constexpr double kLog2E = 1.4426950408889634, kShift = 12582912;  // 1.5 * 2^23: its bits end with those of n
  constexpr double kCoefficients[] = {9.560510516166687e-3, 5.591703951358795e-2, 2.4024981260299683e-1,
                                      6.931219696998596e-1, 9.999991655349731e-1};
  const auto f32 = [](double value) { return const_float(DType::kF32, value); };
  const auto i32 = [](int64_t value) { return const_int(DType::kI32, value); };
  const Expr shifted = fma(x, f32(kLog2E), f32(kShift));
  const Expr f = fma(x, f32(kLog2E), -(shifted - f32(kShift)));
  Expr power = f32(kCoefficients[0]);
  for (size_t i = 1; i < std::size(kCoefficients); ++i) power = fma(power, f, f32(kCoefficients[i]));
  const Expr n = binary(BinaryOp::kShl, bitcast(DType::kI32, shifted), i32(23));
  const Expr scale = bitcast(DType::kF32, n + i32(127 << 23));
  return select(x < f32(-87), f32(0), power * scale);
}

// to = short_exp(from), of registers of one element, or so indexed.
Stmt store_exp(const BufferPtr& to, const std::vector<Expr>& at, const BufferPtr& from) {
  const TensorIntrinsic* intrinsic = find_intrinsic("cuda.exp.f32");
  const Stmt stored = store(to, at, short_exp(load(from, {0})));
  return match_intrinsic(*intrinsic, stored).empty() ? tensorized(intrinsic, stored) : stored;
}

// Without what makes NaN the largest: a score that is none has an exponential that is none.
Expr larger_of(const Expr& a, const Expr& b) { return select(a < b, b, a); }

class WarpAttention : AttentionMembers {
 public:
  WarpAttention(const JoinedProgram& joined, const JoinedContext& context, const GpuLimits& limits)
      : AttentionMembers(joined, context), limits_(limits) {}

  GpuRuleResult run() {
    if (!limits_.warp_products) return Declined{"the device's language has no products of warps"};
    if (std::string why = find_members(); !why.empty()) return Declined{std::move(why)};
    query_ = narrow_factor(query_), key_ = narrow_factor(key_), value_ = narrow_factor(value_);
    if (!query_ || !key_ || !value_ || query_.dtype() != key_.dtype() || query_.dtype() != value_.dtype())
      return Declined{"queries, keys and values are not all bf16 or f16"};
    if (std::string why = choose_sizes(); !why.empty()) return Declined{std::move(why)};
    return program_of(build());
  }

 private:
  // ---- sizes ----

  std::string choose_sizes() {
    const auto is_whole = [](const FlatAxes& axes) {
      return as_int(axes.size) && axes.extent % kWarpRows == 0 && axes.extent <= kMostColumns;
    };
    if (!is_whole(steps_) || !is_whole(columns_)) return "rows of queries and values are no multiples of 16 up to 128";
    const int64_t most = limits_.staged_bytes > 0 ? limits_.staged_bytes : limits_.shared_bytes;
    for (const int64_t down : {2, 1})
      for (const int64_t keys : {64, 32}) {
        rows_ = kWarps * down * kWarpRows, tile_keys_ = keys;
        const int64_t tiles = (queries_.extent + rows_ - 1) / rows_;
        if (down > 1 && tiles * planes_.extent < limits_.multiprocessors) continue;
        if (shared_bytes() <= most) return {};
      }
    return "the operands' pieces do not fit in shared memory";
  }
  int64_t shared_bytes() const {
    return layout_of_queries().bytes() + layout_of_keys().bytes() + layout_of_values().bytes() +
           layout_of_weights().bytes() + dtype_bytes(DType::kF32, rows_ * kQuad);
  }

  // ---- operands ----

  // Whether what is read are neighbours in memory along the last of these axes, all of a vector there or none.
  static int64_t lanes_along(const Expr& factor, const FlatAxes& axes, const Bounds& bounds) {
    if (factor->kind != ExprKind::kLoad || factor->operands.size() != 1) return 1;
    const auto extent = as_int(axes.axes.back().extent);
    return extent && *extent % kWarpVector == 0 && reads_neighbours(factor, axes.axes.back().var, bounds) ? kWarpVector
                                                                                                          : 1;
  }
  // As the factor lies in memory: places, or steps, are neighbours.
  WarpOperand::Layout layout_of(const Expr& factor, const FlatAxes& places, const FlatAxes& steps, const Bounds& bounds,
                                int64_t num_places, int64_t num_steps) const {
    WarpOperand::Layout layout{.dtype = query_.dtype(), .places = num_places, .steps = num_steps};
    layout.lanes = lanes_along(factor, steps, bounds);
    layout.by_steps = layout.lanes > 1 || lanes_along(factor, places, bounds) == 1;
    if (!layout.by_steps) layout.lanes = kWarpVector;
    return layout;
  }
  // The loops' own variables: those of the members.
  static FlatAxes axes_of(const Var& var, const Expr& size) {
    FlatAxes axes;
    axes.add(var, size);
    return axes;
  }
  WarpOperand::Layout layout_of_queries() const {
    return layout_of(query_, axes_of(scores_.rows.back(), queries_.size), steps_, scores_.kernel.bounds, rows_,
                     steps_.extent);
  }
  WarpOperand::Layout layout_of_keys() const {
    return layout_of(key_, axes_of(scores_.rest[0].var, keys_.size), steps_, scores_.kernel.bounds, tile_keys_,
                     steps_.extent);
  }
  WarpOperand::Layout layout_of_values() const {
    return layout_of(value_, columns_, axes_of(product_.kernel.reduce[0].var, keys_.size), product_.kernel.bounds,
                     columns_.extent, tile_keys_);
  }
  WarpOperand::Layout layout_of_weights() const {
    return {.dtype = query_.dtype(), .by_steps = true, .places = rows_, .steps = tile_keys_};
  }

  // ---- loops ----

  Stmt build() {
    const Expr tiles = queries_.tiles(rows_);
    const Var tile = var_below("query_tile", tiles, bounds_), plane = var_below("plane", planes_.size, bounds_);
    first_query_ = tile * Expr(rows_);
    planes_.values_at(plane, bounds_, plane_);
    queries_tile_ = WarpOperand("queries", layout_of_queries());
    keys_tile_ = WarpOperand("keys", layout_of_keys());
    values_tile_ = WarpOperand("values", layout_of_values());
    weights_ = WarpOperand("weights", layout_of_weights());
    products_ = WarpSums("products", kWarps, rows_ / kWarps, tile_keys_);
    mixed_ = WarpSums("mixed", kWarps, rows_ / kWarps, columns_.extent);
    const auto of_rows = [&](const char* name) {
      return make_buffer(name, DType::kF32, {kWarps, kWarpThreads, products_.down * 2}, MemoryScope::kRegister);
    };
    largest_ = of_rows("largest"), sum_ = of_rows("sum");
    part_ = make_buffer("part", DType::kF32, {rows_, kQuad}, MemoryScope::kLocal);
    Stmt body = seq({begin(), over_keys(tile), finish()});
    for (const BufferPtr& buffer : {sum_, largest_, mixed_.buffer, products_.buffer, part_, weights_.buffer(),
                                    values_tile_.buffer(), keys_tile_.buffer(), queries_tile_.buffer()})
      body = alloc(buffer, std::move(body));
    body = for_loop(tile, 0, tiles, ForKind::kBlockX, std::move(body));
    return for_loop(plane, 0, planes_.size, ForKind::kBlockY, std::move(body));
  }

  static int64_t num_threads() { return kWarps * kWarpThreads; }
  Stmt threads(const std::string& name, const std::function<Stmt(const WarpThread&)>& body) {
    return each_warp_thread(name, kWarps, body, bounds_);
  }
  // A thread's rows, by tile and half of it.
  Stmt each_row(const std::function<Stmt(const Expr& i, const Expr& h)>& body) {
    return unrolled_loop(
        "i", products_.down,
        [&](const Var& i) { return unrolled_loop("h", 2, [&](const Var& h) { return body(i, h); }, bounds_); },
        bounds_);
  }
  // The columns of one of its rows.
  Stmt each_column(const WarpSums& sums, const std::function<Stmt(const Expr& j, const Expr& l)>& body) {
    return unrolled_loop(
        "j", sums.across,
        [&](const Var& j) { return unrolled_loop("l", 2, [&](const Var& l) { return body(j, l); }, bounds_); },
        bounds_);
  }
  std::vector<Expr> of_row(const WarpThread& thread, const Expr& i, const Expr& h) const {
    return {thread.warp, thread.lane, i * Expr(2) + h};
  }
  Expr first_row(const WarpThread& thread) const { return thread.warp * Expr(rows_ / kWarps); }
  // Of the tile.
  Expr row_of(const WarpThread& thread, const Expr& i, const Expr& h) const {
    return first_row(thread) + row_of_sum(thread, i, h);
  }
  static Expr zero() { return const_float(DType::kF32, 0); }

  Stmt copy_queries(const WarpThread& thread) {
    return queries_tile_.copy(
        Expr(0), thread, num_threads(),
        [&](const Expr& place, const Expr& step) -> WarpOperand::Element {
          const Expr query = first_query_ + place;
          VarMap at = rows_at(scores_, query);
          steps_.values_at(step, bounds_, at);
          return {substitute(query_, at), below(query, queries_, rows_)};
        },
        bounds_);
  }
  Stmt copy_keys(const Expr& tile, const WarpThread& thread) {
    return keys_tile_.copy(
        Expr(0), thread, num_threads(),
        [&](const Expr& place, const Expr& step) -> WarpOperand::Element {
          const Expr key = tile * Expr(tile_keys_) + place;
          VarMap at = rows_at(scores_, first_query_);
          at[scores_.rest[0].var.get()] = key;
          steps_.values_at(step, bounds_, at);
          return {substitute(key_, at), below(key, keys_, tile_keys_)};
        },
        bounds_);
  }
  Stmt copy_values(const Expr& tile, const WarpThread& thread) {
    return values_tile_.copy(
        Expr(0), thread, num_threads(),
        [&](const Expr& place, const Expr& step) -> WarpOperand::Element {
          const Expr key = tile * Expr(tile_keys_) + step;
          VarMap at = rows_at(product_, first_query_);
          at[product_.kernel.reduce[0].var.get()] = key;
          columns_.values_at(place, bounds_, at);
          return {substitute(value_, at), below(key, keys_, tile_keys_)};
        },
        bounds_);
  }

  Stmt begin() {
    return threads("begin", [&](const WarpThread& thread) {
      return seq({copy_queries(thread), copy_keys(Expr(0), thread), mixed_.clear(thread, bounds_),
                  each_row([&](const Expr& i, const Expr& h) {
                    return seq({store(largest_, of_row(thread, i, h), const_float(DType::kF32, kLowest)),
                                store(sum_, of_row(thread, i, h), zero())});
                  })});
    });
  }

  // A tile's keys come while weights of the one before are mixed, and its values while scores are computed.
  Stmt over_keys(const Expr& query_tile) {
    const Expr count = visible(query_tile, rows_, tile_keys_);
    const Var tile = var_below("key_tile", keys_.tiles(tile_keys_), bounds_);
    const Stmt scores = threads("scores", [&](const WarpThread& thread) {
      return seq({products_.clear(thread, bounds_),
                  multiply_warp({queries_tile_, Expr(0), first_row(thread)}, {keys_tile_, Expr(0), Expr(0)}, products_,
                                thread, bounds_, copy_values(tile, thread)),
                  weigh(tile, thread)});
    });
    const Stmt softmax = threads("softmax", [&](const WarpThread& thread) {
      return seq({if_then(tile + Expr(1) < count, copy_keys(tile + Expr(1), thread)), normalise(thread)});
    });
    const Stmt mix = threads("mix", [&](const WarpThread& thread) {
      return multiply_warp({weights_, Expr(0), first_row(thread)}, {values_tile_, Expr(0), Expr(0)}, mixed_, thread,
                           bounds_);
    });
    return for_loop(tile, 0, count, ForKind::kSerial, seq({scores, softmax, mix}));
  }

  // Scores as the members define them; what lies outside weighs nothing. The largest of a thread's of each row goes to
  // those who share it.
  Stmt weigh(const Expr& tile, const WarpThread& thread) {
    const BufferPtr so_far = make_buffer("so_far", DType::kF32, {1}, MemoryScope::kRegister);
    return alloc(
        so_far, each_row([&](const Expr& i, const Expr& h) {
          const Expr query = first_query_ + row_of(thread, i, h);
          const Stmt columns = each_column(products_, [&](const Expr& j, const Expr& l) {
            const Expr key = tile * Expr(tile_keys_) + column_of_sum(thread, j, l);
            const std::vector<Expr> at = products_.at(thread, i, j, h, l);
            const Expr inside = logical_and(below(query, queries_, rows_), below(key, keys_, tile_keys_));
            const Expr weighed = value_if(inside, score(query, key, load(products_.buffer, at)),
                                          -std::numeric_limits<double>::infinity());
            return seq({store(products_.buffer, at, weighed),
                        store(so_far, {0}, larger_of(load(so_far, {0}), load(products_.buffer, at)))});
          });
          return seq({store(so_far, {0}, const_float(DType::kF32, kLowest)), columns,
                      store(part_, {row_of(thread, i, h), floormod(thread.lane, Expr(kQuad))}, load(so_far, {0}))});
        }));
  }

  // Exponentials of what scores are below the largest so far, rounded as values are, and their sums by thread.
  Stmt normalise(const WarpThread& thread) {
    const auto one = [](const char* name) { return make_buffer(name, DType::kF32, {1}, MemoryScope::kRegister); };
    const BufferPtr larger = one("larger"), below = one("below"), kept = one("kept");
    const Stmt rows = each_row([&](const Expr& i, const Expr& h) {
      const std::vector<Expr> row = of_row(thread, i, h);
      Expr now = load(largest_, row);
      for (int64_t lane = 0; lane < kQuad; ++lane)
        now = larger_of(now, load(part_, {row_of(thread, i, h), Expr(lane)}));
      const Stmt rescale = each_column(mixed_, [&](const Expr& j, const Expr& l) {
        const std::vector<Expr> at = mixed_.at(thread, i, j, h, l);
        return store(mixed_.buffer, at, load(mixed_.buffer, at) * load(kept, {0}));
      });
      return seq({store(larger, {0}, now), store(below, {0}, load(largest_, row) - load(larger, {0})),
                  store_exp(kept, {Expr(0)}, below), store(largest_, row, load(larger, {0})),
                  store(sum_, row, load(sum_, row) * load(kept, {0})), weigh_row(thread, i, h, larger, below),
                  rescale});
    });
    return alloc(larger, alloc(below, alloc(kept, rows)));
  }
  Stmt weigh_row(const WarpThread& thread, const Expr& i, const Expr& h, const BufferPtr& larger,
                 const BufferPtr& below) {
    const std::vector<Expr> row = of_row(thread, i, h);
    const auto one_of_pair = [&](const Expr& j, const Expr& l) {
      const std::vector<Expr> at = products_.at(thread, i, j, h, l);
      const Expr weight = load(products_.buffer, at);
      return seq({store(below, {0}, weight - load(larger, {0})), store_exp(products_.buffer, at, below),
                  store(sum_, row, load(sum_, row) + weight)});
    };
    const auto rounded = [&](const Expr& j, const Expr& l) {
      return store(weights_.buffer(), weights_.at(Expr(0), row_of(thread, i, h), column_of_sum(thread, j, l)),
                   cast(query_.dtype(), load(products_.buffer, products_.at(thread, i, j, h, l))));
    };
    return unrolled_loop(
        "j", products_.across,
        [&](const Var& j) {
          return seq({unrolled_loop(
                          "l", 2, [&](const Var& l) { return one_of_pair(j, l); }, bounds_),
                      loop_over("l", 2, ForKind::kVectorized, [&](const Var& l) { return rounded(j, l); }, bounds_)});
        },
        bounds_);
  }

  Stmt finish() {
    const Stmt share = threads("sums", [&](const WarpThread& thread) {
      return each_row([&](const Expr& i, const Expr& h) {
        return store(part_, {row_of(thread, i, h), floormod(thread.lane, Expr(kQuad))},
                     load(sum_, of_row(thread, i, h)));
      });
    });
    const Stmt results = threads("finish", [&](const WarpThread& thread) {
      const BufferPtr total = make_buffer("total", DType::kF32, {1}, MemoryScope::kRegister);
      return alloc(total, each_row([&](const Expr& i, const Expr& h) {
                     const Expr place = row_of(thread, i, h), query = first_query_ + place;
                     Expr whole = load(part_, {place, Expr(0)});
                     for (int64_t lane = 1; lane < kQuad; ++lane) whole = whole + load(part_, {place, Expr(lane)});
                     const Stmt columns = each_column(mixed_, [&](const Expr& j, const Expr& l) {
                       const Expr column = column_of_sum(thread, j, l);
                       return store_result(query, column, load(mixed_.buffer, mixed_.at(thread, i, j, h, l)),
                                           load(total, {0}));
                     });
                     const Expr inside = below(query, queries_, rows_);
                     const Stmt stored = seq({store(total, {0}, whole), columns});
                     return is_true(inside) ? stored : if_then(inside, stored);
                   }));
    });
    return seq({share, results});
  }

  const GpuLimits& limits_;
  int64_t rows_ = 0, tile_keys_ = 0;  // of a block's queries, and of keys at once
  Expr first_query_;
  WarpOperand queries_tile_, keys_tile_, values_tile_;
  WarpOperand weights_;        // exponentials of scores, [query, key]
  WarpSums products_, mixed_;  // scores, and what is summed of values
  BufferPtr largest_, sum_;    // of a thread's rows: the largest score so far, and its own exponentials
  BufferPtr part_;             // [query, lane of four]: what those who share a row tell one another
};

}  // namespace

GpuRuleResult gpu_attention_mma(const JoinedProgram& joined, const JoinedContext& context, const GpuLimits& limits) {
  return WarpAttention(joined, context, limits).run();
}

}  // namespace tessera::inline schedule
