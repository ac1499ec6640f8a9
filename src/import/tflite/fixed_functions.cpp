#include "import/tflite/fixed_functions.h"

#include <algorithm>
#include <array>

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

}  // namespace tessera::inline tflite_import
