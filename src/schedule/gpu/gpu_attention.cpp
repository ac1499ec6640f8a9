#include "schedule/gpu/gpu_attention.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "schedule/gpu/attention_members.h"
#include "schedule/gpu/block_reduction.h"
#include "schedule/gpu/gpu_loops.h"
#include "schedule/gpu/gpu_tile_shape.h"

namespace tessera::inline schedule {
namespace {

constexpr int64_t kMostSums = 64;  // of the result that a thread has in registers
constexpr int64_t kMostEach = 16;  // columns of the result that a thread has
constexpr double kLowest = std::numeric_limits<float>::lowest();

// Queries down, keys across; a thread has `out` columns of the result.
struct AttentionTile {
  TileSide queries, keys, out;
  int64_t steps = kTileSteps;  // of a sum whose operands are in shared memory at once

  int64_t threads() const { return queries.threads * keys.threads; }
};

class AttentionKernel : AttentionMembers {
 public:
  AttentionKernel(const JoinedProgram& joined, const JoinedContext& context, const GpuLimits& limits)
      : AttentionMembers(joined, context), limits_(limits) {}

  GpuRuleResult run() {
    if (std::string why = find_members(); !why.empty()) return Declined{std::move(why)};
    if (std::string why = choose_sizes(); !why.empty()) return Declined{std::move(why)};
    return program_of(build());
  }

 private:
  // ---- sizes ----

  std::string choose_sizes() {
    const int64_t side = limits_.threads >= 256 ? 16 : 8;
    int64_t each = 1;
    while (each * side < columns_.extent) each = each < kTileLanes ? 2 * each : each + kTileLanes;
    if (each > kMostEach) return "a row of values is too long for the registers of a block";
    tile_.out = {side, each};
    const auto is_too_large = [&](int64_t count, const FlatAxes& axis) {
      return count > 1 && count / 2 * side >= axis.extent;
    };
    for (const int64_t down : {4, 2, 1}) {
      if (down * each > kMostSums || is_too_large(down, queries_)) continue;
      tile_.queries = {side, down};
      const int64_t tiles = (queries_.extent + tile_.queries.size() - 1) / tile_.queries.size();
      if (down > 1 && tiles * planes_.extent < limits_.multiprocessors) continue;
      for (const int64_t across : {4, 2, 1})
        for (const int64_t steps : {16, 8}) {
          tile_.keys = {side, across};
          tile_.steps = steps;
          if (is_too_large(across, keys_) || tile_.keys.size() % steps != 0) continue;
          if (shared_bytes() <= limits_.shared_bytes) return {};
        }
    }
    return "the operands' pieces do not fit in shared memory";
  }

  int64_t num_pieces() const { return (steps_.extent + tile_.steps - 1) / tile_.steps; }
  // Threads that share a row of scores.
  int64_t num_groups() const { return tile_.threads() / tile_.queries.size(); }

  // What is written across is written to other banks with some lanes more.
  static int64_t padded(int64_t count) { return count + kTileLanes; }
  Shape queries_shape() const { return {num_pieces() * tile_.steps, padded(tile_.queries.size())}; }
  Shape scores_shape() const { return {tile_.keys.size(), padded(tile_.queries.size())}; }
  Shape part_shape() const { return {num_groups(), tile_.queries.size()}; }
  Shape keys_shape() const { return {tile_.steps, padded(tile_.keys.size())}; }
  Shape values_shape() const { return {tile_.steps, padded(tile_.out.size())}; }

  // As the thread form counts.
  int64_t shared_bytes() const {
    const Shape rows = {tile_.queries.size()};
    int64_t bytes = 0;
    for (const Shape& shape :
         {queries_shape(), scores_shape(), part_shape(), keys_shape(), values_shape(), rows, rows, rows}) {
      int64_t elements = 1;
      for (const Expr& extent : shape) elements *= *as_int(extent);
      bytes += (dtype_bytes(DType::kF32, elements) + 15) / 16 * 16;
    }
    return bytes;
  }

  // ---- loops ----

  Stmt build() {
    const Expr tiles = queries_.tiles(tile_.queries.size());
    const Var tile = var_below("query_tile", tiles, bounds_), plane = var_below("plane", planes_.size, bounds_);
    first_query_ = tile * Expr(tile_.queries.size());
    planes_.values_at(plane, bounds_, plane_);
    const auto shared = [](const char* name, const Shape& shape) {
      return make_buffer(name, DType::kF32, shape, MemoryScope::kLocal);
    };
    const auto registers = [&](const char* name, const TileSide& across) {
      return make_buffer(name, DType::kF32,
                         {tile_.queries.threads, tile_.keys.threads, tile_.queries.each, across.each},
                         MemoryScope::kRegister);
    };
    const Shape rows = {tile_.queries.size()};
    buffers_ = {.queries = shared("queries", queries_shape()),
                .keys = shared("keys", keys_shape()),
                .values = shared("values", values_shape()),
                .scores = shared("scores", scores_shape()),
                .part = shared("part", part_shape()),
                .largest = shared("largest", rows),
                .correction = shared("correction", rows),
                .sum = shared("sum", rows),
                .products = registers("products", tile_.keys),
                .mixed = registers("mixed", tile_.out)};
    Stmt body = seq({begin(), over_keys(tile), finish()});
    for (const BufferPtr& buffer :
         {buffers_.mixed, buffers_.products, buffers_.sum, buffers_.correction, buffers_.largest, buffers_.part,
          buffers_.scores, buffers_.values, buffers_.keys, buffers_.queries})
      body = alloc(buffer, std::move(body));
    body = for_loop(tile, 0, tiles, ForKind::kBlockX, std::move(body));
    return for_loop(plane, 0, planes_.size, ForKind::kBlockY, std::move(body));
  }

  struct Thread {
    Expr y, x, number;
  };
  Stmt threads(const std::string& name, const std::function<Stmt(const Thread&)>& body) {
    return thread_nest(
        name, tile_.queries.threads, tile_.keys.threads,
        [&](const Expr& y, const Expr& x) { return body({y, x, simplify(y * Expr(tile_.keys.threads) + x, bounds_)}); },
        bounds_);
  }
  // A thread's sums, as their places in registers.
  Stmt each_sum(const TileSide& across, const std::function<Stmt(const Var& i, const Var& j)>& body) {
    return unrolled_loop(
        "i", tile_.queries.each,
        [&](const Var& i) {
          return unrolled_loop("j", across.each, [&](const Var& j) { return body(i, j); }, bounds_);
        },
        bounds_);
  }
  // For each element of a piece of `rows` by `columns` that a thread brings; `by_rows`: neighbours in memory are rows.
  Stmt each_element(const Thread& thread, int64_t rows, int64_t columns, bool by_rows,
                    const std::function<Stmt(const Expr& row, const Expr& column)>& body) {
    const int64_t elements = rows * columns, count = tile_.threads(), rounds = (elements + count - 1) / count;
    return in_turns(
        rounds,
        [&](const Expr& round) {
          const Expr number = round * Expr(count) + thread.number;
          const Expr fast = Expr(by_rows ? rows : columns);
          const Expr quick = simplify(floormod(number, fast), bounds_);
          const Expr slow = simplify(floordiv(number, fast), bounds_);
          const Stmt stmt = by_rows ? body(quick, slow) : body(slow, quick);
          return elements % count == 0 ? stmt : if_then(number < Expr(elements), stmt);
        },
        bounds_);
  }
  // What a thread does for the row of its number.
  Stmt each_row(const std::string& name, const std::function<Stmt(const Expr& row)>& body) {
    return threads(name, [&](const Thread& thread) {
      const Stmt stmt = body(thread.number);
      return tile_.threads() == tile_.queries.size() ? stmt : if_then(thread.number < Expr(tile_.queries.size()), stmt);
    });
  }
  // The same for the columns of scores that are a thread's of the groups that share rows.
  Stmt each_score(const Expr& group, const std::function<Stmt(const Expr& column)>& body) {
    return in_turns(
        tile_.keys.size() / num_groups(), [&](const Expr& round) { return body(round * Expr(num_groups()) + group); },
        bounds_);
  }

  static Expr zero() { return const_float(DType::kF32, 0); }

  // The queries come to shared memory; nothing is known of their rows.
  Stmt begin() {
    const int64_t steps = num_pieces() * tile_.steps;
    const Stmt fetch = threads("begin", [&](const Thread& thread) {
      const bool by_steps = !reads_neighbours(query_, scores_.rows.back(), scores_.kernel.bounds);
      return seq({each_element(thread, steps, tile_.queries.size(), by_steps,
                               [&](const Expr& step, const Expr& row) {
                                 const Expr query = first_query_ + row;
                                 VarMap at = rows_at(scores_, query);
                                 steps_.values_at(step, bounds_, at);
                                 const Expr inside = logical_and(below(query, queries_, tile_.queries.size()),
                                                                 below(step, steps_, tile_.steps));
                                 return store(buffers_.queries, {step, row},
                                              value_if(inside, substitute(query_, at), 0));
                               }),
                  each_sum(tile_.out, [&](const Var& i, const Var& j) {
                    return store(buffers_.mixed, {thread.y, thread.x, i, j}, zero());
                  })});
    });
    const Stmt clear = each_row("clear", [&](const Expr& row) {
      return seq(
          {store(buffers_.largest, {row}, const_float(DType::kF32, kLowest)), store(buffers_.sum, {row}, zero())});
    });
    return seq({fetch, clear});
  }

  Stmt over_keys(const Expr& tile) {
    const Var number = var_below("key_tile", keys_.tiles(tile_.keys.size()), bounds_);
    const Expr first = number * Expr(tile_.keys.size());
    return for_loop(number, 0, visible(tile, tile_.queries.size(), tile_.keys.size()), ForKind::kSerial,
                    seq({multiply_keys(first), weigh(first), normalise(), mix(first)}));
  }

  // products += queries[step][row] * keys[step][column], for the steps of a piece.
  Stmt multiply(const Thread& thread, const BufferPtr& left, const Expr& first_step, const BufferPtr& right,
                const TileSide& across, const BufferPtr& sums) {
    const BufferPtr a = make_buffer("a", DType::kF32, {tile_.queries.each}, MemoryScope::kRegister);
    const BufferPtr b = make_buffer("b", DType::kF32, {across.each}, MemoryScope::kRegister);
    const auto along = [&](const TileSide& side, const BufferPtr& to, const BufferPtr& from, const Expr& step,
                           const Expr& place) {
      return unrolled_loop(
          "i", side.each,
          [&](const Var& i) { return store(to, {i}, load(from, {step, side.place(i, place, bounds_)})); }, bounds_);
    };
    const Stmt loop = serial_loop(
        "step", tile_.steps,
        [&](const Var& step) {
          return seq({along(tile_.queries, a, left, first_step + step, thread.y),
                      along(across, b, right, step, thread.x), each_sum(across, [&](const Var& i, const Var& j) {
                        const std::vector<Expr> place = {thread.y, thread.x, i, j};
                        return store(sums, place, fma(load(a, {i}), load(b, {j}), load(sums, place)));
                      })});
        },
        bounds_);
    return alloc(a, alloc(b, loop));
  }

  Stmt multiply_keys(const Expr& first) {
    const Stmt clear = threads("no_products", [&](const Thread& thread) {
      return each_sum(tile_.keys, [&](const Var& i, const Var& j) {
        return store(buffers_.products, {thread.y, thread.x, i, j}, zero());
      });
    });
    const Var& key_var = scores_.rest[0].var;
    const bool by_steps = !reads_neighbours(key_, key_var, scores_.kernel.bounds);
    const Stmt pieces = serial_loop(
        "piece", num_pieces(),
        [&](const Var& piece) {
          const Expr first_step = piece * Expr(tile_.steps);
          const Stmt fetch = threads("fetch_keys", [&](const Thread& thread) {
            return each_element(
                thread, tile_.steps, tile_.keys.size(), by_steps, [&](const Expr& step, const Expr& column) {
                  VarMap at = rows_at(scores_, first_query_);
                  at[key_var.get()] = first + column;
                  steps_.values_at(first_step + step, bounds_, at);
                  const Expr inside = logical_and(below(first + column, keys_, tile_.keys.size()),
                                                  below(first_step + step, steps_, tile_.steps));
                  return store(buffers_.keys, {step, column}, value_if(inside, substitute(key_, at), 0));
                });
          });
          const Stmt sum = threads("products", [&](const Thread& thread) {
            return multiply(thread, buffers_.queries, first_step, buffers_.keys, tile_.keys, buffers_.products);
          });
          return seq({fetch, sum});
        },
        bounds_);
    return seq({clear, pieces});
  }

  // Scores as the members define them; what lies outside weighs nothing.
  Stmt weigh(const Expr& first) {
    return threads("weigh", [&](const Thread& thread) {
      return each_sum(tile_.keys, [&](const Var& i, const Var& j) {
        const Expr row = tile_.queries.place(i, thread.y, bounds_), column = tile_.keys.place(j, thread.x, bounds_);
        const Expr sum = load(buffers_.products, {thread.y, thread.x, i, j});
        const Expr inside = logical_and(below(first_query_ + row, queries_, tile_.queries.size()),
                                        below(first + column, keys_, tile_.keys.size()));
        return store(
            buffers_.scores, {column, row},
            value_if(inside, score(first_query_ + row, first + column, sum), -std::numeric_limits<double>::infinity()));
      });
    });
  }

  // The largest score of each row so far, the exponentials and their sum.
  Stmt normalise() {
    const auto part_of =
        [&](const std::string& name, const Expr& start,
            const std::function<Stmt(const Expr& row, const Expr& column, const BufferPtr& so_far)>& step) {
          return threads(name, [&](const Thread& thread) {
            const Expr row = simplify(floormod(thread.number, Expr(tile_.queries.size())), bounds_);
            const Expr group = simplify(floordiv(thread.number, Expr(tile_.queries.size())), bounds_);
            const BufferPtr so_far = make_buffer("so_far", DType::kF32, {1}, MemoryScope::kRegister);
            return alloc(so_far, seq({store(so_far, {0}, start),
                                      each_score(group, [&](const Expr& column) { return step(row, column, so_far); }),
                                      store(buffers_.part, {group, row}, load(so_far, {0}))}));
          });
        };
    const auto whole = [&](const Expr& row, const Expr& start, Combiner combiner) {
      Expr result = start;
      for (int64_t group = 0; group < num_groups(); ++group)
        result = combine(combiner, result, load(buffers_.part, {Expr(group), row}));
      return result;
    };
    const Stmt largest = part_of(
        "largest_of", const_float(DType::kF32, kLowest),
        [&](const Expr& row, const Expr& column, const BufferPtr& so_far) {
          return store(so_far, {0}, combine(Combiner::kMax, load(so_far, {0}), load(buffers_.scores, {column, row})));
        });
    const Stmt correct = each_row("correct", [&](const Expr& row) {
      const BufferPtr larger = make_buffer("larger", DType::kF32, {1}, MemoryScope::kRegister);
      const Expr before = load(buffers_.largest, {row}), now = load(larger, {0});
      return alloc(larger, seq({store(larger, {0}, whole(row, before, Combiner::kMax)),
                                store(buffers_.correction, {row}, unary(UnaryOp::kExp, before - now)),
                                store(buffers_.largest, {row}, now)}));
    });
    const Stmt exponentials =
        part_of("exponentials", zero(), [&](const Expr& row, const Expr& column, const BufferPtr& so_far) {
          const Expr score = load(buffers_.scores, {column, row});
          return seq(
              {store(buffers_.scores, {column, row}, unary(UnaryOp::kExp, score - load(buffers_.largest, {row}))),
               store(so_far, {0}, load(so_far, {0}) + score)});
        });
    const Stmt sum = each_row("sum_of", [&](const Expr& row) {
      return store(buffers_.sum, {row},
                   whole(row, load(buffers_.sum, {row}) * load(buffers_.correction, {row}), Combiner::kSum));
    });
    return seq({largest, correct, exponentials, sum});
  }

  Stmt mix(const Expr& first) {
    const Stmt scale = threads("rescale", [&](const Thread& thread) {
      return each_sum(tile_.out, [&](const Var& i, const Var& j) {
        const std::vector<Expr> place = {thread.y, thread.x, i, j};
        return store(
            buffers_.mixed, place,
            load(buffers_.mixed, place) * load(buffers_.correction, {tile_.queries.place(i, thread.y, bounds_)}));
      });
    });
    const Var& key_var = product_.kernel.reduce[0].var;
    const bool by_steps = reads_neighbours(value_, key_var, product_.kernel.bounds);
    const Stmt pieces = serial_loop(
        "piece", tile_.keys.size() / tile_.steps,
        [&](const Var& piece) {
          const Expr first_step = piece * Expr(tile_.steps);
          const Stmt fetch = threads("fetch_values", [&](const Thread& thread) {
            return each_element(
                thread, tile_.steps, tile_.out.size(), by_steps, [&](const Expr& step, const Expr& column) {
                  const Expr key = first + first_step + step;
                  VarMap at = rows_at(product_, first_query_);
                  at[key_var.get()] = key;
                  columns_.values_at(column, bounds_, at);
                  const Expr inside =
                      logical_and(below(key, keys_, tile_.keys.size()), below(column, columns_, tile_.out.size()));
                  return store(buffers_.values, {step, column}, value_if(inside, substitute(value_, at), 0));
                });
          });
          const Stmt sum = threads("mix", [&](const Thread& thread) {
            return multiply(thread, buffers_.scores, first_step, buffers_.values, tile_.out, buffers_.mixed);
          });
          return seq({fetch, sum});
        },
        bounds_);
    return seq({scale, pieces});
  }

  Stmt finish() {
    return threads("finish", [&](const Thread& thread) {
      return each_sum(tile_.out, [&](const Var& i, const Var& j) {
        const Expr row = tile_.queries.place(i, thread.y, bounds_), column = tile_.out.place(j, thread.x, bounds_);
        const Expr query = first_query_ + row;
        const Stmt stored =
            store_result(query, column, load(buffers_.mixed, {thread.y, thread.x, i, j}), load(buffers_.sum, {row}));
        const Expr inside =
            logical_and(below(query, queries_, tile_.queries.size()), below(column, columns_, tile_.out.size()));
        return is_true(inside) ? stored : if_then(inside, stored);
      });
    });
  }

  struct Buffers {
    BufferPtr queries, keys, values;     // [step, query], [step, key], [step, column of the result]: pieces
    BufferPtr scores;                    // [key, query] of a tile; then their exponentials
    BufferPtr part;                      // [group, query]: of a group's columns
    BufferPtr largest, correction, sum;  // by query
    BufferPtr products, mixed;           // of threads
  };

  const GpuLimits& limits_;
  AttentionTile tile_;
  Expr first_query_;
  Buffers buffers_;
};

}  // namespace

GpuRuleResult gpu_attention(const JoinedProgram& joined, const JoinedContext& context, const GpuLimits& limits) {
  GpuRuleResult warps = gpu_attention_mma(joined, context, limits);
  if (std::holds_alternative<LoopProgram>(warps)) return warps;
  return AttentionKernel(joined, context, limits).run();
}

}  // namespace tessera::inline schedule
