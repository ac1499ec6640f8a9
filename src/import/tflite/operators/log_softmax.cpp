// The logarithm of each element's share of a row's exponentials, of i8, with the roundings of LiteRT's fixed-point
// numbers: exponentials have 31 digits behind the point, their sum 19, logarithms 26.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "import/tflite/fixed_functions.h"
#include "import/tflite/operators/handlers.h"

namespace tessera::inline tflite_import {
namespace {

constexpr int kInDigits = 5, kSumDigits = 12, kOutDigits = 4;  // before the point

// 1 / (1 + x) of numbers from 0 to 1 with 31 digits, in i64.
ValueId reciprocal_above_one(OperatorContext& c, ValueId x) {
  const ValueId half = c.op("shift_right", {c.add(x, c.integer((int64_t{1} << 31))), c.integer(1)});
  ValueId y = c.add(c.integer(1515870810), high_product(c, half, c.integer(-1010580540)));  // two digits before it
  for (int i = 0; i < 3; ++i) {
    const ValueId error = c.sub(c.integer(1 << 29), high_product(c, half, y));
    y = c.add(y, kept_in_32(c, c.mul(high_product(c, y, error), c.integer(4))));
  }
  return kept_in_32(c, c.mul(y, c.integer(2)));
}

// The number of zeros in front of numbers of 32 bits that are above 0.
ValueId leading_zeros(OperatorContext& c, ValueId x) {
  ValueId zeros = c.integer(32);
  for (int bit = 0; bit < 31; ++bit)
    zeros = c.sub(zeros, c.cast(c.op("ge", {x, c.integer(int64_t{1} << bit)}), DType::kI64));
  return zeros;
}

// log(z) for z of at least 1, with kSumDigits before the point; the result has kInDigits. i64.
ValueId logarithm(OperatorContext& c, ValueId z) {
  constexpr int64_t kRootOfHalf = 1518500250, kFourthRootOfHalf = 1805811301, kQuarter = int64_t{1} << 23;
  const ValueId one = c.integer(1);
  const auto left = [&](ValueId x, ValueId bits) { return kept_in_32(c, c.op("shift_left", {x, bits})); };
  // z and its multiple by the root of a half, each as a power of two and what is left of it; the lesser rest is nearer
  // to the middle.
  const ValueId zeros = leading_zeros(c, z);
  const ValueId scaled = left(z, c.sub(zeros, one));
  const ValueId rest_a = kept_in_32(c, c.mul(high_product(c, scaled, c.integer(kRootOfHalf)), c.integer(2)));
  const auto power = [&](ValueId bits, int64_t more) {
    return c.add(c.mul(c.sub(c.integer(kSumDigits), bits), c.integer(int64_t{1} << (31 - kInDigits - 1))),
                 c.integer(more));
  };
  const ValueId power_a = power(zeros, kQuarter);
  const ValueId zeros_b = c.sub(leading_zeros(c, high_product(c, z, c.integer(kRootOfHalf))), one);
  const ValueId rest_b = left(z, zeros_b), power_b = power(zeros_b, -kQuarter);
  const ValueId r = c.op("min", {rest_a, rest_b}), powers = c.op("max", {power_a, power_b});
  const ValueId middle = c.integer(kFourthRootOfHalf);
  const ValueId p = c.op("shift_right", {c.add(c.add(r, middle), one), one});
  const ValueId q = c.mul(c.sub(r, middle), c.integer(2));
  const ValueId square = high_product(c, q, q);
  const ValueId above = c.add(high_product(c, q, r), high_product(c, high_product(c, q, square), c.integer(117049297)));
  const ValueId inner = c.add(c.add(c.integer(1057819769), q), high_product(c, c.integer(127690142), square));
  const ValueId below = c.add(high_product(c, p, inner), high_product(c, c.integer(638450708), q));
  const ValueId quotient = high_product(c, halved(c, above, c.integer(kInDigits + 1)), reciprocal_above_one(c, below));
  const ValueId whole = high_product(c, powers, c.integer(1488522236));  // log(2)
  return kept_in_32(c, c.mul(c.add(whole, quotient), c.integer(2)));
}

}  // namespace

ValueId log_softmax_of_bytes(OperatorContext& c) {
  const TfliteTensor &x = c.tensor(0), &y = c.output(0);
  if (x.dtype != DType::kI8 || y.dtype != DType::kI8)
    c.unsupported(fmt::format("values of type {}", dtype_name(x.dtype)));
  if (c.scale(y) != 16.0F / 256.0F || c.zero_point(y) != 127)
    c.malformed(fmt::format("a result of scale {} with the zero point {}", c.scale(y), c.zero_point(y)),
                "1/16 and 127");
  const auto rows = c.dims(c.in(0));
  if (rows.back() < 1) c.unsupported("rows without elements");
  if (rows.back() > (int64_t{1} << kSumDigits)) c.unsupported("rows that long: sums of exponentials leave 32 bits");
  // Differences from the greatest, with kInDigits before the point.
  const double wanted = static_cast<double>(c.scale(x)) * (int64_t{1} << (31 - kInDigits));
  const FixedScale scale = fixed_scale(std::min(wanted, (int64_t{1} << 31) - 1.0));
  const FixedScale back = fixed_scale(std::ldexp(1.0, 31 - scale.shift) / scale.factor);
  const double radius =
      ((int64_t{1} << kInDigits) - 1) * std::ldexp(1.0, 31 - kInDigits) / std::ldexp(1.0, scale.shift);
  const int64_t least = -static_cast<int64_t>(std::floor(radius));
  Tensor shifted(DType::kI64, {256}), powers(DType::kI64, {256});  // by how far an element is below the greatest
  for (int64_t below = 0; below < 256; ++below) {
    const bool counts = -below >= least;
    const int64_t fine = counts ? multiply(static_cast<int32_t>(-below), scale, FixedRounding::kTwice) : 0;
    shifted.set_int(below, fine);
    const int64_t power = counts ? fixed_exponential(static_cast<int32_t>(fine)) : 0;
    powers.set_int(below, (power + (int64_t{1} << (kSumDigits - 1))) >> kSumDigits);
  }
  const std::vector<int64_t> last = {c.rank(c.in(0)) - 1};
  const ValueId wide = c.cast(c.in(0), DType::kI32);
  const ValueId below = c.cast(c.sub(c.reduce("max", wide, last, true), wide), DType::kI64);
  const auto looked_up = [&](Tensor table) {
    return c.op("gather", {c.constant_value(std::move(table)), below}, {{"axis", int64_t{0}}});
  };
  const ValueId log = logarithm(c, c.reduce("sum", looked_up(std::move(powers)), last, true));
  // The least difference whose result is within a byte.
  const ValueId moved = c.cast(c.add(log, c.integer(int64_t{INT32_MIN})), DType::kI32);
  const ValueId limit =
      c.op("max", {c.integer(least - 1), c.cast(multiply(c, moved, back, FixedRounding::kTwice), DType::kI64)});
  const ValueId result = halved(c, c.sub(looked_up(std::move(shifted)), log), c.integer(31 - kInDigits - kOutDigits));
  const ValueId kept = kept_within(c, c.add(result, c.integer(127)), -128, 127);
  const ValueId counts = c.op("gt", {c.op("neg", {below}), limit});
  return c.cast(c.op("select", {counts, kept, c.integer(-128)}), DType::kI8);
}

}  // namespace tessera::inline tflite_import
