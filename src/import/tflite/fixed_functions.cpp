#include "import/tflite/fixed_functions.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace tessera::inline tflite_import {
namespace {

constexpr int32_t kOne = INT16_MAX;  // of numbers below 1, which have 15 digits behind the point

int32_t saturated(int32_t x) { return std::clamp<int32_t>(x, INT16_MIN, INT16_MAX); }

// The upper half of twice the product.
int32_t product(int32_t a, int32_t b) {
  const int32_t whole = a * b;
  return saturated((whole + (whole >= 0 ? 1 << 14 : 1 - (1 << 14))) / (1 << 15));
}

// Halves away from zero.
int32_t divided(int32_t x, int bits) {
  const int32_t rest = x & ((1 << bits) - 1), half = ((1 << bits) - 1) / 2 + (x < 0 ? 1 : 0);
  return (x >> bits) + (rest > half ? 1 : 0);
}

// Constants are written with 31 digits.
int32_t constant(int32_t digits) { return divided(digits, 16); }

// Of a number from -1/4 up to, but not, 0, by the polynomial around -1/8.
int32_t exponential_near_zero(int32_t a) {
  const int32_t at_eighth = constant(1895147668), third = constant(715827883);
  const int32_t x = a + (1 << 12), square = product(x, x), cube = product(square, x), fourth = product(square, square);
  const int32_t higher = divided(product(divided(fourth, 2) + cube, third) + square, 1);
  return saturated(at_eighth + product(at_eighth, x + higher));
}

// Of a number that is not above 0, with so many digits before the point.
int32_t exponential(int32_t a, int integer_bits) {
  const int fraction_bits = 15 - integer_bits;
  const int32_t quarter = 1 << (fraction_bits - 2);
  const int32_t within = (a & (quarter - 1)) - quarter;
  int32_t result = exponential_near_zero(saturated(within << integer_bits));
  const int32_t rest = within - a;
  // exp(-1/4), exp(-1/2), exp(-1), ...
  constexpr std::array<int32_t, 7> kPowers = {1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242};
  for (int i = 0; i < 7; ++i) {
    const int exponent = i - 2;
    if (integer_bits > exponent && (rest & (1 << (fraction_bits + exponent))) != 0)
      result = product(result, constant(kPowers[static_cast<size_t>(i)]));
  }
  if (integer_bits > 5 && a < -(1 << (fraction_bits + 5))) result = 0;
  return a == 0 ? kOne : result;
}

// 2 / (1 + x) of a number from 0 to 1, with 13 digits behind the point.
int32_t twice_reciprocal(int32_t x) {
  const int32_t sum = x + kOne, half = (sum + (sum >= 0 ? 1 : -1)) / 2;
  int32_t y = constant(1515870810) + product(half, constant(-1010580540));
  for (int i = 0; i < 3; ++i) {
    const int32_t error = (1 << 13) - product(half, y);
    y += saturated(product(y, error) * 4);
  }
  return y;
}

}  // namespace

int16_t fixed_logistic(int16_t x) {
  if (x == 0) return 1 << 14;
  const int32_t size = saturated(x > 0 ? x : -x);
  // Half of it with one digit more before the point: the same digits stand for half as much.
  const int32_t above = saturated(twice_reciprocal(exponential(-size, 3)) * 2);
  return static_cast<int16_t>(x > 0 ? above : kOne - above);
}

int16_t fixed_tanh(int16_t x, int integer_bits) {
  if (x == 0) return 0;
  const int32_t size = saturated(x > 0 ? x : -x);
  const int32_t above = saturated((twice_reciprocal(exponential(-size, integer_bits + 1)) - (1 << 13)) * 4);
  return static_cast<int16_t>(x > 0 ? above : -above);
}

namespace {

// The logistic function at i / 24, with 16 digits. Some entries of LiteRT's table are one more than the nearest.
const std::array<uint32_t, 256>& logistic_entries() {
  static const std::array<uint32_t, 256> entries = [] {
    std::array<uint32_t, 256> all;
    for (size_t i = 0; i < all.size(); ++i)
      all[i] = static_cast<uint32_t>(std::round(65536.0 / (1 + std::exp(-static_cast<double>(i) / 24))));
    constexpr uint8_t kOneMore[] = {4,  8,  12, 14, 15, 16, 17, 19, 20,  21,  22,  25,  27,  28, 29,
                                    30, 31, 33, 34, 35, 37, 39, 40, 41,  43,  44,  45,  46,  49, 50,
                                    54, 62, 63, 64, 66, 82, 86, 93, 100, 103, 112, 116, 135, 255};
    for (const uint8_t i : kOneMore) ++all[i];
    return all;
  }();
  return entries;
}

int32_t scaled_for_table(int16_t x, TableScale scale) {
  return (x * scale.factor + (scale.shift > 0 ? 1 << (scale.shift - 1) : 0)) >> scale.shift;
}

}  // namespace

TableScale table_scale(double scale) {
  double factor = scale * 4096 * 3;
  TableScale result;
  while (factor <= 32767.0 / 2 && result.shift <= 30) {
    ++result.shift;
    factor *= 2;
  }
  result.factor = static_cast<int32_t>(std::min(factor, 65536.0));
  return result;
}

int16_t table_logistic(int16_t x, TableScale scale) {
  const int32_t place = scaled_for_table(x, scale);
  const auto size = static_cast<uint32_t>(std::abs(place)), entry = size >> 9;
  uint32_t result = 0x7FFFU << 10;
  if (entry < 255) {
    const uint32_t from = logistic_entries()[entry];
    result = (from << 9) + (size & 0x1FF) * (logistic_entries()[entry + 1] - from);
  }
  result = place >= 0 ? result + (1 << 9) : (1U << 25) - result + (1 << 9) - 1;
  return static_cast<int16_t>(result >> 10);
}

int16_t table_tanh(int16_t x, TableScale scale) {
  const int32_t place = scaled_for_table(x, scale);
  const auto size = static_cast<uint32_t>(std::abs(place)), entry = size >> 8;
  int32_t result = 0xFFFF << 8;
  if (entry < 255) {
    const uint32_t from = logistic_entries()[entry];
    result = static_cast<int32_t>((from << 8) + (size & 0xFF) * (logistic_entries()[entry + 1] - from));
  }
  result = place >= 0 ? result - (1 << 23) + (1 << 7) : -result + (1 << 23) + (1 << 7) - 1;
  return static_cast<int16_t>(result >> 8);
}

namespace {

template <typename Real>
std::array<int16_t, 513> line_pieces(Real in_scale, int32_t in_zero, Real out_scale, int32_t out_zero,
                                     const std::function<Real(Real)>& f) {
  const Real in_low = in_scale * static_cast<Real>(INT16_MIN - in_zero);
  const Real in_high = in_scale * static_cast<Real>(INT16_MAX - in_zero);
  const Real out_low = out_scale * static_cast<Real>(INT16_MIN - out_zero);
  const Real out_high = out_scale * static_cast<Real>(INT16_MAX - out_zero);
  const Real step = (in_high - in_low) / 512, inverse = 65536 / (out_high - out_low);
  const auto stored = [](Real value) {
    return static_cast<int16_t>(std::clamp(value, static_cast<Real>(INT16_MIN), static_cast<Real>(INT16_MAX)));
  };
  std::array<int16_t, 513> entries;
  for (int i = 0; i < 512; ++i) {
    const auto place = static_cast<Real>(i);
    const Real here = f(in_low + place * step), middle = f(in_low + place * step + step / 2);
    const Real next = f(in_low + (place + 1) * step);
    const Real sample = std::round(here * inverse);
    const Real between = std::round((next * inverse + std::round(here * inverse)) / 2);
    const Real bias = std::round((between - std::round(middle * inverse)) / 2);
    entries[static_cast<size_t>(i)] = stored(sample - bias);
  }
  entries[512] = stored(std::round(f(in_high) * inverse));
  return entries;
}

}  // namespace

WordTable::WordTable(float in_scale, int32_t in_zero, float out_scale, int32_t out_zero,
                     const std::function<float(float)>& f)
    : entries_(line_pieces<float>(in_scale, in_zero, out_scale, out_zero, f)) {}

WordTable WordTable::precise(double in_scale, int32_t in_zero, double out_scale, int32_t out_zero,
                             const std::function<double(double)>& f) {
  WordTable table;
  table.entries_ = line_pieces<double>(in_scale, in_zero, out_scale, out_zero, f);
  return table;
}

int16_t WordTable::operator()(int16_t x) const {
  const auto entry = static_cast<size_t>(256 + (x >> 7));
  const int32_t from = entries_[entry], slope = entries_[entry + 1] - from;
  return static_cast<int16_t>(from + ((slope * (x & 0x7F) + 64) >> 7));
}

namespace {

FixedScale in_16_bits(FixedScale scale) {
  scale.factor = scale.factor >= INT32_MAX - (1 << 15) ? INT16_MAX : (scale.factor + (1 << 15)) >> 16;
  return scale;
}

int32_t shifted_left(int32_t x, int bits) { return saturated(bits >= 16 ? (x > 0) - (x < 0) : x * (1 << bits)); }

}  // namespace

FixedHardSwish::FixedHardSwish(float in_scale, float out_scale) {
  const float fine = (1.0F / 128.0F) * in_scale;
  result_ = in_16_bits(fixed_scale(static_cast<double>(fine / out_scale)));
  gate_ = in_16_bits(fixed_scale(static_cast<double>(fine / (3.0F / 32768.0F))));
}

int32_t FixedHardSwish::operator()(int32_t x) const {
  const int32_t fine = static_cast<int16_t>(x * 128), scaled = product(fine, result_.factor);
  int32_t gate = gate_.shift > 0 ? shifted_left(fine, gate_.shift - 1) : fine;
  gate = product(gate, gate_.factor);
  if (gate_.shift > 0) gate = shifted_left(gate, 1);
  if (gate_.shift < 0) gate = divided(gate, -gate_.shift);
  gate = (gate + (1 << 15)) >> 1;
  const int32_t whole = gate * scaled / (1 << 15);  // towards zero
  return result_.shift <= 0 ? divided(whole, -result_.shift) : static_cast<int16_t>(whole * (1 << result_.shift));
}

namespace {

// Numbers of 32 bits: the upper half of twice the product.
int32_t wide_product(int32_t a, int32_t b) {
  if (a == INT32_MIN && b == INT32_MIN) return INT32_MAX;
  const int64_t whole = int64_t{a} * b;
  return static_cast<int32_t>((whole + (whole >= 0 ? int64_t{1} << 30 : 1 - (int64_t{1} << 30))) / (int64_t{1} << 31));
}
int32_t wide_saturated(int64_t x) { return static_cast<int32_t>(std::clamp<int64_t>(x, INT32_MIN, INT32_MAX)); }
int32_t wide_divided(int32_t x, int bits) {
  if (bits == 0) return x;
  const auto mask = static_cast<int32_t>((int64_t{1} << bits) - 1), rest = x & mask;
  return (x >> bits) + (rest > (mask >> 1) + (x < 0 ? 1 : 0) ? 1 : 0);
}

}  // namespace

FixedScale inverse_root(int32_t x) {
  if (x <= 1) return {INT32_MAX, 0};
  int right = 11;
  while (x >= 1 << 29) {
    x /= 4;
    ++right;
  }
  const int pairs = (std::countl_zero(static_cast<uint32_t>(x)) - 1) / 2 - 1;
  right -= pairs;
  x <<= 2 * pairs;
  // Newton's iterations with three digits before the point, of products that have more.
  const int32_t half = wide_divided(x >> 1, 1), three_halves = (1 << 28) + (1 << 27);
  int32_t y = 1 << 28;
  for (int i = 0; i < 5; ++i) {
    const int32_t cube = wide_saturated(int64_t{wide_product(wide_product(y, y), y)} * 64);
    y = wide_saturated((int64_t{wide_product(three_halves, y)} - wide_product(half, cube)) * 8);
  }
  const int32_t factor = wide_product(y, 1518500250);  // sqrt(1/2)
  if (right < 0) return {wide_saturated(int64_t{factor} << -right), 0};
  return {factor, -right};
}

namespace {

// 1 / (1 + x) of a number from 0 to 1.
int32_t wide_reciprocal(int32_t x) {
  const int64_t sum = int64_t{x} + INT32_MAX;
  const auto half = static_cast<int32_t>((sum + (sum >= 0 ? 1 : -1)) / 2);
  int32_t y = 1515870810 + wide_product(half, -1010580540);  // two digits before the point
  for (int i = 0; i < 3; ++i) {
    const int32_t error = (1 << 29) - wide_product(half, y);
    y += wide_saturated(int64_t{wide_product(y, error)} * 4);
  }
  return wide_saturated(int64_t{y} * 2);
}

}  // namespace

int32_t fixed_exponential(int32_t a) {
  if (a == 0) return INT32_MAX;
  constexpr int32_t kQuarter = 1 << 24;
  const int32_t within = (a & (kQuarter - 1)) - kQuarter, rest = within - a;
  // The polynomial around -1/8.
  const int32_t x = wide_saturated(int64_t{within} * 32) + (1 << 28), square = wide_product(x, x);
  const int32_t cube = wide_product(square, x), fourth = wide_product(square, square);
  const int32_t higher = wide_divided(wide_product(wide_divided(fourth, 2) + cube, 715827883) + square, 1);
  int32_t result = 1895147668 + wide_product(1895147668, x + higher);
  constexpr std::array<int32_t, 7> kPowers = {1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242};
  for (int i = 0; i < 7; ++i)
    if ((rest & (kQuarter << i)) != 0) result = wide_product(result, kPowers[static_cast<size_t>(i)]);
  return result;
}

int32_t fixed_quotient(int32_t a, int32_t b, FixedScale scale) {
  if (b < 0) {
    a = -a;
    b = -b;
  }
  const int leading = std::countl_zero(static_cast<uint32_t>(b));
  const int over_one = 31 - leading;
  const int32_t inverse = wide_reciprocal(static_cast<int32_t>((static_cast<uint32_t>(b) << leading) - (1U << 31)));
  // As many digits as there is room for.
  int room = a >= 0 ? std::countl_zero(static_cast<uint32_t>(a)) - 1 : std::countl_zero(~static_cast<uint32_t>(a)) - 1;
  if (a == 0) room = 31;
  const auto high = static_cast<int32_t>(static_cast<uint32_t>(a) << room);
  const int32_t quotient = wide_product(high, inverse);
  const int shift = scale.shift - over_one - room;
  const int32_t scaled = wide_product(quotient, scale.factor);
  return shift >= 0 ? scaled : shift < -31 ? 0 : wide_divided(scaled, -shift);
}

}  // namespace tessera::inline tflite_import
