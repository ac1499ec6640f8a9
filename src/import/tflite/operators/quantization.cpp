// Between floats and quantised values.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "import/tflite/operators/handlers.h"

namespace tessera::inline tflite_import {
namespace {

using Ints = std::vector<int64_t>;

// Halves away from zero.
ValueId rounded_away(OperatorContext& c, ValueId x) {
  const ValueId half = c.op("floor", {c.add(c.op("abs", {x}), c.scalar_like(x, 0.5))});
  return c.op("select", {c.op("lt", {x, c.scalar_like(x, 0)}), c.op("neg", {half}), half});
}

// A list of parameters as an operand for a tensor.
template <typename Number>
ValueId along(OperatorContext& c, const TfliteTensor& tensor, const std::vector<Number>& numbers, DType dtype) {
  Ints dims;
  if (numbers.size() != 1) {
    dims.assign(tensor.dims.size(), 1);
    dims[static_cast<size_t>(tensor.quantization.axis)] = static_cast<int64_t>(numbers.size());
  }
  Tensor values(dtype, dims);
  for (size_t i = 0; i < numbers.size(); ++i)
    values.set_double(static_cast<int64_t>(i), static_cast<double>(numbers[i]));
  return c.constant_value(std::move(values));
}

void import_quantize(OperatorContext& c) {
  c.require_inputs(1, 1);
  const TfliteTensor &x = c.tensor(0), &y = c.output(0);
  if (is_float(x.dtype)) {
    if (y.quantization.scales.empty()) c.malformed(fmt::format("tensor '{}' has no scale", y.name), "one or more");
    const int bits = dtype_bits(y.dtype);
    const double low = is_signed_int(y.dtype) ? -std::ldexp(1, bits - 1) : 0;
    const double high = low + std::ldexp(1, bits) - 1;
    if (!is_int(y.dtype) || bits > 32) c.malformed(fmt::format("a result of type {}", dtype_name(y.dtype)), "integers");
    // As LiteRT does: the value times the reciprocal's rounding, or over the scale, differ; its kernel divides.
    const ValueId quotient = c.div(c.cast(c.in(0), DType::kF32), along(c, y, y.quantization.scales, DType::kF32));
    const ValueId moved = c.add(rounded_away(c, quotient), along(c, y, y.quantization.zero_points, DType::kF32));
    const ValueId kept = c.op("min", {c.op("max", {moved, c.scalar_like(moved, low)}), c.scalar_like(moved, high)});
    return c.out(0, c.cast(kept, y.dtype));
  }
  if (y.dtype == DType::kI32 && c.is_quantized(x)) {
    if (y.quantization.zero_points != Ints{0}) c.unsupported("32 bits with a zero point");
    const double scale = static_cast<double>(c.scale(x)) / static_cast<double>(c.scale(y));
    return c.out(0, multiply(c, centred(c, 0), fixed_scale(scale), FixedRounding::kTwice));
  }
  if (!c.is_quantized(x) || !c.is_quantized(y))
    c.unsupported(fmt::format("{} to {}", dtype_name(x.dtype), dtype_name(y.dtype)));
  const bool bytes = dtype_bits(x.dtype) == 8 && dtype_bits(y.dtype) == 8;
  if (c.scale(x) == c.scale(y) && bytes && x.dtype != y.dtype &&
      c.zero_point(x) - c.zero_point(y) == (x.dtype == DType::kU8 ? 128 : -128)) {
    // The same numbers, told from another zero.
    const ValueId wide = centred(c, c.in(0), x.dtype == DType::kU8 ? 128 : -128);
    return c.out(0, c.cast(wide, y.dtype));
  }
  c.out(0, rescaled(c, c.in(0), x, y, stored_range(c, y)));
}

void import_dequantize(OperatorContext& c) {
  c.require_inputs(1, 1);
  const TfliteTensor& x = c.tensor(0);
  if (is_float(x.dtype)) return c.out(0, c.cast(c.in(0), DType::kF32));
  if (x.quantization.is_blockwise) c.unsupported("a scale for each block");
  if (x.quantization.scales.empty()) c.malformed(fmt::format("tensor '{}' has no scale", x.name), "one or more");
  const ValueId less = c.sub(c.cast(c.in(0), DType::kI32), along(c, x, x.quantization.zero_points, DType::kI32));
  c.out(0, c.mul(c.cast(less, DType::kF32), along(c, x, x.quantization.scales, DType::kF32)));
}

// What is stored without its zeros is read with them.
void import_densify(OperatorContext& c) {
  c.require_inputs(1, 1);
  c.out(0, c.op("reshape", {c.in(0)}, {{"shape", c.shape(c.in(0))}}));
}

void import_cast(OperatorContext& c) {
  c.require_inputs(1, 1);
  c.out(0, c.op("cast", {c.in(0)}, {{"to", c.output(0).dtype}}));
}

void import_bitcast(OperatorContext& c) {
  c.require_inputs(1, 1);
  const DType from = c.dtype(c.in(0)), to = c.output(0).dtype;
  const ValueId x = c.in(0);
  const int ratio = dtype_bits(from) / std::max(dtype_bits(to), 1), inverse = dtype_bits(to) / dtype_bits(from);
  if (ratio != 1 || inverse != 1) c.unsupported(fmt::format("{} as {}", dtype_name(from), dtype_name(to)));
  c.out(0, from == to ? c.op("reshape", {x}, {{"shape", c.shape(x)}}) : c.op("bitcast", {x}, {{"to", to}}));
}

// What training uses to act as if it was quantised.
void import_fake_quant(OperatorContext& c) {
  c.require_inputs(1, 1);
  const auto& options = c.options<tflite::FakeQuantOptions>();
  if (options.num_bits() < 2 || options.num_bits() > 16 || !(options.min() < options.max()))
    c.malformed(fmt::format("{} bits from {} to {}", options.num_bits(), options.min(), options.max()),
                "2 to 16 bits, and a range");
  const float least = options.narrow_range() ? 1 : 0;
  const auto most = static_cast<float>((1 << options.num_bits()) - 1);
  const float scale = (options.max() - options.min()) / (most - least);
  const float from_least = least - options.min() / scale;
  const float zero = from_least < least ? least : from_least > most ? most : std::round(from_least);
  const float low = (least - zero) * scale, high = (most - zero) * scale;
  const ValueId x = c.in(0);
  const auto number = [&](float value) { return c.scalar(DType::kF32, static_cast<double>(value)); };
  const ValueId kept = c.op("min", {c.op("max", {x, number(low)}), number(high)});
  const ValueId places = c.op("floor", {c.add(c.mul(c.sub(kept, number(low)), number(1 / scale)), number(0.5F))});
  c.out(0, c.add(c.mul(places, number(scale)), number(low)));
}

}  // namespace

std::span<const TfliteOperator> quantization_operators() {
  using enum tflite::BuiltinOperator;
  static constexpr TfliteOperator operators[] = {
      {BITCAST, import_bitcast},       {CAST, import_cast},
      {DENSIFY, import_densify},       {DEQUANTIZE, import_dequantize},
      {FAKE_QUANT, import_fake_quant}, {QUANTIZE, import_quantize},
  };
  return operators;
}

}  // namespace tessera::inline tflite_import
