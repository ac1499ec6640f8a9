#include "import/tflite/fixed_point.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace tessera::inline tflite_import {
namespace {

constexpr int64_t kLeast = INT32_MIN, kMost = INT32_MAX;

// What is added to x * factor before it is shifted right, and by how much.
struct ShiftRight {
  int64_t added = 0, added_below = 0;  // where the scaled x is negative
  int64_t negative_below = 0;          // x * factor less than this is negative when it is rounded
  int amount = 31;
  int left = 0;  // x is shifted first
};

ShiftRight shift_of(FixedScale scale, FixedRounding rounding) {
  ShiftRight s;
  if (rounding == FixedRounding::kOnce) {
    s.amount = 31 - scale.shift;
    if (s.amount < 1) {  // no factor that a model can have without its sums leaving 32 bits
      s.left = 1 - s.amount;
      s.amount = 1;
    }
    s.added = int64_t{1} << (s.amount - 1);
    s.added_below = s.added - 1;
    return s;
  }
  constexpr int64_t kHalfUnit = int64_t{1} << 30;
  s.left = std::max(scale.shift, 0);
  const int right = std::max(-scale.shift, 0);
  s.amount = 31 + right;
  s.added = s.added_below = kHalfUnit + (right > 0 ? int64_t{1} << (30 + right) : 0);
  if (right > 0) {
    // Halves away from zero: one unit of the first rounding less below it.
    s.added_below -= int64_t{1} << 31;
    s.negative_below = -kHalfUnit;
  }
  return s;
}

int32_t shifted_left(int32_t x, int amount) {
  return amount >= 32 ? 0 : static_cast<int32_t>(static_cast<uint32_t>(x) << amount);
}

}  // namespace

FixedScale fixed_scale(double scale) {
  if (scale == 0 || !std::isfinite(scale)) return {};
  FixedScale result;
  int64_t factor = static_cast<int64_t>(std::round(std::frexp(scale, &result.shift) * (int64_t{1} << 31)));
  if (factor == int64_t{1} << 31) {
    factor /= 2;
    ++result.shift;
  }
  if (result.shift < -31) return {};
  if (result.shift > 30) {
    result.shift = 30;
    factor = kMost;
  }
  result.factor = static_cast<int32_t>(factor);
  return result;
}

int64_t multiply(int32_t x, FixedScale scale, FixedRounding rounding) {
  const ShiftRight s = shift_of(scale, rounding);
  const int64_t product = static_cast<int64_t>(shifted_left(x, s.left)) * scale.factor;
  return (product + (product < s.negative_below ? s.added_below : s.added)) >> s.amount;
}

namespace {

// For each result above the range's lowest the least x that gives it or more; kMost + 1: none does. Empty where x
// wraps.
std::optional<std::vector<int64_t>> thresholds(FixedScale scale, FixedRounding rounding, const StoredRange& range) {
  if (scale.shift > 0 || range.high - range.low > 65535) return std::nullopt;
  std::vector<int64_t> result;
  const auto value = [&](int64_t x) { return multiply(static_cast<int32_t>(x), scale, rounding) + range.zero; };
  int64_t from = kLeast;
  for (int64_t wanted = range.low + 1; wanted <= range.high; ++wanted) {
    // The values rise with x.
    int64_t low = from, high = kMost + 1;
    if (scale.factor > 0) {
      const double guess = std::ldexp(static_cast<double>(wanted - range.zero) - 0.5, 31 - scale.shift) / scale.factor;
      const int64_t near = static_cast<int64_t>(std::clamp(guess, -3e9, 3e9));
      if (near - 4 > low && near - 4 <= kMost && value(near - 4) < wanted) low = near - 3;
      if (near + 4 < high && near + 4 >= low && value(near + 4) >= wanted) high = near + 4;
    }
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (value(middle) >= wanted) high = middle;
      else low = middle + 1;
    }
    result.push_back(low);
    from = low;
    if (low > kMost) {
      result.resize(static_cast<size_t>(range.high - range.low), kMost + 1);
      break;
    }
  }
  return result;
}

// Both ways to round the product and the sum.
bool reaches(int64_t x, float scale, float offset, float wanted) {
  const auto value = static_cast<float>(x);
  volatile float product = value * scale;  // rounded by itself
  return std::nearbyint(product + offset) >= wanted && std::nearbyint(std::fma(value, scale, offset)) >= wanted;
}
bool stays_below(int64_t x, float scale, float offset, float wanted) {
  const auto value = static_cast<float>(x);
  volatile float product = value * scale;
  return std::nearbyint(product + offset) < wanted && std::nearbyint(std::fma(value, scale, offset)) < wanted;
}

// Whether the floats have the thresholds `steps` among the x of the sign and within the bounds.
bool has_steps(const std::vector<int64_t>& steps, int64_t low, float scale, float offset, bool negative,
               const SumBounds& bounds) {
  const int64_t first = negative ? bounds.low : std::max<int64_t>(bounds.low, 0);
  const int64_t last = negative ? std::min<int64_t>(bounds.high, -1) : bounds.high;
  if (first > last) return true;
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto wanted = static_cast<float>(low + 1 + static_cast<int64_t>(i));
    // The least x of the sign that reaches it, and the greatest that does not. Where there is none, one end says it.
    if (steps[i] <= last && !reaches(std::max(steps[i], first), scale, offset, wanted)) return false;
    if (steps[i] > first && !stays_below(std::min(steps[i] - 1, last), scale, offset, wanted)) return false;
  }
  return true;
}

float moved(float value, int units) {
  for (; units > 0; --units) value = std::nextafter(value, HUGE_VALF);
  for (; units < 0; ++units) value = std::nextafter(value, -HUGE_VALF);
  return value;
}

std::optional<float> find_offset(const std::vector<int64_t>& steps, const StoredRange& range, float scale, float guess,
                                 bool negative, const SumBounds& bounds) {
  for (int i = 0; i < 24; ++i) {
    const float offset = guess + (i % 2 == 0 ? 1.0F : -1.0F) * static_cast<float>((i + 1) / 2) * 0x1p-20F *
                                     std::max(1.0F, static_cast<float>(range.high - range.low) / 16);
    if (has_steps(steps, range.low, scale, offset, negative, bounds)) return offset;
  }
  return std::nullopt;
}

}  // namespace

std::optional<FloatScale> float_scale(FixedScale scale, FixedRounding rounding, const StoredRange& range,
                                      const SumBounds& bounds) {
  if (range.high - range.low > 255) return std::nullopt;
  const auto steps = thresholds(scale, rounding, range);
  if (!steps) return std::nullopt;
  const auto real = static_cast<float>(std::ldexp(static_cast<double>(scale.factor), scale.shift - 31));
  // The first rounding moves every step by half its unit, towards zero.
  const double unit = rounding == FixedRounding::kTwice && scale.shift < 0 ? std::ldexp(0.5, scale.shift) : 0;
  const auto zero = static_cast<double>(range.zero);
  for (const int units : {0, 1, -1, 2, -2, 3, -3, 4, -4}) {
    const float candidate = moved(real, units);
    const auto above = find_offset(*steps, range, candidate, static_cast<float>(zero + unit), false, bounds);
    if (!above) continue;
    if (has_steps(*steps, range.low, candidate, *above, true, bounds)) return FloatScale{candidate, *above, *above};
    if (const auto below = find_offset(*steps, range, candidate, static_cast<float>(zero - unit), true, bounds))
      return FloatScale{candidate, *above, *below};
  }
  return std::nullopt;
}

namespace {

// One number, or one for each entry of dimension `axis` of x.
template <typename Number, typename Get>
ValueId along(Emitter& c, ValueId x, size_t count, int axis, DType dtype, Get&& get) {
  bool same = true;
  for (size_t i = 1; i < count; ++i) same = same && get(i) == get(0);
  std::vector<int64_t> dims;
  if (!same) {
    dims.assign(static_cast<size_t>(c.rank(x)), 1);
    dims[static_cast<size_t>(axis)] = static_cast<int64_t>(count);
  }
  Tensor tensor(dtype, dims);
  for (size_t i = 0; i < (same ? 1 : count); ++i) tensor.as_mutable<Number>()[i] = get(i);
  return c.constant_value(std::move(tensor));
}

ValueId kept_within(Emitter& c, ValueId x, const StoredRange& range) {
  return c.op("min", {c.op("max", {x, c.scalar_like(x, static_cast<double>(range.low))}),
                      c.scalar_like(x, static_cast<double>(range.high))});
}

// x, i32, times the scales and moved by `range.zero`, in i32. What is below the range's least number may be rounded in
// another way than LiteRT does.
ValueId multiply_in_integers(Emitter& c, ValueId x, const std::vector<FixedScale>& scales, int axis,
                             FixedRounding rounding, const StoredRange& range) {
  std::vector<ShiftRight> shifts;
  for (const FixedScale scale : scales) shifts.push_back(shift_of(scale, rounding));
  const auto any = [&](auto&& holds) { return std::any_of(shifts.begin(), shifts.end(), holds); };
  const auto all = [&](auto&& get) {
    return along<int64_t>(c, x, shifts.size(), axis, DType::kI64, [&](size_t i) { return get(shifts[i]); });
  };
  if (any([](const ShiftRight& s) { return s.left > 0; }))
    x = c.op("shift_left", {x, along<int32_t>(c, x, shifts.size(), axis, DType::kI32,
                                              [&](size_t i) { return static_cast<int32_t>(shifts[i].left); })});
  const ValueId factors =
      along<int64_t>(c, x, scales.size(), axis, DType::kI64, [&](size_t i) { return int64_t{scales[i].factor}; });
  const ValueId product = c.mul(c.cast(x, DType::kI64), factors);
  // The zero point is added with the rest where it does not leave 64 bits there.
  const bool joins = !any([](const ShiftRight& s) { return s.amount > 50; });
  const auto zero = [&](const ShiftRight& s) { return joins ? range.zero * (int64_t{1} << s.amount) : 0; };
  ValueId added = all([&](const ShiftRight& s) { return s.added + zero(s); });
  if (range.low < range.zero && any([](const ShiftRight& s) { return s.added != s.added_below; })) {
    const ValueId below = all([&](const ShiftRight& s) { return s.added_below + zero(s); });
    const ValueId border = all([](const ShiftRight& s) { return s.negative_below; });
    added = c.op("select", {c.op("lt", {product, border}), below, added});
  }
  const ValueId amount = all([](const ShiftRight& s) { return int64_t{s.amount}; });
  const ValueId y = c.cast(c.op("shift_right", {c.add(product, added), amount}), DType::kI32);
  return joins ? y : c.add(y, c.scalar(DType::kI32, static_cast<double>(range.zero)));
}

}  // namespace

ValueId multiply(Emitter& c, ValueId x, FixedScale scale, FixedRounding rounding) {
  return multiply_in_integers(c, x, {scale}, 0, rounding, {INT32_MIN, INT32_MAX, 0});
}

ValueId requantize(Emitter& c, ValueId x, const std::vector<FixedScale>& scales, int axis, FixedRounding rounding,
                   const StoredRange& range, DType dtype, const std::vector<SumBounds>& bounds) {
  std::vector<FloatScale> floats;
  for (size_t i = 0; i < scales.size(); ++i) {
    const auto found = float_scale(scales[i], rounding, range, bounds.empty() ? SumBounds{} : bounds[i]);
    if (!found) break;
    floats.push_back(*found);
  }
  if (floats.size() < scales.size()) {
    return c.cast(kept_within(c, multiply_in_integers(c, x, scales, axis, rounding, range), range), dtype);
  }
  const auto all = [&](auto&& get) {
    return along<float>(c, x, floats.size(), axis, DType::kF32, [&](size_t i) { return get(floats[i]); });
  };
  ValueId offset = all([](const FloatScale& s) { return s.offset; });
  if (std::any_of(floats.begin(), floats.end(), [](const FloatScale& s) { return s.offset != s.offset_below; }))
    offset = c.op("select", {c.op("lt", {x, c.scalar_like(x, 0)}),
                             all([](const FloatScale& s) { return s.offset_below; }), offset});
  const ValueId scaled = c.mul(c.cast(x, DType::kF32), all([](const FloatScale& s) { return s.scale; }));
  return c.cast(kept_within(c, c.op("round", {c.add(scaled, offset)}), range), dtype);
}

ValueId high_product(Emitter& c, ValueId a, ValueId b) {
  const ValueId whole = c.mul(a, b);
  const ValueId half = c.op(
      "select", {c.op("ge", {whole, c.integer(0)}), c.integer(int64_t{1} << 30), c.integer(1 - (int64_t{1} << 30))});
  return c.div(c.add(whole, half), c.integer(int64_t{1} << 31));
}
ValueId kept_in_32(Emitter& c, ValueId x) {
  return c.op("min", {c.op("max", {x, c.integer(int64_t{INT32_MIN})}), c.integer(int64_t{INT32_MAX})});
}
ValueId halved(Emitter& c, ValueId x, ValueId bits) {
  const ValueId one = c.integer(1), zero = c.integer(0);
  const ValueId some = c.op("gt", {bits, zero});
  const ValueId half = c.op("shift_left", {one, c.op("max", {c.sub(bits, one), zero})});
  const ValueId added = c.op("select", {c.op("lt", {x, zero}), c.sub(half, one), half});
  return c.op("select", {some, c.op("shift_right", {c.add(x, added), bits}), x});
}

}  // namespace tessera::inline tflite_import
