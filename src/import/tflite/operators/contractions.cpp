// Convolutions and dense layers, in floats, in integers, and of floats with integer weights.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "import/tflite/operators/handlers.h"

namespace tessera::inline tflite_import {
namespace {

using Ints = std::vector<int64_t>;

// The kinds of products that operand types make.
enum class ProductKind : uint8_t {
  kReal,
  kInteger,  // quantised values and weights
  kHybrid,   // floats, quantised while running, and integer weights
};

ProductKind product_kind(OperatorContext& c, const TfliteTensor& x, const TfliteTensor& w) {
  const bool narrow = w.dtype == DType::kI8 || w.dtype == DType::kU8 || w.dtype == DType::kI4 || w.dtype == DType::kI2;
  if (x.dtype == DType::kF32 && w.dtype == DType::kF32) return ProductKind::kReal;
  if (w.quantization.is_blockwise) c.unsupported(fmt::format("weights '{}' with a scale for each block", w.name));
  if (x.dtype == DType::kF32 && narrow) return ProductKind::kHybrid;
  if (x.dtype == DType::kU8 && w.dtype == DType::kU8) return ProductKind::kInteger;
  if (x.dtype == DType::kI8 && narrow && w.dtype != DType::kU8) return ProductKind::kInteger;
  if (x.dtype == DType::kI16 && narrow && w.dtype != DType::kU8) return ProductKind::kInteger;
  c.unsupported(fmt::format("values of type {} with weights of type {}", dtype_name(x.dtype), dtype_name(w.dtype)));
}

// The factor of each output's sum, as LiteRT computes it: in f32 for u8, in f64 else.
std::vector<FixedScale> output_scales(OperatorContext& c, const TfliteTensor& x, const TfliteTensor& w,
                                      const TfliteTensor& y) {
  const float x_scale = c.scale(x), y_scale = c.scale(y);
  std::vector<FixedScale> result;
  if (w.quantization.scales.empty()) c.malformed(fmt::format("weights '{}' have no scale", w.name), "one or more");
  for (const float scale : w.quantization.scales) {
    const double product = x.dtype == DType::kU8 ? static_cast<double>(x_scale * scale)
                                                 : static_cast<double>(x_scale) * static_cast<double>(scale);
    result.push_back(fixed_scale(product / static_cast<double>(y_scale)));
  }
  return result;
}

// Weights in i32 less their zero points: `axis` is that of outputs.
ValueId centred_weights(OperatorContext& c, ValueId w, const TfliteTensor& info, int axis) {
  const Ints& zeros = info.quantization.zero_points;
  const bool same = std::all_of(zeros.begin(), zeros.end(), [&](int64_t z) { return z == zeros[0]; });
  if (zeros.empty()) return c.cast(w, DType::kI32);
  for (const int64_t zero : zeros)
    if (zero < -128 || zero > 255)
      c.malformed(fmt::format("weights '{}' have the zero point {}", info.name, zero), "a byte");
  if (same) return centred(c, w, zeros[0]);
  Ints dims(static_cast<size_t>(c.rank(w)), 1);
  dims[static_cast<size_t>(axis)] = static_cast<int64_t>(zeros.size());
  Tensor tensor(DType::kI32, dims);
  for (size_t i = 0; i < zeros.size(); ++i) tensor.set_int(static_cast<int64_t>(i), zeros[i]);
  return c.sub(c.cast(w, DType::kI32), c.constant_value(std::move(tensor)));
}

// A list with one number for each output, or one for all: what it is as an operand with outputs along `axis` of `rank`.
ValueId per_output(OperatorContext& c, const std::vector<float>& numbers, int rank, int axis) {
  Ints dims;
  if (numbers.size() != 1) {
    dims.assign(static_cast<size_t>(rank), 1);
    dims[static_cast<size_t>(axis)] = static_cast<int64_t>(numbers.size());
  }
  Tensor tensor(DType::kF32, dims);
  std::copy(numbers.begin(), numbers.end(), tensor.as_mutable<float>().begin());
  return c.constant_value(std::move(tensor));
}

// The bias, operand 2, as an operand with outputs along `axis` of `rank`; -1 when there is none.
ValueId bias_along(OperatorContext& c, int i, int64_t outputs, int rank, int axis) {
  if (!c.has(i)) return -1;
  const ValueId bias = c.in(i);
  if (c.num_elements(bias) != outputs)
    c.malformed(fmt::format("a bias of type {}", c.type(bias).to_string()), fmt::format("{} elements", outputs));
  Ints dims(static_cast<size_t>(rank), 1);
  dims[static_cast<size_t>(axis)] = outputs;
  return c.reshape(bias, dims);
}

struct Product {
  std::function<ValueId(ValueId x, ValueId w)> multiply;  // of values in the layout of the result, outputs along axis
  int axis = 1, weights_axis = 0;                         // of outputs
  int64_t outputs = 0;
  int8_t activation = 0;
  FixedRounding rounding = FixedRounding::kTwice;
  bool asymmetric = true;  // of floats that are quantised while running
};

// x and w in the layout that `multiply` wants; `apart`: what stays along the first dimension is quantised by itself.
ValueId product(OperatorContext& c, const Product& p, ValueId x, ValueId w) {
  const TfliteTensor &x_info = c.tensor(0), &w_info = c.tensor(1), &y_info = c.output(0);
  const size_t scales = w_info.quantization.scales.size();
  const ProductKind kind = product_kind(c, x_info, w_info);
  if (kind != ProductKind::kReal && scales > 1 && static_cast<int64_t>(scales) != p.outputs)
    c.malformed(fmt::format("weights '{}' have {} scales for {} outputs", w_info.name, scales, p.outputs),
                "one, or one for each output");
  if (kind == ProductKind::kReal) {
    ValueId y = p.multiply(x, w);
    const ValueId bias = bias_along(c, 2, p.outputs, c.rank(y), p.axis);
    if (bias >= 0) y = c.add(y, bias);
    return activated(c, y, p.activation);
  }
  if (kind == ProductKind::kHybrid) {
    if (w_info.dtype == DType::kU8) c.unsupported("values of type f32 with weights of type u8");
    const DynamicallyQuantized q = dynamically_quantized(c, x, p.asymmetric);
    ValueId wide = c.cast(q.values, DType::kI32);
    if (q.zero >= 0) wide = c.sub(wide, q.zero);
    const ValueId sum = p.multiply(wide, centred_weights(c, w, w_info, p.weights_axis));
    if (w_info.quantization.empty()) c.malformed(fmt::format("weights '{}' have no scale", w_info.name), "one or more");
    ValueId y = c.mul(c.cast(sum, DType::kF32), per_output(c, w_info.quantization.scales, c.rank(sum), p.axis));
    y = c.mul(y, q.scale);
    const ValueId bias = bias_along(c, 2, p.outputs, c.rank(y), p.axis);
    if (bias >= 0) y = c.add(y, bias);
    return activated(c, y, p.activation);
  }
  if (y_info.dtype != x_info.dtype)
    c.malformed(fmt::format("a result of type {} of {}", dtype_name(y_info.dtype), dtype_name(x_info.dtype)),
                "one type");
  if (x_info.dtype == DType::kI16) c.unsupported("values of 16 bits");
  const StoredRange range = stored_range(c, y_info, p.activation);
  ValueId y = p.multiply(centred(c, x, c.zero_point(x_info)), centred_weights(c, w, w_info, p.weights_axis));
  const ValueId bias = bias_along(c, 2, p.outputs, c.rank(y), p.axis);
  if (bias >= 0) {
    if (c.dtype(bias) != DType::kI32) c.malformed(fmt::format("a bias of type {}", c.type(bias).to_string()), "i32");
    y = c.add(y, bias);
  }
  return requantize(c, y, output_scales(c, x_info, w_info, y_info), p.axis, p.rounding, range, y_info.dtype);
}

ValueId convolution(OperatorContext& c, const SlidingWindow& window, ValueId x, ValueId w, int64_t groups) {
  return c.op("conv", {x, w},
              {{"strides", window.strides},
               {"pads_begin", window.pads_begin},
               {"pads_end", window.pads_end},
               {"dilations", window.dilations},
               {"input_dilations", Ints(window.strides.size(), 1)},
               {"groups", groups}});
}

void import_conv(OperatorContext& c) {
  c.require_inputs(2, 3);
  const auto& options = c.options<tflite::Conv2DOptions>();
  const ValueId x = c.in(0), w = c.in(1);
  if (c.rank(x) != 4 || c.rank(w) != 4)
    c.malformed(fmt::format("operands of types {} and {}", c.type(x).to_string(), c.type(w).to_string()),
                "an image [N,H,W,C] and weights [O,H,W,I]");
  const Ints w_dims = c.dims(w), x_dims = c.dims(x);
  if (w_dims[3] < 1 || x_dims[3] % w_dims[3] != 0 || x_dims[3] == 0 || w_dims[0] % (x_dims[3] / w_dims[3]) != 0)
    c.malformed(fmt::format("weights of type {} for {}", c.type(w).to_string(), c.type(x).to_string()),
                "channels that groups divide");
  const int64_t groups = x_dims[3] / w_dims[3];
  const SlidingWindow window =
      sliding_window(c, x, options.padding(), {w_dims[1], w_dims[2]}, {options.stride_h(), options.stride_w()},
                     {options.dilation_h_factor(), options.dilation_w_factor()});
  Product p;
  p.outputs = w_dims[0];
  p.activation = options.fused_activation_function();
  // Several scales that are equal count as one.
  const std::vector<float>& scales = c.tensor(1).quantization.scales;
  p.asymmetric = std::any_of(scales.begin(), scales.end(), [&](float scale) { return scale != scales[0]; });
  p.multiply = [&](ValueId a, ValueId b) { return convolution(c, window, a, b, groups); };
  c.out(0, channels_last(c, product(c, p, channels_first(c, x), c.transpose(w, {0, 3, 1, 2}))));
}

void import_depthwise_conv(OperatorContext& c) {
  c.require_inputs(2, 3);
  const auto& options = c.options<tflite::DepthwiseConv2DOptions>();
  const ValueId x = c.in(0), w = c.in(1);
  if (c.rank(x) != 4 || c.rank(w) != 4)
    c.malformed(fmt::format("operands of types {} and {}", c.type(x).to_string(), c.type(w).to_string()),
                "an image [N,H,W,C] and weights [1,H,W,O]");
  const Ints w_dims = c.dims(w), x_dims = c.dims(x);
  if (w_dims[0] != 1 || x_dims[3] < 1 || w_dims[3] % x_dims[3] != 0 || w_dims[3] == 0)
    c.malformed(fmt::format("weights of type {} for {}", c.type(w).to_string(), c.type(x).to_string()),
                "weights [1,H,W,O] with a multiple of the channels");
  const SlidingWindow window =
      sliding_window(c, x, options.padding(), {w_dims[1], w_dims[2]}, {options.stride_h(), options.stride_w()},
                     {options.dilation_h_factor(), options.dilation_w_factor()});
  Product p;
  p.outputs = w_dims[3];
  p.activation = options.fused_activation_function();
  p.multiply = [&](ValueId a, ValueId b) { return convolution(c, window, a, b, x_dims[3]); };
  c.out(0, channels_last(c, product(c, p, channels_first(c, x), c.transpose(w, {3, 0, 1, 2}))));
}

void import_fully_connected(OperatorContext& c) {
  c.require_inputs(2, 3);
  const auto& options = c.options<tflite::FullyConnectedOptions>();
  if (options.weights_format() != 0) c.unsupported("weights in an order for one kind of processor");
  const ValueId x = c.in(0), w = c.in(1);
  if (c.rank(w) != 2) c.malformed(fmt::format("weights of type {}", c.type(w).to_string()), "a matrix");
  const Ints w_dims = c.dims(w), x_dims = c.dims(x);
  const int64_t elements = c.num_elements(x);
  if (w_dims[1] < 1 || elements % w_dims[1] != 0)
    c.malformed(fmt::format("weights of type {} for {}", c.type(w).to_string(), c.type(x).to_string()),
                "rows as long as what they are multiplied with");
  Ints shape = {elements / w_dims[1], w_dims[0]};
  if (options.keep_num_dims()) {
    if (x_dims.empty() || x_dims.back() != w_dims[1])
      c.malformed(fmt::format("weights of type {} for {}", c.type(w).to_string(), c.type(x).to_string()),
                  "rows as long as the last dimension");
    shape = x_dims;
    shape.back() = w_dims[0];
  }
  Product p;
  p.axis = 1;
  p.outputs = w_dims[0];
  p.activation = options.fused_activation_function();
  p.rounding = FixedRounding::kOnce;
  p.asymmetric = options.asymmetric_quantize_inputs();
  p.multiply = [&](ValueId a, ValueId b) { return c.op("matmul", {a, b}, {{"transpose_b", true}}); };
  c.out(0, c.reshape(product(c, p, c.reshape(x, {elements / w_dims[1], w_dims[1]}), w), shape));
}

}  // namespace

std::span<const TfliteOperator> contraction_operators() {
  static constexpr TfliteOperator operators[] = {
      {tflite::BuiltinOperator::CONV_2D, import_conv},
      {tflite::BuiltinOperator::DEPTHWISE_CONV_2D, import_depthwise_conv},
      {tflite::BuiltinOperator::FULLY_CONNECTED, import_fully_connected},
  };
  return operators;
}

}  // namespace tessera::inline tflite_import
