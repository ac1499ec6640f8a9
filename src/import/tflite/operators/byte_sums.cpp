#include "import/tflite/operators/byte_sums.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "import/tflite/operators/handlers.h"

namespace tessera::inline tflite_import {
namespace {

constexpr FixedRounding kRounding = FixedRounding::kTwice;

// round(x * a + (y * b + offset)) of the bytes x and y as they are stored.
struct FloatSum {
  float a = 0, b = 0, offset = 0;
};

struct AllSums {
  std::array<float, 65536> wanted;  // by x * 256 + y
  std::array<float, 256> x, y;      // the bytes
};

AllSums all_sums(const ByteSum& sum, const StoredRange& range, int64_t least) {
  AllSums all;
  std::array<int32_t, 256> a, b;
  for (int64_t i = 0; i < 256; ++i) {
    const auto shifted = [&](int64_t zero) {
      return static_cast<int32_t>((i + least - zero) * (int64_t{1} << sum.left));
    };
    a[static_cast<size_t>(i)] = static_cast<int32_t>(multiply(shifted(sum.a_zero), sum.a, kRounding));
    b[static_cast<size_t>(i)] = static_cast<int32_t>(multiply(shifted(sum.b_zero), sum.b, kRounding));
    all.x[static_cast<size_t>(i)] = all.y[static_cast<size_t>(i)] = static_cast<float>(i + least);
  }
  for (size_t i = 0; i < 65536; ++i) {
    const int32_t raw = sum.subtracts ? a[i / 256] - b[i % 256] : a[i / 256] + b[i % 256];
    all.wanted[i] =
        static_cast<float>(std::clamp(multiply(raw, sum.result, kRounding) + range.zero, range.low, range.high));
  }
  return all;
}

// However products and sums are rounded: each by itself, or together.
bool fits(const AllSums& all, const FloatSum& s, const StoredRange& range) {
  const auto low = static_cast<float>(range.low), high = static_cast<float>(range.high);
  const auto stored = [&](float value) { return std::min(std::max(std::nearbyint(value), low), high); };
  for (size_t j = 0; j < 256; ++j) {
    volatile float y_product = all.y[j] * s.b;
    const float apart = y_product + s.offset, fused = std::fma(all.y[j], s.b, s.offset);
    for (size_t i = 0; i < 256; ++i) {
      const float wanted = all.wanted[i * 256 + j];
      volatile float x_product = all.x[i] * s.a;
      if (stored(x_product + apart) != wanted || stored(std::fma(all.x[i], s.a, apart)) != wanted ||
          stored(x_product + fused) != wanted || stored(std::fma(all.x[i], s.a, fused)) != wanted)
        return false;
    }
  }
  return true;
}

std::optional<FloatSum> float_sum(const ByteSum& sum, const StoredRange& range, int64_t least) {
  const AllSums all = all_sums(sum, range, least);
  const auto real = [&](FixedScale scale) { return std::ldexp(static_cast<double>(scale.factor), scale.shift - 31); };
  const double unit = std::ldexp(real(sum.result), sum.left);
  const double a = real(sum.a) * unit, b = real(sum.b) * unit * (sum.subtracts ? -1 : 1);
  const auto moved = [](double value, int units) {
    auto result = static_cast<float>(value);
    for (; units > 0; --units) result = std::nextafter(result, HUGE_VALF);
    for (; units < 0; ++units) result = std::nextafter(result, -HUGE_VALF);
    return result;
  };
  for (const int a_units : {0, 1, -1})
    for (const int b_units : {0, 1, -1})
      for (int i = 0; i < 12; ++i) {
        FloatSum s{moved(a, a_units), moved(b, b_units), 0};
        const double centre = static_cast<double>(range.zero) -
                              static_cast<double>(s.a) * static_cast<double>(sum.a_zero) -
                              static_cast<double>(s.b) * static_cast<double>(sum.b_zero);
        s.offset = static_cast<float>(centre + (i % 2 == 0 ? 1 : -1) * ((i + 1) / 2) * 0x1p-17);
        if (fits(all, s, range)) return s;
      }
  return std::nullopt;
}

}  // namespace

ValueId byte_sum(Emitter& c, ValueId a, ValueId b, const ByteSum& sum, const StoredRange& range, DType dtype) {
  const auto found = dtype_bits(dtype) == 8 ? float_sum(sum, range, is_signed_int(dtype) ? -128 : 0) : std::nullopt;
  if (const auto& s = found) {
    const auto term = [&](ValueId x, float scale) {
      return c.mul(c.cast(c.cast(x, DType::kI32), DType::kF32), c.scalar(DType::kF32, static_cast<double>(scale)));
    };
    const ValueId y = c.add(term(b, s->b), c.scalar(DType::kF32, static_cast<double>(s->offset)));
    const ValueId rounded = c.op("round", {c.add(term(a, s->a), y)});
    const ValueId kept = c.op("min", {c.op("max", {rounded, c.scalar(DType::kF32, static_cast<double>(range.low))}),
                                      c.scalar(DType::kF32, static_cast<double>(range.high))});
    return c.cast(kept, dtype);
  }
  const auto term = [&](ValueId x, int64_t zero, FixedScale scale) {
    const ValueId shifted = c.op("shift_left", {centred(c, x, zero), c.scalar(DType::kI32, sum.left)});
    return multiply(c, shifted, scale, kRounding);
  };
  const ValueId x = term(a, sum.a_zero, sum.a), y = term(b, sum.b_zero, sum.b);
  return requantize(c, sum.subtracts ? c.sub(x, y) : c.add(x, y), {sum.result}, 0, kRounding, range, dtype);
}

}  // namespace tessera::inline tflite_import
