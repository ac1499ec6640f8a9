// The handlers of operators, by family, and what they share.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "import/tflite/fixed_point.h"
#include "import/tflite/operator_context.h"
#include "import/tflite/operator_table.h"

namespace tessera::inline tflite_import {

std::span<const TfliteOperator> arithmetic_operators();
std::span<const TfliteOperator> contraction_operators();
std::span<const TfliteOperator> data_size_operators();
std::span<const TfliteOperator> flow_operators();
std::span<const TfliteOperator> fourier_operators();
std::span<const TfliteOperator> indexing_operators();
std::span<const TfliteOperator> normalization_operators();
std::span<const TfliteOperator> pooling_operators();
std::span<const TfliteOperator> quantization_operators();
std::span<const TfliteOperator> recurrent_operators();
void import_integer_lstm(OperatorContext& c);
std::span<const TfliteOperator> reduction_operators();
std::span<const TfliteOperator> resizing_operators();
std::span<const TfliteOperator> shape_operators();
std::span<const TfliteOperator> slicing_operators();
std::span<const TfliteOperator> unary_operators();
CustomHandler detection_operator();
CustomHandler mediapipe_operator(std::string_view name);  // null: it is none

// LOG_SOFTMAX of i8.
ValueId log_softmax_of_bytes(OperatorContext& c);

// ---- activations ----
// Of a result in floats or integers that are not quantised.
ValueId activated(Emitter& c, ValueId x, int8_t activation);
// What a quantised result may be after the activation.
StoredRange stored_range(OperatorContext& c, const TfliteTensor& result, int8_t activation = 0);

// ---- windows, of images as they are stored: [N,H,W,C] ----
struct SlidingWindow {
  std::vector<int64_t> extents, strides, dilations, pads_begin, pads_end;
};
// UserError unless the numbers are in range and the result has elements along each dimension.
SlidingWindow sliding_window(OperatorContext& c, ValueId image, int8_t padding, std::vector<int64_t> extents,
                             std::vector<int64_t> strides, std::vector<int64_t> dilations);
ValueId channels_first(OperatorContext& c, ValueId image);
ValueId channels_last(OperatorContext& c, ValueId image);

// ---- quantised values ----
// x in i32 less its zero point.
ValueId centred(OperatorContext& c, int i);
ValueId centred(Emitter& c, ValueId x, int64_t zero);
// (x - zero point) * scale in f32.
ValueId real(OperatorContext& c, int i);
// A function of single bytes: the result for each of the 256 is computed here.
ValueId of_each_byte(OperatorContext& c, ValueId x, DType result, const std::function<int64_t(int64_t stored)>& f);
// The same of numbers of 16 bits; x is i16, or i32 within them.
ValueId of_each_word(Emitter& c, ValueId x, DType result, const std::function<int64_t(int64_t stored)>& f);
// A function of two bytes of one type, which are broadcast: a table of 65536 results.
ValueId of_each_pair(OperatorContext& c, ValueId a, ValueId b, DType result,
                     const std::function<int64_t(int64_t a, int64_t b)>& f);
// x kept within the range, in its own type.
ValueId kept_within(Emitter& c, ValueId x, int64_t low, int64_t high);
// Integers with scales and zero points.
bool has_scale(OperatorContext& c, int i = 0);
// x as a result of other parameters than its own.
ValueId rescaled(OperatorContext& c, ValueId x, const TfliteTensor& from, const TfliteTensor& to,
                 const StoredRange& range);
// Integers of a scale and a zero point each, that differ: refused.
void require_same_quantization(OperatorContext& c, const TfliteTensor& a, const TfliteTensor& b);

// f32, quantised for a product in integers as LiteRT does it while running: along all dimensions but the first.
struct DynamicallyQuantized {
  ValueId values = -1;  // i8
  ValueId scale = -1;   // f32, [N,1,...]
  ValueId zero = -1;    // i32, [N,1,...]; -1: symmetric
};
DynamicallyQuantized dynamically_quantized(Emitter& c, ValueId x, bool asymmetric);

}  // namespace tessera::inline tflite_import
