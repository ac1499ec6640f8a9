#include "import/tflite/operators/products.h"

#include <fmt/format.h>

#include <algorithm>

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
std::vector<FixedScale> output_scales(OperatorContext& c, const Product& p) {
  const TfliteTensor &x = c.tensor(p.x), &w = c.tensor(p.w), &y = c.output(0);
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

// The bias as an operand with outputs along `axis` of `rank`; -1 when there is none.
ValueId bias_along(OperatorContext& c, int i, int64_t outputs, int rank, int axis) {
  if (!c.has(i)) return -1;
  const ValueId bias = c.in(i);
  if (c.num_elements(bias) != outputs)
    c.malformed(fmt::format("a bias of type {}", c.type(bias).to_string()), fmt::format("{} elements", outputs));
  Ints dims(static_cast<size_t>(rank), 1);
  dims[static_cast<size_t>(axis)] = outputs;
  return c.reshape(bias, dims);
}

// Whether sums of products of 16 bits with these weights stay within 32 bits.
bool fits_32_bits(OperatorContext& c, ValueId w, const TfliteTensor& info, const Product& p) {
  const auto known = c.constant(w);
  if (!known || known->num_elements() == 0 || p.outputs == 0) return false;
  const Ints& zeros = info.quantization.zero_points;
  if (std::any_of(zeros.begin(), zeros.end(), [](int64_t z) { return z != 0; })) return false;
  // Of all outputs together at most; of each exactly where it is the first dimension.
  const bool by_row = p.weights_axis == 0 && known->dims()[0] == p.outputs;
  const int64_t rows = by_row ? p.outputs : 1, each = known->num_elements() / rows;
  for (int64_t row = 0; row < rows; ++row) {
    int64_t sum = 0;
    for (int64_t i = 0; i < each; ++i) sum += std::abs(known->get_int(row * each + i));
    if (sum > (int64_t{1} << 16) - 1) return false;
  }
  return true;
}

// How far the sums of each output's products get, with a bias where there is one: one entry for each scale. Empty where
// that is not known, or leaves 32 bits.
std::vector<SumBounds> bounds_of_sums(OperatorContext& c, const Product& p, ValueId w, size_t scales) {
  const TfliteTensor &x_info = c.tensor(p.x), &w_info = c.tensor(p.w);
  const auto weights = c.constant(w);
  if (!weights || p.outputs == 0) return {};
  const Ints& dims = weights->dims();
  const auto axis = static_cast<size_t>(p.weights_axis);
  if (axis >= dims.size() || dims[axis] != p.outputs) return {};
  std::optional<Tensor> bias;
  if (c.has(p.bias) && !(bias = c.constant(c.in(p.bias)))) return {};
  const int bits = dtype_bits(x_info.dtype);
  const int64_t zero = c.zero_point(x_info);
  const int64_t least = (is_signed_int(x_info.dtype) ? -(int64_t{1} << (bits - 1)) : 0) - zero;
  const int64_t most = least + (int64_t{1} << bits) - 1;
  int64_t inner = 1;
  for (size_t d = axis + 1; d < dims.size(); ++d) inner *= dims[d];
  std::vector<SumBounds> each(static_cast<size_t>(p.outputs), SumBounds{0, 0});
  if (bias)
    for (size_t o = 0; o < each.size(); ++o) each[o].low = each[o].high = bias->get_int(static_cast<int64_t>(o));
  const Ints& zeros = w_info.quantization.zero_points;
  for (int64_t i = 0; i < weights->num_elements(); ++i) {
    const auto o = static_cast<size_t>(i / inner % p.outputs);
    const int64_t weight = weights->get_int(i) - (zeros.empty() ? 0 : zeros[zeros.size() == 1 ? 0 : o]);
    each[o].low += std::min(weight * least, weight * most);
    each[o].high += std::max(weight * least, weight * most);
  }
  for (const SumBounds& bounds : each)
    if (bounds.low < INT32_MIN || bounds.high > INT32_MAX) return {};
  if (scales == each.size()) return each;
  SumBounds all = each[0];
  for (const SumBounds& bounds : each) all = {std::min(all.low, bounds.low), std::max(all.high, bounds.high)};
  return {all};
}

ValueId product_of_words(OperatorContext& c, const Product& p, ValueId x, ValueId w) {
  const TfliteTensor &x_info = c.tensor(p.x), &w_info = c.tensor(p.w), &y_info = c.output(0);
  if (c.zero_point(x_info) != 0 || c.zero_point(y_info) != 0) c.malformed("16 bits with a zero point", "0");
  const StoredRange range = stored_range(c, y_info, p.activation);
  std::vector<FixedScale> scales = output_scales(c, p);
  bool wide = p.sum_type != static_cast<int8_t>(tflite::TensorType::INT32);
  if (p.sum_type == 0 && c.has(p.bias)) wide = c.dtype(c.in(p.bias)) != DType::kI32;
  wide = wide || p.wide_sums;
  const bool narrow = fits_32_bits(c, w, w_info, p);
  const DType dtype = narrow || !wide ? DType::kI32 : DType::kI64;
  const ValueId weights = c.cast(centred_weights(c, w, w_info, p.weights_axis), dtype);
  ValueId y = p.multiply(c.cast(x, dtype), weights);
  const ValueId bias = bias_along(c, p.bias, p.outputs, c.rank(y), p.axis);
  if (bias >= 0 && c.dtype(bias) != DType::kI32 && c.dtype(bias) != DType::kI64)
    c.malformed(fmt::format("a bias of type {}", c.type(bias).to_string()), "i32 or i64");
  const DType of_sums = wide ? DType::kI64 : DType::kI32;
  y = c.cast(y, of_sums);
  if (bias >= 0) y = c.add(y, c.cast(bias, of_sums));
  if (!wide) return requantize(c, y, scales, p.axis, p.rounding, range, y_info.dtype);
  return requantize_wide(c, y, scales, p.axis, p.rounding, range, y_info.dtype);
}

}  // namespace

ValueId product(OperatorContext& c, const Product& p, ValueId x, ValueId w) {
  const TfliteTensor &x_info = c.tensor(p.x), &w_info = c.tensor(p.w), &y_info = c.output(0);
  const size_t scales = w_info.quantization.scales.size();
  const ProductKind kind = product_kind(c, x_info, w_info);
  if (kind != ProductKind::kReal && scales > 1 && static_cast<int64_t>(scales) != p.outputs)
    c.malformed(fmt::format("weights '{}' have {} scales for {} outputs", w_info.name, scales, p.outputs),
                "one, or one for each output");
  if (kind == ProductKind::kReal) {
    ValueId y = p.multiply(x, w);
    const ValueId bias = bias_along(c, p.bias, p.outputs, c.rank(y), p.axis);
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
    const ValueId bias = bias_along(c, p.bias, p.outputs, c.rank(y), p.axis);
    if (bias >= 0) y = c.add(y, bias);
    return activated(c, y, p.activation);
  }
  if (y_info.dtype != x_info.dtype)
    c.malformed(fmt::format("a result of type {} of {}", dtype_name(y_info.dtype), dtype_name(x_info.dtype)),
                "one type");
  if (x_info.dtype == DType::kI16) return product_of_words(c, p, x, w);
  const StoredRange range = stored_range(c, y_info, p.activation);
  ValueId y = p.multiply(centred(c, x, c.zero_point(x_info)), centred_weights(c, w, w_info, p.weights_axis));
  const ValueId bias = bias_along(c, p.bias, p.outputs, c.rank(y), p.axis);
  if (bias >= 0) {
    if (c.dtype(bias) != DType::kI32) c.malformed(fmt::format("a bias of type {}", c.type(bias).to_string()), "i32");
    y = c.add(y, bias);
  }
  const std::vector<FixedScale> factors = output_scales(c, p);
  return requantize(c, y, factors, p.axis, p.rounding, range, y_info.dtype, bounds_of_sums(c, p, w, factors.size()));
}

ValueId requantize_wide(Emitter& c, ValueId x, const std::vector<FixedScale>& scales, int axis, FixedRounding rounding,
                        const StoredRange& range, DType dtype) {
  Ints dims;
  if (scales.size() > 1) {
    dims.assign(static_cast<size_t>(c.rank(x)), 1);
    dims[static_cast<size_t>(axis)] = static_cast<int64_t>(scales.size());
  }
  const bool whole = rounding == FixedRounding::kOnce;
  constexpr int kHalf = 16;  // digits of a sum that are multiplied by themselves
  Tensor factors(DType::kI64, dims), halves(DType::kI64, dims), amounts(DType::kI64, dims);
  for (size_t i = 0; i < scales.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    const int32_t factor = scales[i].factor;
    const int amount = std::clamp((whole ? 31 : 15) - scales[i].shift, whole ? kHalf : 1, 62);
    factors.set_int(at, whole ? factor : factor < 0x7FFF0000 ? (int64_t{factor} + (1 << 15)) >> 16 : 0x7FFF);
    halves.set_int(at, int64_t{1} << (amount - 1));
    amounts.set_int(at, whole ? amount - kHalf : amount);
  }
  const ValueId factor = c.constant_value(std::move(factors)), half = c.constant_value(std::move(halves));
  ValueId scaled = -1;
  if (whole) {
    // In two parts, neither of which leaves 64 bits.
    const ValueId bits = c.integer(kHalf);
    const ValueId high = c.op("shift_right", {x, bits}), low = c.sub(x, c.op("shift_left", {high, bits}));
    scaled = c.add(c.mul(high, factor), c.op("shift_right", {c.add(c.mul(low, factor), half), bits}));
  } else {
    scaled = c.add(c.mul(x, factor), half);
  }
  const ValueId y = c.op("shift_right", {scaled, c.constant_value(std::move(amounts))});
  return c.cast(kept_within(c, y, range.low, range.high), dtype);
}

Ints transposed_pads(const Ints& shape, const Ints& strides, const Ints& extents, int8_t padding) {
  Ints pads(strides.size(), 0);
  if (padding != static_cast<int8_t>(tflite::Padding::SAME)) return pads;
  for (size_t d = 0; d < strides.size(); ++d) {
    const int64_t out = shape[d + 1], steps = (out + strides[d] - 1) / strides[d];
    pads[d] = std::max<int64_t>((steps - 1) * strides[d] + extents[d] - out, 0) / 2;
  }
  return pads;
}

ValueId transposed_convolution(OperatorContext& c, const Transposed& t, ValueId x, ValueId w) {
  const Ints dims = c.dims(x);  // [N,C,...]
  const size_t rank = t.strides.size();
  Ints begin, end, starts(rank + 2, 0), sizes = {dims[0], t.shape.back()}, zeros(rank, 0), ones(rank, 1);
  bool cuts = false;
  for (size_t d = 0; d < rank; ++d) {
    const int64_t out = t.shape[d + 1], stride = t.strides[d], extent = t.extents[d];
    const int64_t whole = (dims[d + 2] - 1) * stride + extent;
    const int64_t pad = t.pads[d];
    begin.push_back(pad);
    const int64_t behind = whole - pad - out;
    end.push_back(std::min(behind, extent - 1));
    cuts = cuts || behind > extent - 1;
    sizes.push_back(out);
  }
  const ValueId y = c.composite("conv_transpose", {x, w},
                                {{"strides", t.strides},
                                 {"pads_begin", begin},
                                 {"pads_end", end},
                                 {"dilations", ones},
                                 {"output_padding", zeros},
                                 {"groups", int64_t{1}}});
  return cuts ? c.slice(y, starts, sizes, Ints(rank + 2, 1)) : y;
}

}  // namespace tessera::inline tflite_import
