// Sums of products of two operands, in floats, in integers, and of floats with integer weights: what convolutions,
// dense layers and products of matrices share.
#pragma once

#include <functional>

#include "import/tflite/operators/handlers.h"

namespace tessera::inline tflite_import {

struct Product {
  std::function<ValueId(ValueId x, ValueId w)> multiply;  // of values in the layout of the result, outputs along axis
  int axis = 1, weights_axis = 0;                         // of outputs
  int64_t outputs = 0;
  int8_t activation = 0;
  FixedRounding rounding = FixedRounding::kTwice;
  bool asymmetric = true;      // of floats that are quantised while running
  int x = 0, w = 1, bias = 2;  // the operands' places
  int8_t sum_type = 0;         // of 16 bits: a TensorType, as the options give it; 0: what the bias has
  bool wide_sums = false;      // of 16 bits: 64 bits, whatever the bias has
};

// x and w in the layout that `multiply` wants; what stays along the first dimension is quantised by itself.
ValueId product(OperatorContext& c, const Product& p, ValueId x, ValueId w);

// Sums in i64 of less than 47 bits, scaled as LiteRT scales them: by factors of 31 bits in dense layers (kOnce), of 15
// else, rounded once, halves upwards.
ValueId requantize_wide(Emitter& c, ValueId x, const std::vector<FixedScale>& scales, int axis, FixedRounding rounding,
                        const StoredRange& range, DType dtype);

// What a transposed convolution of an image [N,C,...] makes of the shape [N,...,C]: each element adds its multiple of
// the weights to the places from place * stride - pad on.
struct Transposed {
  std::vector<int64_t> strides, extents, shape, pads;
};
std::vector<int64_t> transposed_pads(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides,
                                     const std::vector<int64_t>& extents, int8_t padding);
// w: [C,O,...]
ValueId transposed_convolution(OperatorContext& c, const Transposed& t, ValueId x, ValueId w);

}  // namespace tessera::inline tflite_import
