// Operators on two values, element by element.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "import/common/functions.h"
#include "import/tflite/fixed_functions.h"
#include "import/tflite/operators/byte_sums.h"
#include "import/tflite/operators/handlers.h"

namespace tessera::inline tflite_import {
namespace {

using Ints = std::vector<int64_t>;

bool is_narrow(DType dtype) { return dtype == DType::kU8 || dtype == DType::kI8; }

int8_t activation_of(OperatorContext& c) {
  switch (c.code()) {
    case tflite::BuiltinOperator::ADD: return c.options<tflite::AddOptions>().fused_activation_function();
    case tflite::BuiltinOperator::SUB: return c.options<tflite::SubOptions>().fused_activation_function();
    case tflite::BuiltinOperator::MUL: return c.options<tflite::MulOptions>().fused_activation_function();
    case tflite::BuiltinOperator::DIV: return c.options<tflite::DivOptions>().fused_activation_function();
    default: return 0;
  }
}

void require_same_type(OperatorContext& c) {
  if (c.dtype(c.in(0)) != c.dtype(c.in(1)))
    c.malformed(fmt::format("operands of types {} and {}", c.type(c.in(0)).to_string(), c.type(c.in(1)).to_string()),
                "one type");
}

struct Pair {
  const TfliteTensor &a, &b, &y;
};
Pair quantized_pair(OperatorContext& c) {
  const TfliteTensor &a = c.tensor(0), &b = c.tensor(1), &y = c.output(0);
  if (a.dtype != y.dtype) c.unsupported("operands of other types than the result");
  return {a, b, y};
}

// The exponent of a power of two.
std::optional<int> exponent_of(float scale) {
  const double exponent = std::log2(static_cast<double>(scale)), whole = std::round(exponent);
  if (std::abs(exponent - whole) > 1e-3) return std::nullopt;
  return static_cast<int>(whole);
}

// Of 16 bits, where all units are powers of two, and one of the operands' the result's: the other operand is brought to
// it first.
std::optional<ValueId> shifted_sum(OperatorContext& c, const Pair& p, bool subtracts) {
  const bool wanted =
      subtracts ? c.options<tflite::SubOptions>().pot_scale_int16() : c.options<tflite::AddOptions>().pot_scale_int16();
  const auto a = exponent_of(c.scale(p.a)), b = exponent_of(c.scale(p.b)), y = exponent_of(c.scale(p.y));
  if (!wanted || !a || !b || !y) return std::nullopt;
  const int of_a = *a - *y, of_b = *b - *y;
  if ((of_a != 0 && of_b != 0) || of_a > 0 || of_b > 0)
    c.malformed(fmt::format("units of 2^{}, 2^{} and 2^{}", *a, *b, *y),
                "one operand in the result's, none in a larger");
  const auto brought = [&](int i, int shift) {
    const ValueId x = c.cast(c.in(i), DType::kI32);
    return shift == 0 ? x : multiply(c, x, {1 << 30, shift + 1}, FixedRounding::kTwice);
  };
  const ValueId first = brought(0, of_a), second = brought(1, of_b);
  const StoredRange range = stored_range(c, p.y, activation_of(c));
  return c.cast(kept_within(c, subtracts ? c.sub(first, second) : c.add(first, second), range.low, range.high),
                p.y.dtype);
}

// a + b, or a - b, of integers with scales: each brought to a common unit of 2^-left, added there, and brought to the
// result's.
ValueId quantized_sum(OperatorContext& c, bool subtracts) {
  const Pair p = quantized_pair(c);
  const bool wide = p.y.dtype == DType::kI16;
  if (wide) {
    for (const TfliteTensor* tensor : {&p.a, &p.b, &p.y})
      if (c.zero_point(*tensor) != 0) c.malformed("16 bits with a zero point", "0");
    if (const auto sum = shifted_sum(c, p, subtracts)) return *sum;
  }
  const int left = wide ? 15 : 20;
  const double a_scale = static_cast<double>(c.scale(p.a)), b_scale = static_cast<double>(c.scale(p.b));
  const double twice = 2 * std::max(a_scale, b_scale);
  ByteSum sum;
  sum.left = left;
  sum.subtracts = subtracts;
  sum.a = fixed_scale(a_scale / twice);
  sum.b = fixed_scale(b_scale / twice);
  sum.result = fixed_scale(twice / (std::ldexp(1, left) * static_cast<double>(c.scale(p.y))));
  sum.a_zero = c.zero_point(p.a);
  sum.b_zero = c.zero_point(p.b);
  return byte_sum(c, c.in(0), c.in(1), sum, stored_range(c, p.y, activation_of(c)), p.y.dtype);
}

ValueId quantized_product(OperatorContext& c) {
  const Pair p = quantized_pair(c);
  const StoredRange range = stored_range(c, p.y, activation_of(c));
  const double scale = static_cast<double>(c.scale(p.a) * c.scale(p.b) / c.scale(p.y));
  return requantize(c, c.mul(centred(c, 0), centred(c, 1)), {fixed_scale(scale)}, 0, FixedRounding::kTwice, range,
                    p.y.dtype);
}

ValueId quantized_quotient(OperatorContext& c) {
  const Pair p = quantized_pair(c);
  if (!is_narrow(p.y.dtype)) c.unsupported("quantised values of 16 bits");
  const StoredRange range = stored_range(c, p.y, activation_of(c));
  const FixedScale scale = fixed_scale(static_cast<double>(c.scale(p.a) / (c.scale(p.b) * c.scale(p.y))));
  const int64_t a_zero = c.zero_point(p.a), b_zero = c.zero_point(p.b);
  return of_each_pair(c, c.in(0), c.in(1), p.y.dtype, [&](int64_t a, int64_t b) {
    if (b == b_zero) return a < a_zero ? range.low : range.high;  // LiteRT ends the run
    const int32_t quotient = fixed_quotient(static_cast<int32_t>(a - a_zero), static_cast<int32_t>(b - b_zero), scale);
    return std::clamp(quotient + range.zero, range.low, range.high);
  });
}

ValueId quantized_square(OperatorContext& c) {
  const Pair p = quantized_pair(c);
  if (!is_narrow(p.y.dtype)) c.unsupported("quantised values of 16 bits");
  constexpr int kLeft = 7;
  const double a_scale = static_cast<double>(c.scale(p.a)), b_scale = static_cast<double>(c.scale(p.b));
  const double twice = 2 * std::max(a_scale, b_scale);
  const FixedScale of_a = fixed_scale(a_scale / twice), of_b = fixed_scale(b_scale / twice);
  const FixedScale of_y = fixed_scale(twice * twice / ((1 << (2 * kLeft)) * static_cast<double>(c.scale(p.y))));
  const int64_t a_zero = c.zero_point(p.a), b_zero = c.zero_point(p.b);
  const StoredRange range = stored_range(c, p.y);
  const auto scaled = [](int64_t x, FixedScale scale) {
    return multiply(static_cast<int32_t>(x * (1 << kLeft)), scale, FixedRounding::kTwice);
  };
  return of_each_pair(c, c.in(0), c.in(1), p.y.dtype, [&](int64_t a, int64_t b) {
    const int64_t difference = scaled(a - a_zero, of_a) - scaled(b - b_zero, of_b);
    const auto square = static_cast<int32_t>(difference * difference);
    return std::clamp(multiply(square, of_y, FixedRounding::kTwice) + range.zero, range.low, range.high);
  });
}

void import_arithmetic(OperatorContext& c) {
  c.require_inputs(2, 2);
  require_same_type(c);
  const bool quantized = has_scale(c);
  const auto plain = [&](const char* name) {
    if (quantized) c.unsupported("quantised values");
    c.out(0, activated(c, c.op(name, {c.in(0), c.in(1)}), activation_of(c)));
  };
  switch (c.code()) {
    case tflite::BuiltinOperator::ADD: return quantized ? c.out(0, quantized_sum(c, false)) : plain("add");
    case tflite::BuiltinOperator::SUB: return quantized ? c.out(0, quantized_sum(c, true)) : plain("sub");
    case tflite::BuiltinOperator::MUL: return quantized ? c.out(0, quantized_product(c)) : plain("mul");
    case tflite::BuiltinOperator::POW: return plain("pow");
    default: return quantized ? c.out(0, quantized_quotient(c)) : plain("div");
  }
}

// The angle of the point (x, y).
void import_angle(OperatorContext& c) {
  c.require_inputs(2, 2);
  require_same_type(c);
  if (!is_float(c.dtype(c.in(0)))) c.unsupported(fmt::format("values of type {}", dtype_name(c.dtype(c.in(0)))));
  c.out(0, angle_of(c, c.in(0), c.in(1)));
}

// Those of StableHLO that LiteRT runs: of values of one type and shape, without scales.
void import_stablehlo(OperatorContext& c) {
  using enum tflite::BuiltinOperator;
  c.require_inputs(2, 2);
  require_same_type(c);
  if (has_scale(c)) c.unsupported("quantised values");
  if (static_dims(c.shape(c.in(0))) != static_dims(c.shape(c.in(1))))
    c.malformed(fmt::format("operands of types {} and {}", c.type(c.in(0)).to_string(), c.type(c.in(1)).to_string()),
                "one shape");
  const auto result = [&](const char* name) { c.out(0, c.op(name, {c.in(0), c.in(1)})); };
  switch (c.code()) {
    case STABLEHLO_ADD: return result("add");
    case STABLEHLO_AND: return result(c.dtype(c.in(0)) == DType::kBool ? "logical_and" : "bitwise_and");
    case STABLEHLO_MAXIMUM: return result("max");
    case STABLEHLO_MINIMUM: return result("min");
    case STABLEHLO_MULTIPLY: return result("mul");
    default: return result("shift_left");
  }
}

// A choice of one of the operands: of quantised ones, whose parameters are the same.
void import_extremum(OperatorContext& c) {
  c.require_inputs(2, 2);
  require_same_type(c);
  if (has_scale(c)) {
    require_same_quantization(c, c.tensor(0), c.output(0));
    require_same_quantization(c, c.tensor(1), c.output(0));
  }
  c.out(0, c.op(c.code() == tflite::BuiltinOperator::MAXIMUM ? "max" : "min", {c.in(0), c.in(1)}));
}

void import_squared_difference(OperatorContext& c) {
  c.require_inputs(2, 2);
  require_same_type(c);
  if (has_scale(c)) return c.out(0, quantized_square(c));
  const ValueId difference = c.sub(c.in(0), c.in(1));
  c.out(0, c.mul(difference, difference));
}

// Rounded towards minus infinity, and what is left then, which has the divisor's sign.
void import_floor_division(OperatorContext& c) {
  c.require_inputs(2, 2);
  require_same_type(c);
  const ValueId a = c.in(0), b = c.in(1);
  const bool wants_rest = c.code() == tflite::BuiltinOperator::FLOOR_MOD;
  if (is_float(c.dtype(a))) {
    if (!wants_rest) return c.out(0, c.op("floor", {c.div(a, b)}));
    const ValueId rest = c.op("rem", {a, b}), zero = c.scalar_like(a, 0);
    const ValueId other_sign = c.op("ne", {c.op("lt", {rest, zero}), c.op("lt", {b, zero})});
    const ValueId moves = c.op("logical_and", {c.op("ne", {rest, zero}), other_sign});
    return c.out(0, c.op("select", {moves, c.add(rest, b), rest}));
  }
  if (!is_int(c.dtype(a))) c.unsupported(fmt::format("values of type {}", dtype_name(c.dtype(a))));
  const ValueId rest = c.op("rem", {a, b}), zero = c.scalar_like(a, 0);
  const ValueId other_sign = c.op("ne", {c.op("lt", {rest, zero}), c.op("lt", {b, zero})});
  const ValueId moves = c.op("logical_and", {c.op("ne", {rest, zero}), other_sign});
  if (wants_rest) return c.out(0, c.op("select", {moves, c.add(rest, b), rest}));
  const ValueId quotient = c.div(a, b);
  c.out(0, c.op("select", {moves, c.sub(quotient, c.scalar_like(a, 1)), quotient}));
}

void import_comparison(OperatorContext& c) {
  c.require_inputs(2, 2);
  require_same_type(c);
  const char* name = "eq";
  switch (c.code()) {
    case tflite::BuiltinOperator::NOT_EQUAL: name = "ne"; break;
    case tflite::BuiltinOperator::LESS: name = "lt"; break;
    case tflite::BuiltinOperator::LESS_EQUAL: name = "le"; break;
    case tflite::BuiltinOperator::GREATER: name = "gt"; break;
    case tflite::BuiltinOperator::GREATER_EQUAL: name = "ge"; break;
    default: break;
  }
  const TfliteTensor &a = c.tensor(0), &b = c.tensor(1);
  const bool apart = has_scale(c) && (c.scale(a) != c.scale(b) || c.zero_point(a) != c.zero_point(b));
  if (apart && !is_narrow(a.dtype)) c.unsupported("quantised values of 16 bits and different scales");
  const auto operand = [&](int i) {
    if (!apart) return c.in(i);
    const FixedScale scale = fixed_scale(static_cast<double>(c.scale(c.tensor(i))));
    const int64_t zero = c.zero_point(c.tensor(i));
    return of_each_byte(c, c.in(i), DType::kI32, [&](int64_t stored) {
      return multiply(static_cast<int32_t>((stored - zero) * 256), scale, FixedRounding::kTwice);
    });
  };
  c.out(0, c.op(name, {operand(0), operand(1)}));
}

void import_logical(OperatorContext& c) {
  c.require_inputs(2, 2);
  require_same_type(c);
  const bool both = c.code() == tflite::BuiltinOperator::LOGICAL_AND;
  c.out(0, c.op(both ? "logical_and" : "logical_or", {c.in(0), c.in(1)}));
}

void import_bitwise(OperatorContext& c) {
  c.require_inputs(2, 2);
  require_same_type(c);
  c.out(0, c.op(c.code() == tflite::BuiltinOperator::BITWISE_XOR ? "bitwise_xor" : "shift_right", {c.in(0), c.in(1)}));
}

void import_select(OperatorContext& c) {
  c.require_inputs(3, 3);
  ValueId condition = c.in(0);
  const ValueId a = c.in(1), b = c.in(2);
  if (c.dtype(condition) != DType::kBool || c.dtype(a) != c.dtype(b))
    c.malformed(fmt::format("operands of types {}, {} and {}", c.type(condition).to_string(), c.type(a).to_string(),
                            c.type(b).to_string()),
                "bools and two values of one type");
  // The older operator takes a list of bools for the parts along the first dimension.
  if (c.code() == tflite::BuiltinOperator::SELECT && c.rank(condition) == 1 && c.rank(a) > 1) {
    Ints dims(static_cast<size_t>(c.rank(a)), 1);
    dims[0] = c.num_elements(condition);
    condition = c.reshape(condition, dims);
  }
  c.out(0, c.op("select", {condition, a, b}));
}

void import_add_n(OperatorContext& c) {
  c.require_inputs(1, -1);
  ValueId sum = c.in(0);
  for (int i = 1; i < c.num_inputs(); ++i) sum = c.add(sum, c.in(i));
  if (c.num_inputs() == 1) sum = c.op("reshape", {sum}, {{"shape", c.shape(sum)}});
  c.out(0, sum);
}

}  // namespace

std::span<const TfliteOperator> arithmetic_operators() {
  using enum tflite::BuiltinOperator;
  static constexpr TfliteOperator operators[] = {
      {ADD, import_arithmetic},
      {ADD_N, import_add_n},
      {ATAN2, import_angle},
      {STABLEHLO_SHIFT_LEFT, import_stablehlo},
      {STABLEHLO_ADD, import_stablehlo},
      {STABLEHLO_AND, import_stablehlo},
      {STABLEHLO_MAXIMUM, import_stablehlo},
      {STABLEHLO_MINIMUM, import_stablehlo},
      {STABLEHLO_MULTIPLY, import_stablehlo},
      {BITWISE_XOR, import_bitwise},
      {DIV, import_arithmetic},
      {EQUAL, import_comparison},
      {FLOOR_DIV, import_floor_division},
      {FLOOR_MOD, import_floor_division},
      {GREATER, import_comparison},
      {GREATER_EQUAL, import_comparison},
      {LESS, import_comparison},
      {LESS_EQUAL, import_comparison},
      {LOGICAL_AND, import_logical},
      {LOGICAL_OR, import_logical},
      {MAXIMUM, import_extremum},
      {MINIMUM, import_extremum},
      {MUL, import_arithmetic},
      {NOT_EQUAL, import_comparison},
      {POW, import_arithmetic},
      {RIGHT_SHIFT, import_bitwise},
      {SELECT, import_select},
      {SELECT_V2, import_select},
      {SQUARED_DIFFERENCE, import_squared_difference},
      {SUB, import_arithmetic},
  };
  return operators;
}

}  // namespace tessera::inline tflite_import
