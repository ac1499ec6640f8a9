// The logistic function and tanh of 16-bit fixed-point numbers as LiteRT's integer LSTM computes them: polynomials and
// Newton's division in fixed point, whose roundings are part of the result.
#pragma once

#include <cstdint>

namespace tessera::inline tflite_import {

// Of x / 2^12; the result is 2^15 times the function's value.
int16_t fixed_logistic(int16_t x);
// Of x * 2^integer_bits / 2^15; the same.
int16_t fixed_tanh(int16_t x, int integer_bits);

}  // namespace tessera::inline tflite_import
