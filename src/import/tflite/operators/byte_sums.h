// Sums of two quantised values of 8 bits, as LiteRT's kernels compute them in fixed point.
#pragma once

#include "import/tflite/fixed_point.h"

namespace tessera::inline tflite_import {

// ((a - a_zero) << left) * a.scale + or - the same of b, times the result's scale.
struct ByteSum {
  FixedScale a, b, result;
  int64_t a_zero = 0, b_zero = 0;
  int left = 20;
  bool subtracts = false;
};

// In floats where that gives the same for all pairs of bytes, which is tried out; else, and of 16 bits, in integers.
ValueId byte_sum(Emitter& c, ValueId a, ValueId b, const ByteSum& sum, const StoredRange& range, DType dtype);

}  // namespace tessera::inline tflite_import
