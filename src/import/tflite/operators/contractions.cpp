// Convolutions and dense layers, in floats, in integers, and of floats with integer weights.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "import/common/limits.h"
#include "import/tflite/operators/products.h"

namespace tessera::inline tflite_import {
namespace {

using Ints = std::vector<int64_t>;

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
  p.sum_type = options.quantized_bias_type();
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
  p.wide_sums = true;
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
  p.sum_type = options.quantized_bias_type();
  p.multiply = [&](ValueId a, ValueId b) { return c.op("matmul", {a, b}, {{"transpose_b", true}}); };
  c.out(0, c.reshape(product(c, p, c.reshape(x, {elements / w_dims[1], w_dims[1]}), w), shape));
}

// Operands: the result's shape, weights [O,H,W,I], the image, maybe a bias.
void import_transpose_conv(OperatorContext& c) {
  c.require_inputs(3, 4);
  const auto& options = c.options<tflite::TransposeConvOptions>();
  const ValueId w = c.in(1), x = c.in(2);
  Transposed t;
  t.shape = c.const_ints(0, "the result's shape");
  if (c.rank(x) != 4 || c.rank(w) != 4 || t.shape.size() != 4)
    c.malformed(fmt::format("operands of types {} and {} for [{}]", c.type(x).to_string(), c.type(w).to_string(),
                            fmt::join(t.shape, ",")),
                "an image [N,H,W,C] and weights [O,H,W,I]");
  const Ints w_dims = c.dims(w), x_dims = c.dims(x);
  t.strides = {options.stride_h(), options.stride_w()};
  t.extents = {w_dims[1], w_dims[2]};
  const bool fits = w_dims[3] == x_dims[3] && t.shape[3] == w_dims[0] && t.shape[0] == x_dims[0] &&
                    std::all_of(t.shape.begin(), t.shape.end(), [](int64_t d) { return d >= 1; }) &&
                    checked_num_elements(t.shape) && c.num_elements(x) > 0 && c.num_elements(w) > 0 &&
                    std::all_of(t.strides.begin(), t.strides.end(), [](int64_t s) { return s >= 1; });
  if (!fits)
    c.malformed(fmt::format("strides {} with operands of types {} and {} for [{}]", fmt::join(t.strides, "x"),
                            c.type(x).to_string(), c.type(w).to_string(), fmt::join(t.shape, ",")),
                "channels that agree, and strides of at least 1");
  t.pads = transposed_pads(t.shape, t.strides, t.extents, options.padding());
  Product p;
  p.x = 2;
  p.bias = 3;
  p.outputs = w_dims[0];
  p.weights_axis = 1;
  p.activation = options.fused_activation_function();
  p.sum_type = options.quantized_bias_type();
  p.multiply = [&](ValueId a, ValueId b) { return transposed_convolution(c, t, a, b); };
  c.out(0, channels_last(c, product(c, p, channels_first(c, x), c.transpose(w, {3, 0, 1, 2}))));
}

// Weights [D,H,W,I,O].
void import_conv_3d(OperatorContext& c) {
  const bool transposed = c.code() == tflite::BuiltinOperator::CONV_3D_TRANSPOSE;
  c.require_inputs(transposed ? 3 : 2, transposed ? 4 : 3);
  const auto& options = c.options<tflite::Conv3DOptions>();
  Product p;
  p.x = transposed ? 2 : 0;
  p.bias = transposed ? 3 : 2;
  p.activation = options.fused_activation_function();
  const ValueId x = c.in(p.x), w = c.in(1);
  if (c.rank(x) != 5 || c.rank(w) != 5)
    c.malformed(fmt::format("operands of types {} and {}", c.type(x).to_string(), c.type(w).to_string()),
                "an image [N,D,H,W,C] and weights [D,H,W,I,O]");
  const Ints w_dims = c.dims(w), x_dims = c.dims(x);
  const Ints extents(w_dims.begin(), w_dims.begin() + 3);
  const Ints strides = {options.stride_d(), options.stride_h(), options.stride_w()};
  if (transposed) {
    Transposed t{strides, extents, c.const_ints(0, "the result's shape"), {}};
    const bool dilated =
        options.dilation_d_factor() != 1 || options.dilation_h_factor() != 1 || options.dilation_w_factor() != 1;
    if (dilated) c.unsupported("dilations");
    const bool fits = t.shape.size() == 5 && w_dims[4] == x_dims[4] && t.shape[4] == w_dims[3] &&
                      t.shape[0] == x_dims[0] &&
                      std::all_of(t.shape.begin(), t.shape.end(), [](auto d) { return d >= 1; }) &&
                      checked_num_elements(t.shape) && c.num_elements(x) > 0 && c.num_elements(w) > 0 &&
                      std::all_of(strides.begin(), strides.end(), [](int64_t s) { return s >= 1; });
    if (!fits)
      c.malformed(fmt::format("strides {} with operands of types {} and {} for [{}]", fmt::join(strides, "x"),
                              c.type(x).to_string(), c.type(w).to_string(), fmt::join(t.shape, ",")),
                  "channels that agree, and strides of at least 1");
    t.pads = transposed_pads(t.shape, strides, extents, options.padding());
    p.outputs = w_dims[3];
    p.weights_axis = 1;
    p.multiply = [&](ValueId a, ValueId b) { return transposed_convolution(c, t, a, b); };
    return c.out(0, channels_last(c, product(c, p, channels_first(c, x), c.transpose(w, {4, 3, 0, 1, 2}))));
  }
  if (w_dims[3] != x_dims[4] || w_dims[3] < 1 || w_dims[4] < 1)
    c.malformed(fmt::format("weights of type {} for {}", c.type(w).to_string(), c.type(x).to_string()),
                "weights [D,H,W,I,O] for as many channels");
  const SlidingWindow window =
      sliding_window(c, x, options.padding(), extents, strides,
                     {options.dilation_d_factor(), options.dilation_h_factor(), options.dilation_w_factor()});
  p.outputs = w_dims[4];
  p.multiply = [&](ValueId a, ValueId b) { return convolution(c, window, a, b, 1); };
  c.out(0, channels_last(c, product(c, p, channels_first(c, x), c.transpose(w, {4, 3, 0, 1, 2}))));
}

// Products of matrices, the last two dimensions; those before are broadcast.
void import_batch_matmul(OperatorContext& c) {
  c.require_inputs(2, 2);
  const auto& options = c.options<tflite::BatchMatMulOptions>();
  const auto turned = [&](ValueId v, bool turns) {
    Ints perm;
    for (int d = 0; d < c.rank(v); ++d) perm.push_back(d);
    if (turns) std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
    return turns ? c.transpose(v, perm) : v;
  };
  if (c.rank(c.in(0)) < 2 || c.rank(c.in(1)) < 2)
    c.malformed(fmt::format("operands of types {} and {}", c.type(c.in(0)).to_string(), c.type(c.in(1)).to_string()),
                "matrices");
  const ValueId a = turned(c.in(0), options.adj_x()), b = turned(c.in(1), options.adj_y());
  const Ints a_dims = c.dims(a), b_dims = c.dims(b);
  const int64_t depth = a_dims.back();
  if (b_dims[b_dims.size() - 2] != depth)
    c.malformed(fmt::format("{} times {}", c.type(a).to_string(), c.type(b).to_string()), "rows as long as columns");
  const TfliteTensor &x = c.tensor(0), &w = c.tensor(1), &y = c.output(0);
  const auto product_of = [&](ValueId l, ValueId r) { return c.matrix_product(l, r); };
  if (x.dtype == DType::kF32 && w.dtype == DType::kF32) return c.out(0, product_of(a, b));
  if (x.dtype == DType::kF32 && w.dtype == DType::kI8) {
    // Each row is quantised by itself.
    Ints rows = {1, depth};
    for (size_t d = 0; d + 1 < a_dims.size(); ++d) rows[0] *= a_dims[d];
    const DynamicallyQuantized q = dynamically_quantized(c, c.reshape(a, rows), options.asymmetric_quantize_inputs());
    ValueId wide = c.cast(q.values, DType::kI32);
    if (q.zero >= 0) wide = c.sub(wide, q.zero);
    Ints shape = a_dims;
    shape.back() = 1;
    const ValueId sum = product_of(c.reshape(wide, a_dims), c.cast(b, DType::kI32));
    const ValueId scale = c.mul(c.reshape(q.scale, shape), c.scalar(DType::kF32, static_cast<double>(c.scale(w))));
    return c.out(0, c.mul(c.cast(sum, DType::kF32), scale));
  }
  const bool words = x.dtype == DType::kI16;
  if ((x.dtype != DType::kI8 && !words) || (w.dtype != x.dtype && !(words && w.dtype == DType::kI8)))
    c.unsupported(fmt::format("values of type {} with {}", dtype_name(x.dtype), dtype_name(w.dtype)));
  if (words) {
    for (const TfliteTensor* tensor : {&x, &w, &y})
      if (c.zero_point(*tensor) != 0) c.malformed("16 bits with a zero point", "0");
    const ValueId sum = product_of(c.cast(a, DType::kI64), c.cast(b, DType::kI64));
    const double scale = static_cast<double>(c.scale(x) * c.scale(w)) / static_cast<double>(c.scale(y));
    return c.out(0,
                 requantize_wide(c, sum, {fixed_scale(scale)}, 0, FixedRounding::kTwice, stored_range(c, y), y.dtype));
  }
  const bool plain = y.dtype == DType::kI32;
  const auto zero = [&](const TfliteTensor& tensor) { return tensor.quantization.empty() ? 0 : c.zero_point(tensor); };
  const ValueId sum = product_of(centred(c, a, zero(x)), centred(c, b, zero(w)));
  if (plain) return c.out(0, sum);
  const double scale = static_cast<double>(c.scale(x) * c.scale(w)) / static_cast<double>(c.scale(y));
  c.out(0, requantize(c, sum, {fixed_scale(scale)}, 0, FixedRounding::kTwice, stored_range(c, y), y.dtype));
}

}  // namespace

std::span<const TfliteOperator> contraction_operators() {
  static constexpr TfliteOperator operators[] = {
      {tflite::BuiltinOperator::BATCH_MATMUL, import_batch_matmul},
      {tflite::BuiltinOperator::CONV_2D, import_conv},
      {tflite::BuiltinOperator::CONV_3D, import_conv_3d},
      {tflite::BuiltinOperator::CONV_3D_TRANSPOSE, import_conv_3d},
      {tflite::BuiltinOperator::DEPTHWISE_CONV_2D, import_depthwise_conv},
      {tflite::BuiltinOperator::FULLY_CONNECTED, import_fully_connected},
      {tflite::BuiltinOperator::TRANSPOSE_CONV, import_transpose_conv},
  };
  return operators;
}

}  // namespace tessera::inline tflite_import
