// Operators on one value, element by element.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "import/tflite/operators/handlers.h"

namespace tessera::inline tflite_import {
namespace {

bool has_scale(OperatorContext& c) { return c.is_quantized(c.tensor(0)) && !c.tensor(0).quantization.empty(); }

// Of bytes: f of the numbers that they stand for, in f32, as a table. Halves away from zero, as LiteRT rounds.
ValueId table_of(OperatorContext& c, const std::function<float(float)>& f) {
  const TfliteTensor &x = c.tensor(0), &y = c.output(0);
  if (dtype_bits(x.dtype) != 8 || y.dtype != x.dtype) c.unsupported("quantised values that are no bytes");
  const float scale = c.scale(x), inverse = 1 / c.scale(y);
  const int64_t x_zero = c.zero_point(x);
  const StoredRange range = stored_range(c, y);
  return of_each_byte(c, c.in(0), y.dtype, [&](int64_t stored) {
    const float value = f(scale * static_cast<float>(stored - x_zero));
    const float places = std::clamp(std::round(value * inverse), -1e6F, 1e6F);
    return std::clamp(static_cast<int64_t>(places) + range.zero, range.low, range.high);
  });
}

// The logistic function and tanh of bytes, whose results' scales are fixed.
ValueId saturating_table(OperatorContext& c, bool is_tanh) {
  const TfliteTensor &x = c.tensor(0), &y = c.output(0);
  if (dtype_bits(x.dtype) != 8 || y.dtype != x.dtype) c.unsupported("quantised values that are no bytes");
  return table_of(c, [=](float value) { return is_tanh ? std::tanh(value) : 1.0F / (1.0F + std::exp(-value)); });
}

void import_logistic(OperatorContext& c) {
  c.require_inputs(1, 1);
  const bool is_tanh = c.code() == tflite::BuiltinOperator::TANH;
  if (has_scale(c)) return c.out(0, saturating_table(c, is_tanh));
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
    default: {
      if (has_scale(c)) c.unsupported("quantised values");
      const ValueId x = c.in(0);
      return c.out(0, c.op("min", {c.op("max", {x, c.scalar_like(x, 0)}), c.scalar_like(x, 1)}));
    }
  }
  if (!has_scale(c)) return c.out(0, activated(c, c.in(0), activation));
  const TfliteTensor& y = c.output(0);
  if (y.dtype != c.tensor(0).dtype) c.unsupported("a result of another type");
  c.out(0, rescaled(c, c.in(0), c.tensor(0), y, stored_range(c, y, activation)));
}

void import_leaky_relu(OperatorContext& c) {
  c.require_inputs(1, 1);
  const float alpha = c.options<tflite::LeakyReluOptions>().alpha();
  if (!has_scale(c)) return c.out(0, c.composite("leaky_relu", {c.in(0)}, {{"alpha", static_cast<double>(alpha)}}));
  const TfliteTensor &x = c.tensor(0), &y = c.output(0);
  if (dtype_bits(x.dtype) != 8 || y.dtype != x.dtype) c.unsupported("quantised values that are no bytes");
  const FixedScale above = fixed_scale(static_cast<double>(c.scale(x)) / static_cast<double>(c.scale(y)));
  const FixedScale below =
      fixed_scale(static_cast<double>(c.scale(x)) * static_cast<double>(alpha) / static_cast<double>(c.scale(y)));
  const int64_t x_zero = c.zero_point(x);
  const StoredRange range = stored_range(c, y);
  c.out(0, of_each_byte(c, c.in(0), y.dtype, [&](int64_t stored) {
          const auto value = static_cast<int32_t>(stored - x_zero);
          return std::clamp(multiply(value, value >= 0 ? above : below, FixedRounding::kTwice) + range.zero, range.low,
                            range.high);
        }));
}

void import_prelu(OperatorContext& c) {
  c.require_inputs(2, 2);
  if (has_scale(c)) c.unsupported("quantised values");
  const ValueId x = c.in(0);
  c.out(0, c.op("select", {c.op("ge", {x, c.scalar_like(x, 0)}), x, c.mul(x, c.in(1))}));
}

void import_hard_swish(OperatorContext& c) {
  c.require_inputs(1, 1);
  if (has_scale(c)) c.unsupported("quantised values");
  const ValueId x = c.in(0);
  const ValueId within =
      c.op("min", {c.op("max", {c.add(x, c.scalar_like(x, 3)), c.scalar_like(x, 0)}), c.scalar_like(x, 6)});
  c.out(0, c.div(c.mul(x, within), c.scalar_like(x, 6)));
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

void import_plain(OperatorContext& c) {
  using enum tflite::BuiltinOperator;
  c.require_inputs(1, 1);
  const ValueId x = c.in(0);
  if (has_scale(c)) {
    switch (c.code()) {
      case EXP: return c.out(0, table_of(c, [](float v) { return std::exp(v); }));
      case LOG: return c.out(0, table_of(c, [](float v) { return std::log(v); }));
      case ABS: return c.out(0, table_of(c, [](float v) { return std::abs(v); }));
      case RSQRT: return c.out(0, table_of(c, [](float v) { return 1 / std::sqrt(v); }));
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
