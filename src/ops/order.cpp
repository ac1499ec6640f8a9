// order: which elements come first. What sorts, chooses the largest or finds equal elements is built on it.
//
// How it is done depends on how many are asked for: a few are kept in a sorted list of vectors, which most elements do
// not get into; of more, counts over parts of the range of values say which elements can be among the first, and those
// are sorted.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "arith/simplify.h"
#include "graph/adjoint.h"
#include "ops/op_util.h"
#include "ops/primitives.h"
#include "ops/sort_loops.h"

namespace tessera::inline ops {
namespace {

constexpr int64_t kTiny = 64;      // up to here each element counts the others that precede it
constexpr int64_t kFew = 64;       // as many are kept in a list
constexpr int64_t kBlock = 64;     // elements that are looked at together
constexpr int kMostPartBits = 11;  // of the range of keys

std::vector<TensorType> infer(const OpContext& ctx) {
  const TensorType& x = ctx.inputs[0];
  require_dtype(ctx, 0, is_movable, kMovableTypes);
  require_rank(ctx, 0, 3, 3);
  const auto extent = as_int(x.shape[1]);
  require_sortable(ctx, 0, 1);
  const int64_t count = require_int(ctx, "count", 0, extent ? *extent : kFew);
  if (!extent && !(is_const_int(x.shape[2], 1) && size_at_most(count, x.shape[1])))
    ctx.fail(
        "TSR-2030", describe_operand(ctx, 0) + fmt::format(" and count = {}", count),
        fmt::format("a dimension 1 of static extent, or one that is never below the count, which is at most {}, of "
                    "single elements",
                    kFew));
  return {TensorType{DType::kI64, {x.shape[0], ctx.attrs.get_int("count")}, {}}};
}

Tensor evaluate(const OpContext& ctx, const std::vector<const Tensor*>& inputs) {
  const Tensor& x = *inputs[0];
  const int64_t rows = x.dims()[0], extent = x.dims()[1], width = x.dims()[2], count = ctx.attrs.get_int("count");
  const bool descending = ctx.attrs.get_or<bool>("descending", false);
  Tensor y(DType::kI64, {rows, count});
  // -1, 0, 1: before, equal, behind.
  const auto compare_elements = [&](int64_t a, int64_t b) {
    if (is_float(x.dtype())) {
      const double p = x.get_double(a), q = x.get_double(b);
      if (p != p || q != q) return (p != p ? 1 : 0) - (q != q ? 1 : 0);
      return p < q ? -1 : p > q ? 1 : 0;
    }
    if (x.dtype() == DType::kU64) {
      const auto p = static_cast<uint64_t>(x.get_int(a)), q = static_cast<uint64_t>(x.get_int(b));
      return p < q ? -1 : p > q ? 1 : 0;
    }
    return x.get_int(a) < x.get_int(b) ? -1 : x.get_int(a) > x.get_int(b) ? 1 : 0;
  };
  std::vector<int64_t> numbers(static_cast<size_t>(extent));
  for (int64_t row = 0; row < rows; ++row) {
    std::iota(numbers.begin(), numbers.end(), 0);
    std::stable_sort(numbers.begin(), numbers.end(), [&](int64_t a, int64_t b) {
      for (int64_t w = 0; w < width; ++w) {
        const int c = compare_elements((row * extent + a) * width + w, (row * extent + b) * width + w);
        if (c != 0) return descending ? c > 0 : c < 0;
      }
      return false;
    });
    for (int64_t i = 0; i < count; ++i) y.set_int(row * count + i, numbers[static_cast<size_t>(i)]);
  }
  return y;
}

struct Loops {
  BufferPtr x, out;
  Expr size;       // the extent
  int64_t extent;  // -1: symbolic
  int64_t width, count;
  bool descending;
  DType key_type = sort_key_type(x->dtype);

  Expr key(const Expr& at) const { return sort_key(load(x, {at}), descending); }
  Expr key_const(int64_t value) const { return const_int(key_type, value); }

  Stmt tiny(const Expr& row) const {
    const BufferPtr keys = local_buffer("keys", key_type, {extent}),
                    sums = make_buffer("sums", DType::kI32, {extent}, MemoryScope::kRegister),
                    ranks = local_buffer("ranks", DType::kI32, {extent}),
                    sorted = local_buffer("sorted", DType::kI32, {extent});
    return with(
        {keys, sums, ranks, sorted},
        {vector_loop("e", extent, [&](const Var& e) { return store(keys, {e}, key(row * Expr(extent) + e)); }),
         rank_keys(keys, sums, extent, extent),
         vector_loop("e", extent, [&](const Var& e) { return store(ranks, {e}, load(sums, {e})); }),
         serial_loop("e", extent,
                     [&](const Var& e) { return store(sorted, {index_of(load(ranks, {e}))}, cast(DType::kI32, e)); }),
         vector_loop("p", count,
                     [&](const Var& p) { return store(out, {row * Expr(count) + p}, index_of(load(sorted, {p}))); })});
  }

  // The list: best[1 ..] ascending; best[0] is below every key, so that every place has one before it.
  Stmt few(const Expr& row) const {
    const BufferPtr best = local_buffer("best", key_type, {count + 1}),
                    chosen = local_buffer("chosen", DType::kI32, {count + 1}),
                    new_best = local_buffer("new_best", key_type, {count}),
                    new_chosen = local_buffer("new_chosen", DType::kI32, {count}),
                    first = local_buffer("first", key_type, {count}), block = local_buffer("block", key_type, {kBlock});
    const BufferPtr sums = make_buffer("sums", DType::kI32, {count}, MemoryScope::kRegister),
                    ranks = local_buffer("ranks", DType::kI32, {count});
    const Cell worst("worst", key_type), low("low", key_type), candidate("candidate", key_type);
    const Expr start = row * size;
    const int64_t below =
        key_type == DType::kI32 ? std::numeric_limits<int32_t>::min() : std::numeric_limits<int64_t>::min();
    const auto insert = [&](const Expr& number) {
      return seq({vector_loop("p", count,
                              [&](const Var& p) {
                                const Expr here = load(best, {p + Expr(1)}), left = load(best, {p});
                                const Expr stays = here <= candidate.get(), from_left = candidate.get() < left;
                                const Expr shifted = select(from_left, load(chosen, {p}), cast(DType::kI32, number));
                                return seq(
                                    {store(new_best, {p}, select(stays, here, max(left, candidate.get()))),
                                     store(new_chosen, {p}, select(stays, load(chosen, {p + Expr(1)}), shifted))});
                              }),
                  vector_loop("p", count,
                              [&](const Var& p) {
                                return seq({store(best, {p + Expr(1)}, load(new_best, {p})),
                                            store(chosen, {p + Expr(1)}, load(new_chosen, {p}))});
                              }),
                  worst.set(load(best, {count}))});
    };
    const Expr blocks = floordiv(size - Expr(count), kBlock);
    return with(
        {best, chosen, new_best, new_chosen, first, block, sums, ranks, worst.buffer, low.buffer, candidate.buffer},
        {vector_loop("e", count, [&](const Var& e) { return store(first, {e}, key(start + e)); }),
         store(best, {0}, key_const(below)), store(chosen, {0}, const_int(DType::kI32, 0)),
         rank_keys(first, sums, count, count),
         vector_loop("e", count, [&](const Var& e) { return store(ranks, {e}, load(sums, {e})); }),
         serial_loop("e", count,
                     [&](const Var& e) {
                       const Expr place = index_of(load(ranks, {e})) + Expr(1);
                       return seq(
                           {store(best, {place}, load(first, {e})), store(chosen, {place}, cast(DType::kI32, e))});
                     }),
         worst.set(load(best, {count})),
         serial_loop(
             "b", blocks,
             [&](const Var& b) {
               const Expr number = Expr(count) + b * Expr(kBlock);
               return seq(
                   {vector_loop("e", kBlock, [&](const Var& e) { return store(block, {e}, key(start + number + e)); }),
                    low.set(load(block, {0})),
                    vector_loop("e", kBlock, [&](const Var& e) { return low.set(min(low.get(), load(block, {e}))); }),
                    if_then(low.get() < worst.get(), serial_loop("e", kBlock, [&](const Var& e) {
                              return if_then(load(block, {e}) < worst.get(),
                                             seq({candidate.set(load(block, {e})), insert(number + e)}));
                            }))});
             }),
         // As many steps for every extent, so that one kernel can serve a range of them.
         serial_loop("e", kBlock - 1,
                     [&](const Var& e) {
                       const Expr number = Expr(count) + blocks * Expr(kBlock) + e;
                       return if_then(number < size, seq({candidate.set(key(start + number)),
                                                          if_then(candidate.get() < worst.get(), insert(number))}));
                     }),
         vector_loop("p", count, [&](const Var& p) {
           return store(out, {row * Expr(count) + p}, index_of(load(chosen, {p + Expr(1)})));
         })});
  }

  Stmt result(const RadixSort& sort, const Expr& row) const {
    return vector_loop("p", count, [&](const Var& p) { return store(out, {row * Expr(count) + p}, sort.number(p)); });
  }

  // Elements of `width` values: the last value decides first, since the order is stable.
  Stmt all(const Expr& row) const {
    const RadixSort sort(key_type, extent);
    const Expr start = row * Expr(extent * width);
    std::vector<Stmt> body;
    if (width == 1) {
      body.push_back(vector_loop("e", extent, [&](const Var& e) { return sort.put(e, key(start + e), e); }));
      body.push_back(sort.sort(extent));
    } else {
      body.push_back(vector_loop("e", extent, [&](const Var& e) { return sort.put(e, key_const(0), e); }));
      body.push_back(serial_loop("w", width, [&](const Var& w) {
        const Expr value = Expr(width - 1) - w;
        return seq({serial_loop("e", extent,
                                [&](const Var& e) {
                                  return store(sort.keys, {sort.half.get(), e},
                                               key(start + sort.number(e) * Expr(width) + value));
                                }),
                    sort.sort(extent)});
      }));
    }
    body.push_back(result(sort, row));
    return sort.around(body);
  }

  // Cuts the range of the keys into equal parts and counts those in each: only elements of parts up to the one in which
  // the last one wanted is are sorted.
  Stmt leading(const Expr& row) const {
    const RadixSort sort(key_type, extent);
    const int64_t parts =
        int64_t{1} << std::clamp(static_cast<int>(std::bit_width(static_cast<uint64_t>(extent))) - 3, 6, kMostPartBits);
    const BufferPtr counts = local_buffer("counts", DType::kI32, {parts});
    const Cell low("low", key_type), high("high", key_type), shift("shift", key_type), seen("seen", DType::kI32),
        limit("limit", DType::kI64), where("where", DType::kI64), kept("kept", DType::kI64);
    const auto shifted = [](const Expr& x, const Expr& by) { return binary(BinaryOp::kShr, x, by); };
    // Halves, so that differences do not overflow.
    const auto above_low = [&](const Expr& k) { return shifted(k, key_const(1)) - shifted(low.get(), key_const(1)); };
    const auto part = [&](const Expr& at) {
      return index_of(shifted(above_low(load(sort.keys, {0, at})), shift.get()));
    };
    const Expr one = const_int(DType::kI32, 1), zero = const_int(DType::kI32, 0);
    const auto extreme = [&](const Cell& cell, Expr (*combined)(Expr, Expr)) {
      return seq({cell.set(load(sort.keys, {0, 0})), vector_loop("e", extent, [&](const Var& e) {
                    return cell.set(combined(cell.get(), load(sort.keys, {0, e})));
                  })});
    };
    return sort.around(
        {vector_loop("e", extent, [&](const Var& e) { return store(sort.keys, {0, e}, key(row * Expr(extent) + e)); }),
         with({counts, low.buffer, high.buffer, shift.buffer, seen.buffer, limit.buffer, where.buffer, kept.buffer},
              {extreme(low, min), extreme(high, max), shift.set(key_const(0)),
               serial_loop("b", key_type == DType::kI32 ? 32 : 64,
                           [&](const Var&) {
                             return if_then(key_const(parts) <= shifted(above_low(high.get()), shift.get()),
                                            shift.set(shift.get() + key_const(1)));
                           }),
               vector_loop("d", parts, [&](const Var& d) { return store(counts, {d}, zero); }),
               serial_loop("e", extent,
                           [&](const Var& e) {
                             return seq(
                                 {where.set(part(e)), store(counts, {where.get()}, load(counts, {where.get()}) + one)});
                           }),
               seen.set(zero), limit.set(Expr(0)),
               serial_loop("d", parts,
                           [&](const Var& d) {
                             return if_then(seen.get() < const_int(DType::kI32, count),
                                            seq({seen.set(seen.get() + load(counts, {d})), limit.set(d)}));
                           }),
               kept.set(Expr(0)),
               // Each is written behind those that are kept; the next one overwrites it unless it is kept.
               serial_loop("e", extent,
                           [&](const Var& e) {
                             return seq({store(sort.keys, {1, kept.get()}, load(sort.keys, {0, e})),
                                         store(sort.numbers, {1, kept.get()}, cast(DType::kI32, e)),
                                         kept.set(kept.get() + index_of(part(e) <= limit.get()))});
                           }),
               sort.half.set(Expr(1)), sort.sort(kept.get())}),
         result(sort, row)});
  }

  Stmt one_row(const Expr& row) const {
    if (extent < 0) return few(row);
    if (width > 1) return all(row);
    if (extent <= kTiny) return tiny(row);
    if (count <= kFew) return few(row);
    return count <= extent / 4 ? leading(row) : all(row);
  }
};

LoopProgram loops(const OpContext& ctx) {
  const Shape& shape = ctx.inputs[0].shape;
  const Expr rows = shape[0];
  const int64_t count = ctx.attrs.get_int("count");
  LoopProgram program = start_loops(ctx, DType::kI64, rows * Expr(count));
  const Loops make{program.params[0],
                   program.params[1],
                   shape[1],
                   as_int(shape[1]).value_or(-1),
                   extent_of(ctx, shape, 2, 3),
                   count,
                   ctx.attrs.get_or<bool>("descending", false)};
  if (is_const_int(rows, 0) || count == 0) {
    program.body = seq({});
  } else if (make.width == 0) {  // all are equal
    program.body = serial_loop("row", rows, [&](const Var& row) {
      return serial_loop("e", count, [&](const Var& e) { return store(make.out, {row * Expr(count) + e}, e); });
    });
  } else {
    program.body = parallel_loop("row", rows, [&](const Var& row) { return make.one_row(row); });
  }
  return program;
}

}  // namespace

const OpDef& order_op() {
  static const OpDef op{
      .name = "order",
      .doc =
          "The numbers of the first `count` elements of each row of x [rows, elements, width] when the elements, "
          "compared value by value, are sorted. Equal elements stay in order, 0 equals -0, NaN equals itself and is "
          "the largest value.",
      .kind = OpKind::kProcedure,
      .min_inputs = 1,
      .max_inputs = 1,
      .attrs = {{"count", AttrKind::kInt, true, "how many"},
                {"descending", AttrKind::kBool, false, "the largest first; default false"}},
      .infer = infer,
      .evaluate = evaluate,
      .loops = loops,
      .gradient = no_gradient("its results are integers"),
      .example = R"(
graph @main(%x: f32[1,4,1]) -> (%y: i64[1,2]) {
  %y = order(%x) {count = 2, descending = true} : i64[1,2]
}
run x = 3 7 7 1 -> y = 1 2
)",
  };
  return op;
}

}  // namespace tessera::inline ops
