// Operators on one value, element by element.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "import/tflite/fixed_functions.h"
#include "import/tflite/operators/handlers.h"

namespace tessera::inline tflite_import {
namespace {

// A function of the stored integers, of 8 or 16 bits, as a table.
ValueId table_of_stored(OperatorContext& c, DType result, const std::function<int64_t(int64_t)>& f) {
  return dtype_bits(c.tensor(0).dtype) == 8 ? of_each_byte(c, c.in(0), result, f) : of_each_word(c, c.in(0), result, f);
}

void require_same_type(OperatorContext& c) {
  if (c.output(0).dtype != c.tensor(0).dtype) c.unsupported("a result of another type");
}

// f of the numbers that they stand for, in f32, as a table: of bytes for each, halves away from zero, as LiteRT rounds;
// of 16 bits between 513 of them.
ValueId table_of(OperatorContext& c, const std::function<float(float)>& f) {
  const TfliteTensor &x = c.tensor(0), &y = c.output(0);
  require_same_type(c);
  const float scale = c.scale(x), inverse = 1 / c.scale(y);
  const int64_t x_zero = c.zero_point(x);
  const StoredRange range = stored_range(c, y);
  if (x.dtype == DType::kI16) {
    const WordTable table(scale, static_cast<int32_t>(x_zero), c.scale(y), static_cast<int32_t>(range.zero), f);
    return table_of_stored(c, y.dtype, [&](int64_t stored) { return int64_t{table(static_cast<int16_t>(stored))}; });
  }
  return table_of_stored(c, y.dtype, [&](int64_t stored) {
    const float value = f(scale * static_cast<float>(stored - x_zero));
    const float places = std::clamp(std::round(value * inverse), -1e6F, 1e6F);
    return std::clamp(static_cast<int64_t>(places) + range.zero, range.low, range.high);
  });
}

// The logistic function and tanh of 16 bits, whose results have 15 digits behind the point.
ValueId saturating_words(OperatorContext& c, bool is_tanh) {
  const TfliteTensor &x = c.tensor(0), &y = c.output(0);
  require_same_type(c);
  if (c.zero_point(x) != 0 || c.zero_point(y) != 0) c.malformed("16 bits with a zero point", "0");
  const TableScale scale = table_scale(static_cast<double>(c.scale(x)));
  return table_of_stored(c, y.dtype, [&](int64_t stored) {
    const auto word = static_cast<int16_t>(stored);
    return int64_t{is_tanh ? table_tanh(word, scale) : table_logistic(word, scale)};
  });
}

void import_logistic(OperatorContext& c) {
  c.require_inputs(1, 1);
  const bool is_tanh = c.code() == tflite::BuiltinOperator::TANH;
  if (has_scale(c) && c.tensor(0).dtype == DType::kI16) return c.out(0, saturating_words(c, is_tanh));
  if (has_scale(c))
    return c.out(
        0, table_of(c, [=](float value) { return is_tanh ? std::tanh(value) : 1.0F / (1.0F + std::exp(-value)); }));
  c.out(0, is_tanh ? c.op("tanh", {c.in(0)}) : c.composite("sigmoid", {c.in(0)}));
}

// Of quantised values the scale changes, and what is kept.
void import_relu(OperatorContext& c) {
  c.require_inputs(1, 1);
  int8_t activation = 0;
  switch (c.code()) {
    case tflite::BuiltinOperator::RELU: activation = static_cast<int8_t>(tflite::Activation::RELU); break;
    case tflite::BuiltinOperator::RELU6: activation = static_cast<int8_t>(tflite::Activation::RELU6); break;
    case tflite::BuiltinOperator::RELU_N1_TO_1:
      activation = static_cast<int8_t>(tflite::Activation::RELU_N1_TO_1);
      break;
    default: break;
  }
  const bool to_one = c.code() == tflite::BuiltinOperator::RELU_0_TO_1;
  if (!has_scale(c)) {
    const ValueId x = c.in(0);
    if (!to_one) return c.out(0, activated(c, x, activation));
    return c.out(0, c.op("min", {c.op("max", {x, c.scalar_like(x, 0)}), c.scalar_like(x, 1)}));
  }
  const TfliteTensor& y = c.output(0);
  require_same_type(c);
  StoredRange range = stored_range(c, y, activation);
  if (to_one) {
    range.low = std::max(range.low, range.zero);
    range.high =
        std::min(range.high, range.zero + static_cast<int64_t>(std::clamp(std::round(1 / c.scale(y)), 0.0F, 1e6F)));
  }
  c.out(0, rescaled(c, c.in(0), c.tensor(0), y, range));
}

void import_leaky_relu(OperatorContext& c) {
  c.require_inputs(1, 1);
  const float alpha = c.options<tflite::LeakyReluOptions>().alpha();
  if (!has_scale(c)) return c.out(0, c.composite("leaky_relu", {c.in(0)}, {{"alpha", static_cast<double>(alpha)}}));
  const TfliteTensor &x = c.tensor(0), &y = c.output(0);
  require_same_type(c);
  const FixedScale above = fixed_scale(static_cast<double>(c.scale(x) / c.scale(y)));
  const FixedScale below = fixed_scale(static_cast<double>(c.scale(x) * alpha / c.scale(y)));
  const int64_t x_zero = c.zero_point(x);
  const StoredRange range = stored_range(c, y);
  c.out(0, table_of_stored(c, y.dtype, [&](int64_t stored) {
          const auto value = static_cast<int32_t>(stored - x_zero);
          return std::clamp(multiply(value, value >= 0 ? above : below, FixedRounding::kTwice) + range.zero, range.low,
                            range.high);
        }));
}

void import_prelu(OperatorContext& c) {
  c.require_inputs(2, 2);
  const ValueId x = c.in(0);
  if (!has_scale(c)) {
    c.out(0, c.op("select", {c.op("ge", {x, c.scalar_like(x, 0)}), x, c.mul(x, c.in(1))}));
    return;
  }
  const TfliteTensor &y = c.output(0), &slope = c.tensor(1);
  require_same_type(c);
  if (slope.dtype != y.dtype) c.unsupported("slopes of another type");
  const StoredRange range = stored_range(c, y);
  const float above = c.scale(c.tensor(0)) / c.scale(y), below = c.scale(c.tensor(0)) * c.scale(slope) / c.scale(y);
  const auto scaled = [&](ValueId v, float scale) {
    return requantize(c, v, {fixed_scale(static_cast<double>(scale))}, 0, FixedRounding::kTwice, range, y.dtype);
  };
  const ValueId own = centred(c, 0);
  const ValueId positive = c.op("ge", {own, c.scalar_like(own, 0)});
  c.out(0, c.op("select", {positive, scaled(own, above), scaled(c.mul(own, centred(c, 1)), below)}));
}

void import_hard_swish(OperatorContext& c) {
  c.require_inputs(1, 1);
  if (has_scale(c)) {
    const TfliteTensor &x = c.tensor(0), &y = c.output(0);
    require_same_type(c);
    if (dtype_bits(x.dtype) != 8) c.unsupported("quantised values that are no bytes");
    const FixedHardSwish swish(c.scale(x), c.scale(y));
    const int64_t zero = c.zero_point(x);
    const StoredRange range = stored_range(c, y);
    return c.out(0, of_each_byte(c, c.in(0), y.dtype, [&](int64_t stored) {
                   return std::clamp(swish(static_cast<int32_t>(stored - zero)) + range.zero, range.low, range.high);
                 }));
  }
  const ValueId x = c.in(0);
  const ValueId within =
      c.op("min", {c.op("max", {c.add(x, c.scalar_like(x, 3)), c.scalar_like(x, 0)}), c.scalar_like(x, 6)});
  c.out(0, c.div(c.mul(x, within), c.scalar_like(x, 6)));
}

// The size of what is stored, and the reciprocal of its root, in fixed point.
ValueId quantized_abs(OperatorContext& c) {
  const TfliteTensor &x = c.tensor(0), &y = c.output(0);
  require_same_type(c);
  const int64_t zero = c.zero_point(x);
  const StoredRange range = stored_range(c, y);
  const bool same = c.scale(x) == c.scale(y);
  const FixedScale scale = fixed_scale(static_cast<double>(c.scale(x) / c.scale(y)));
  return table_of_stored(c, y.dtype, [&](int64_t stored) {
    const auto size = static_cast<int32_t>(std::abs(stored - zero));
    return std::clamp((same ? size : multiply(size, scale, FixedRounding::kTwice)) + range.zero, range.low, range.high);
  });
}

ValueId quantized_inverse_root(OperatorContext& c) {
  const TfliteTensor &x = c.tensor(0), &y = c.output(0);
  require_same_type(c);
  if (x.dtype == DType::kI16) {
    const float most = static_cast<float>(INT16_MAX) * c.scale(y);
    return table_of(c, [=](float v) { return v <= 0 ? most : 1 / std::sqrt(v); });
  }
  const int64_t zero = c.zero_point(x);
  const StoredRange range = stored_range(c, y);
  FixedScale scale = fixed_scale(1 / static_cast<double>(std::sqrt(c.scale(x)) * c.scale(y)));
  constexpr int kDigits = 20;  // behind the point, of the root's reciprocal
  scale.shift -= kDigits;
  return table_of_stored(c, y.dtype, [&](int64_t stored) {
    // Numbers below 0 have no root; LiteRT ends the run.
    const auto value = static_cast<int32_t>(stored - zero);
    if (value <= 0) return range.high;
    FixedScale root = inverse_root(value);
    root.shift += kDigits;
    const auto reciprocal = static_cast<int32_t>(multiply(1, root, FixedRounding::kTwice));
    return std::clamp(multiply(reciprocal, scale, FixedRounding::kTwice) + range.zero, range.low, range.high);
  });
}

void import_gelu(OperatorContext& c) {
  c.require_inputs(1, 1);
  const bool approximate = c.options<tflite::GeluOptions>().approximate();
  if (has_scale(c)) {
    return c.out(0, table_of(c, [=](float x) {
                   if (!approximate) return 0.5F * x * (1.0F + std::erf(x * 0.70710678118654752440F));
                   return 0.5F * x * (1.0F + std::tanh(0.7978845608028654F * (x + 0.044715F * x * x * x)));
                 }));
  }
  c.out(0, c.composite("gelu", {c.in(0)}, {{"approximate", std::string(approximate ? "tanh" : "none")}}));
}

void import_elu(OperatorContext& c) {
  c.require_inputs(1, 1);
  if (has_scale(c)) return c.out(0, table_of(c, [](float x) { return x < 0 ? std::expm1(x) : x; }));
  c.out(0, c.composite("elu", {c.in(0)}, {{"alpha", 1.0}}));
}

// Of numbers that have none the least result.
ValueId quantized_logarithm(OperatorContext& c) {
  const TfliteTensor& y = c.output(0);
  const StoredRange range = stored_range(c, y);
  const float least = static_cast<float>(range.low - range.zero) * c.scale(y);
  return table_of(c, [=](float v) { return v <= 0 ? least : std::log(v); });
}

void import_plain(OperatorContext& c) {
  using enum tflite::BuiltinOperator;
  c.require_inputs(1, 1);
  const ValueId x = c.in(0);
  if (has_scale(c)) {
    switch (c.code()) {
      case EXP: return c.out(0, table_of(c, [](float v) { return std::exp(v); }));
      case LOG: return c.out(0, quantized_logarithm(c));
      case ABS: return c.out(0, quantized_abs(c));
      case RSQRT: return c.out(0, quantized_inverse_root(c));
      case SQRT: return c.out(0, table_of(c, [](float v) { return std::sqrt(v); }));
      default: c.unsupported("quantised values");
    }
  }
  switch (c.code()) {
    case ABS: return c.out(0, c.op("abs", {x}));
    case CEIL: return c.out(0, c.op("ceil", {x}));
    case COS: return c.out(0, c.op("cos", {x}));
    case EXP: return c.out(0, c.op("exp", {x}));
    case FLOOR: return c.out(0, c.op("floor", {x}));
    case LOG: return c.out(0, c.op("log", {x}));
    case LOGICAL_NOT: return c.out(0, c.op("logical_not", {x}));
    case NEG: return c.out(0, c.op("neg", {x}));
    case ROUND: return c.out(0, c.op("round", {x}));
    case RSQRT: return c.out(0, c.div(c.scalar_like(x, 1), c.op("sqrt", {x})));
    case SIGN: return c.out(0, c.op("sign", {x}));
    case SIN: return c.out(0, c.op("sin", {x}));
    case SQRT: return c.out(0, c.op("sqrt", {x}));
    case SQUARE: return c.out(0, c.mul(x, x));
    case ZEROS_LIKE: return c.out(0, c.zeros(c.dtype(x), c.shape(x)));
    default: c.unsupported("the operator");
  }
}

}  // namespace

std::span<const TfliteOperator> unary_operators() {
  using enum tflite::BuiltinOperator;
  static constexpr TfliteOperator operators[] = {
      {ABS, import_plain},
      {CEIL, import_plain},
      {COS, import_plain},
      {ELU, import_elu},
      {EXP, import_plain},
      {FLOOR, import_plain},
      {GELU, import_gelu},
      {HARD_SWISH, import_hard_swish},
      {LEAKY_RELU, import_leaky_relu},
      {LOG, import_plain},
      {LOGICAL_NOT, import_plain},
      {LOGISTIC, import_logistic},
      {NEG, import_plain},
      {PRELU, import_prelu},
      {RELU, import_relu},
      {RELU6, import_relu},
      {RELU_0_TO_1, import_relu},
      {RELU_N1_TO_1, import_relu},
      {ROUND, import_plain},
      {RSQRT, import_plain},
      {SIGN, import_plain},
      {SIN, import_plain},
      {SQRT, import_plain},
      {SQUARE, import_plain},
      {TANH, import_logistic},
      {ZEROS_LIKE, import_plain},
  };
  return operators;
}

}  // namespace tessera::inline tflite_import
