#include "ops/sort_loops.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "ops/op_util.h"
#include "support/error.h"

namespace tessera::inline ops {
namespace {

constexpr int64_t kDigits = 256;
constexpr int kDigitBits = 8;

int key_bits(DType type) { return type == DType::kI32 ? 32 : 64; }

}  // namespace

void require_sortable(const OpContext& ctx, size_t operand, size_t axis) {
  const auto extent = as_int(ctx.inputs[operand].shape[axis]);
  if (extent && *extent >= std::numeric_limits<int32_t>::max() - kFewToSort)
    ctx.fail("TSR-2024", fmt::format("dimension {} of {}", axis, describe_operand(ctx, operand)),
             "fewer than 2^31 elements to put in order");
}

DType sort_key_type(DType dtype) {
  return dtype == DType::kF64 || dtype == DType::kI64 || dtype == DType::kU64 ? DType::kI64 : DType::kI32;
}

Expr sort_key(const Expr& element, bool descending) {
  const DType dtype = element.dtype(), type = sort_key_type(dtype);
  const int bits = key_bits(type);
  const int64_t lowest = bits == 32 ? std::numeric_limits<int32_t>::min() : std::numeric_limits<int64_t>::min();
  const auto number = [&](int64_t value) { return const_int(type, value); };
  Expr key;
  if (is_float(dtype)) {
    const DType wide = dtype == DType::kF64 ? DType::kF64 : DType::kF32;
    const Expr x = cast(wide, element);
    const Expr zero = const_float(wide, 0);
    const Expr raw = bitcast(type, select(equal(x, zero), zero, x));
    // Negative numbers have their magnitudes' order turned round.
    const Expr sign = binary(BinaryOp::kShr, raw, number(bits - 1));
    const Expr ordered = binary(BinaryOp::kXor, raw, binary(BinaryOp::kAnd, sign, number(~lowest)));
    key = select(binary(BinaryOp::kNe, x, x), number(~lowest), ordered);
  } else if (dtype == DType::kU32 || dtype == DType::kU64) {
    key = binary(BinaryOp::kXor, cast(type, element), number(lowest));
  } else {
    key = cast(type, element);
  }
  return descending ? binary(BinaryOp::kXor, key, number(-1)) : key;
}

Stmt rank_keys(const BufferPtr& keys, const BufferPtr& ranks, int64_t lanes, const Expr& count) {
  const auto is = [](const Expr& condition) { return cast(DType::kI32, condition); };
  return seq({vector_loop("e", lanes, [&](const Var& e) { return store(ranks, {e}, const_int(DType::kI32, 0)); }),
              serial_loop("o", count, [&](const Var& o) {
                return vector_loop("e", lanes, [&](const Var& e) {
                  const Expr a = load(keys, {o}), b = load(keys, {e});
                  const Expr number = cast(DType::kI32, e), other = cast(DType::kI32, o);
                  return store(ranks, {e},
                               load(ranks, {e}) + is(logical_or(a < b, logical_and(equal(a, b), other < number))));
                });
              })});
}

RadixSort::RadixSort(DType key_type, int64_t capacity)
    : keys(local_buffer("keys", key_type, {2, std::max(capacity, kFewToSort) + 1})),
      numbers(local_buffer("numbers", DType::kI32, {2, std::max(capacity, kFewToSort) + 1})),
      half("half", DType::kI64) {
  check(capacity < std::numeric_limits<int32_t>::max(), "too many elements to sort");
}

Stmt RadixSort::put(const Expr& at, const Expr& key, const Expr& number) const {
  return seq({store(keys, {half.get(), at}, key), store(numbers, {half.get(), at}, cast(DType::kI32, number))});
}

// A digit after the other, the lowest first: the elements are dealt into places in the order of this digit, in which
// those with equal digits keep theirs. Digits that all keys share are left out; they are the highest of the smallest
// and of the largest key.
Stmt RadixSort::sort_many(const Expr& count) const {
  const DType type = keys->dtype;
  const int bits = key_bits(type);
  const Cell low("low", type), high("high", type);
  const auto number = [&](int64_t value) { return const_int(type, value); };
  std::vector<Stmt> body = {low.set(load(keys, {half.get(), 0})), high.set(load(keys, {half.get(), 0})),
                            serial_loop("e", count, [&](const Var& e) {
                              return seq({low.set(min(low.get(), key(e))), high.set(max(high.get(), key(e)))});
                            })};
  for (int shift = 0; shift < bits; shift += kDigitBits) {
    const BufferPtr places = local_buffer("places", DType::kI32, {kDigits});
    const auto shifted = [&](const Expr& k) { return shift ? binary(BinaryOp::kShr, k, number(shift)) : k; };
    const bool top = shift + kDigitBits == bits;
    const auto digit = [&](const Expr& at) {
      // The highest digit is -128 .. 127.
      const Expr d =
          top ? shifted(key(at)) + number(kDigits / 2) : binary(BinaryOp::kAnd, shifted(key(at)), number(kDigits - 1));
      return index_of(d);
    };
    const Expr one = const_int(DType::kI32, 1);
    const Cell total("total", DType::kI32), here("here", DType::kI32), where("where", DType::kI64);
    const Expr other = Expr(1) - half.get();
    const Stmt deal = with(
        {places, total.buffer, here.buffer, where.buffer},
        {vector_loop("d", kDigits, [&](const Var& d) { return store(places, {d}, const_int(DType::kI32, 0)); }),
         serial_loop("e", count,
                     [&](const Var& e) {
                       return seq(
                           {where.set(digit(e)), store(places, {where.get()}, load(places, {where.get()}) + one)});
                     }),
         total.set(const_int(DType::kI32, 0)),
         serial_loop("d", kDigits,
                     [&](const Var& d) {
                       return seq({here.set(load(places, {d})), store(places, {d}, total.get()),
                                   total.set(total.get() + here.get())});
                     }),
         serial_loop("e", count,
                     [&](const Var& e) {
                       const Expr to = index_of(here.get());
                       return seq({where.set(digit(e)), here.set(load(places, {where.get()})),
                                   store(places, {where.get()}, here.get() + one), store(keys, {other, to}, key(e)),
                                   store(numbers, {other, to}, load(numbers, {half.get(), e}))});
                     }),
         half.set(other)});
    body.push_back(if_then(binary(BinaryOp::kNe, shifted(low.get()), shifted(high.get())), deal));
  }
  return with({low.buffer, high.buffer}, body);
}

Stmt RadixSort::sort_few(const Expr& count) const {
  const DType type = keys->dtype;
  const int64_t highest =
      type == DType::kI32 ? std::numeric_limits<int32_t>::max() : std::numeric_limits<int64_t>::max();
  const BufferPtr few = local_buffer("few", type, {kFewToSort}),
                  ranks = local_buffer("ranks", DType::kI32, {kFewToSort}),
                  sums = make_buffer("sums", DType::kI32, {kFewToSort}, MemoryScope::kRegister);
  const Expr other = Expr(1) - half.get();
  return with(
      {few, ranks, sums},
      {vector_loop("e", kFewToSort,
                   [&](const Var& e) { return store(few, {e}, select(e < count, key(e), const_int(type, highest))); }),
       rank_keys(few, sums, kFewToSort, count),
       vector_loop("e", kFewToSort, [&](const Var& e) { return store(ranks, {e}, load(sums, {e})); }),
       serial_loop("e", count,
                   [&](const Var& e) {
                     const Expr to = index_of(load(ranks, {e}));
                     return seq({store(keys, {other, to}, key(e)),
                                 store(numbers, {other, to}, load(numbers, {half.get(), e}))});
                   }),
       half.set(other)});
}

Stmt RadixSort::sort(const Expr& count) const {
  return if_then(Expr(1) < count, if_then(count <= Expr(kFewToSort), sort_few(count), sort_many(count)));
}

Stmt RadixSort::around(const std::vector<Stmt>& body) const {
  std::vector<Stmt> all = {half.set(Expr(0))};
  all.insert(all.end(), body.begin(), body.end());
  return with({keys, numbers, half.buffer}, all);
}

}  // namespace tessera::inline ops
