// Functions of fixed-point numbers as LiteRT's kernels compute them: polynomials, Newton's iterations and tables whose
// roundings are part of the result.
#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include "import/tflite/fixed_point.h"

namespace tessera::inline tflite_import {

// ---- the logistic function and tanh of 16 bits ----
// Of x / 2^12; the result is 2^15 times the function's value.
int16_t fixed_logistic(int16_t x);
// Of x * 2^integer_bits / 2^15; the same.
int16_t fixed_tanh(int16_t x, int integer_bits);

// Of x * factor / 2^shift in units of 2^-12 / 3, interpolated between the entries of a table.
struct TableScale {
  int32_t factor = 0;
  int shift = 0;
};
TableScale table_scale(double scale);
int16_t table_logistic(int16_t x, TableScale scale);
int16_t table_tanh(int16_t x, TableScale scale);

// ---- any function of 16 bits, by 512 pieces of straight lines ----
class WordTable {
 public:
  WordTable(float in_scale, int32_t in_zero, float out_scale, int32_t out_zero, const std::function<float(float)>& f);
  // Made in f64.
  static WordTable precise(double in_scale, int32_t in_zero, double out_scale, int32_t out_zero,
                           const std::function<double(double)>& f);
  int16_t operator()(int16_t x) const;

 private:
  WordTable() = default;

  std::array<int16_t, 513> entries_;
};

// ---- hard swish of bytes ----
// x less its zero point; the result before the zero point is added.
class FixedHardSwish {
 public:
  FixedHardSwish(float in_scale, float out_scale);
  int32_t operator()(int32_t x) const;

 private:
  FixedScale result_, gate_;
};

// ---- 1 / sqrt(x) ----
// For x of at least 1: the factor and the shift to the right of the reciprocal root.
FixedScale inverse_root(int32_t x);

// ---- exp(x) ----
// Of x / 2^26, not above 0; the result is 2^31 times the function's value.
int32_t fixed_exponential(int32_t x);

// ---- quotients ----
// a / b of bytes less their zero points, times the scale; b is not 0.
int32_t fixed_quotient(int32_t a, int32_t b, FixedScale scale);

}  // namespace tessera::inline tflite_import
