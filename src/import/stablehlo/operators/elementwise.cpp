// Operators that work element by element.
#include <fmt/format.h>

#include <limits>

#include "import/common/real.h"
#include "import/stablehlo/operators/handlers.h"

namespace tessera::inline stablehlo {
namespace {

bool is_bool(HloContext& c, ValueId v) { return c.dtype(v) == DType::kBool; }

void require_operands(HloContext& c, size_t count) {
  if (c.num_operands() != count) c.malformed(fmt::format("{} operands", c.num_operands()), fmt::format("{}", count));
}

template <const char* kOp>
void as_unary(HloContext& c) {
  require_operands(c, 1);
  c.out(c.op(kOp, {c.in(0)}));
}
template <const char* kName>
void as_composite(HloContext& c) {
  require_operands(c, 1);
  c.out(c.composite(kName, {c.in(0)}));
}
// Of numbers and of bools.
template <const char* kOp, const char* kOfBools>
void as_binary(HloContext& c) {
  require_operands(c, 2);
  c.out(c.op(is_bool(c, c.in(0)) ? kOfBools : kOp, {c.in(0), c.in(1)}));
}

constexpr char kAbs[] = "abs", kAcos[] = "acos", kAcosh[] = "acosh", kAdd[] = "add", kAnd[] = "logical_and",
               kAsin[] = "asin", kAsinh[] = "asinh", kAtan[] = "atan", kAtanh[] = "atanh", kBitAnd[] = "bitwise_and",
               kBitOr[] = "bitwise_or", kBitXor[] = "bitwise_xor", kCeil[] = "ceil", kCos[] = "cos", kCosh[] = "cosh",
               kDiv[] = "div", kErf[] = "erf", kExp[] = "exp", kFloor[] = "floor", kIsInf[] = "is_inf", kLog[] = "log",
               kMax[] = "max", kMin[] = "min", kMul[] = "mul", kNeg[] = "neg", kOr[] = "logical_or", kPow[] = "pow",
               kRem[] = "rem", kRound[] = "round", kShiftLeft[] = "shift_left", kSigmoid[] = "sigmoid",
               kSign[] = "sign", kSin[] = "sin", kSinh[] = "sinh", kSqrt[] = "sqrt", kSub[] = "sub", kTan[] = "tan",
               kTanh[] = "tanh", kXor[] = "logical_xor";

void import_not(HloContext& c) { c.out(c.op(is_bool(c, c.in(0)) ? "logical_not" : "bitwise_not", {c.in(0)})); }
void import_convert(HloContext& c) { c.out(c.cast(c.in(0), c.result_dtype())); }
void import_expm1(HloContext& c) { c.out(exp_minus_one(c, c.in(0))); }
void import_log1p(HloContext& c) { c.out(log_one_plus(c, c.in(0))); }
void import_atan2(HloContext& c) { c.out(angle_of(c, c.in(0), c.in(1))); }
void import_square(HloContext& c) { c.out(c.mul(c.in(0), c.in(0))); }
void import_same(HloContext& c) {
  for (size_t i = 0; i < c.num_results(); ++i) c.out(i, c.in(i));
}

void import_erf_inv(HloContext& c) {
  const ValueId x = c.in(0);
  c.out(c.cast(inverse_erf(Real(c, c.cast(x, DType::kF64))).id(), c.dtype(x)));
}

void import_rsqrt(HloContext& c) { c.out(c.div(c.scalar_like(c.in(0), 1), c.op("sqrt", {c.in(0)}))); }

// |x| to the power 1/3, and one step of Newton's: exact for cubes.
void import_cbrt(HloContext& c) {
  const ValueId x = c.in(0), size = c.op("abs", {x});
  const ValueId y = c.op("pow", {size, c.scalar_like(x, 1.0 / 3)});
  const ValueId better = c.sub(y, c.div(c.sub(y, c.div(size, c.mul(y, y))), c.scalar_like(x, 3)));
  const ValueId is_plain =
      c.op("logical_and", {c.op("gt", {size, c.scalar_like(x, 0)}),
                           c.op("lt", {size, c.scalar_like(x, std::numeric_limits<float>::max())})});
  c.out(c.mul(c.op("sign", {x}), c.op("select", {is_plain, better, y})));
}

void import_is_finite(HloContext& c) {
  c.out(c.op("logical_not", {c.op("logical_or", {c.op("is_nan", {c.in(0)}), c.op("is_inf", {c.in(0)})})}));
}

template <bool kPositive>
void import_is_one_inf(HloContext& c) {
  const double inf = std::numeric_limits<double>::infinity();
  c.out(c.op("eq", {c.in(0), c.scalar_like(c.in(0), kPositive ? inf : -inf)}));
}

// To the nearest, halves away from 0: of what truncation leaves no digit is lost.
void import_round_away(HloContext& c) {
  const ValueId x = c.in(0), size = c.op("abs", {x}), down = c.op("floor", {size});
  const ValueId up = c.op("ge", {c.sub(size, down), c.scalar_like(x, 0.5)});
  const ValueId rounded = c.op("select", {up, c.add(down, c.scalar_like(x, 1)), down});
  c.out(c.op("select", {c.op("lt", {x, c.scalar_like(x, 0)}), c.op("neg", {rounded}), rounded}));
}

DType unsigned_of(HloContext& c, DType dtype) {
  switch (dtype) {
    case DType::kI64: return DType::kU64;
    case DType::kI32: return DType::kU32;
    case DType::kI16: return DType::kU16;
    case DType::kI8: return DType::kU8;
    default:
      if (!is_unsigned_int(dtype)) c.unsupported(fmt::format("shifts of {}", dtype_name(dtype)));
      return dtype;
  }
}
DType signed_of(HloContext& c, DType dtype) {
  switch (dtype) {
    case DType::kU64: return DType::kI64;
    case DType::kU32: return DType::kI32;
    case DType::kU16: return DType::kI16;
    case DType::kU8: return DType::kI8;
    default:
      if (!is_signed_int(dtype)) c.unsupported(fmt::format("shifts of {}", dtype_name(dtype)));
      return dtype;
  }
}
ValueId bits_as(HloContext& c, ValueId v, DType to) {
  return c.dtype(v) == to ? v : c.op("bitcast", {v}, {{"to", to}});
}

template <DType (*kAs)(HloContext&, DType)>
void import_shift_right(HloContext& c) {
  const DType dtype = c.dtype(c.in(0)), wanted = kAs(c, dtype);
  // An amount that is out of range is one of either sign.
  c.out(bits_as(c, c.op("shift_right", {bits_as(c, c.in(0), wanted), bits_as(c, c.in(1), wanted)}), dtype));
}

// Ones in each byte are counted in parallel, and the bytes added by a product.
void import_popcnt(HloContext& c) {
  const DType given = c.dtype(c.in(0));
  ValueId x = c.cast(bits_as(c, c.in(0), unsigned_of(c, given)), DType::kU64);
  const auto mask = [&](uint64_t value) {
    Tensor tensor(DType::kU64, {});
    tensor.set_int(0, static_cast<int64_t>(value));
    return c.constant_value(std::move(tensor));
  };
  const auto shifted = [&](ValueId v, uint64_t by) { return c.op("shift_right", {v, mask(by)}); };
  const auto masked = [&](ValueId v, uint64_t bits) { return c.op("bitwise_and", {v, mask(bits)}); };
  x = c.sub(x, masked(shifted(x, 1), 0x5555555555555555));
  x = c.add(masked(x, 0x3333333333333333), masked(shifted(x, 2), 0x3333333333333333));
  x = masked(c.add(x, shifted(x, 4)), 0x0f0f0f0f0f0f0f0f);
  c.out(c.cast(shifted(c.mul(x, mask(0x0101010101010101)), 56), given));
}

// Of the same width; of another one the last dimension is new, or goes.
void import_bitcast(HloContext& c) {
  const ValueId x = c.in(0);
  const DType to = c.result_dtype();
  if (dtype_bits(to) != dtype_bits(c.dtype(x)))
    c.unsupported(fmt::format("bits of {} as {}", dtype_name(c.dtype(x)), dtype_name(to)));
  c.out(bits_as(c, x, to));
}

void import_reduce_precision(HloContext& c) {
  const int64_t exponent = c.whole("exponent_bits"), mantissa = c.whole("mantissa_bits");
  const DType dtype = c.dtype(c.in(0));
  for (const auto& [format, e, m] : {std::tuple{DType::kF64, 11, 52},
                                     {DType::kF32, 8, 23},
                                     {DType::kBF16, 8, 7},
                                     {DType::kF16, 5, 10},
                                     {DType::kF8E5M2, 5, 2}})
    if (exponent == e && mantissa == m) return c.out(c.cast(c.cast(c.in(0), format), dtype));
  c.unsupported(fmt::format("numbers of {} bits of exponent and {} of mantissa", exponent, mantissa));
}

void import_compare(HloContext& c) {
  require_operands(c, 2);
  const std::string direction = c.word("comparison_direction"), kind = c.word("compare_type", "NOTYPE");
  const char* op = nullptr;
  for (const auto& [word, name] :
       {std::pair{"EQ", "eq"}, {"NE", "ne"}, {"LT", "lt"}, {"LE", "le"}, {"GT", "gt"}, {"GE", "ge"}})
    if (direction == word) op = name;
  if (!op) c.malformed(fmt::format("comparison_direction = {}", direction), "EQ, NE, LT, LE, GT or GE");
  ValueId a = c.in(0), b = c.in(1);
  if (kind == "TOTALORDER" && is_float(c.dtype(a))) {
    // By the bits: as integers with a sign, those of negative numbers but for the sign turned round.
    const auto ordered = [&](ValueId x) {
      const int width = dtype_bits(c.dtype(x));
      if (width != 16 && width != 32 && width != 64) c.unsupported("the total order of such floats");
      const DType as = width == 16 ? DType::kI16 : width == 32 ? DType::kI32 : DType::kI64;
      const ValueId bits = bits_as(c, x, as);
      Tensor others(as, {});
      others.set_int(0, width == 64 ? INT64_MAX : (int64_t{1} << (width - 1)) - 1);
      const ValueId turned = c.op("bitwise_xor", {bits, c.constant_value(std::move(others))});
      return c.op("select", {c.op("lt", {bits, c.scalar(as, 0)}), turned, bits});
    };
    a = ordered(a);
    b = ordered(b);
  }
  const bool has_order = direction != "EQ" && direction != "NE";
  if (has_order) a = comparable(c, a), b = comparable(c, b);
  c.out(c.op(op, {a, b}));
}

void import_select(HloContext& c) {
  require_operands(c, 3);
  c.out(c.op("select", {c.in(0), c.in(1), c.in(2)}));
}

// min(max(x, low), high)
void import_clamp(HloContext& c) {
  require_operands(c, 3);
  c.out(c.op("min", {c.op("max", {c.in(1), c.in(0)}), c.in(2)}));
}

constexpr HloOperator kOperators[] = {
    {"chlo.acos", as_unary<kAcos>},
    {"chlo.acosh", as_unary<kAcosh>},
    {"chlo.asin", as_unary<kAsin>},
    {"chlo.asinh", as_unary<kAsinh>},
    {"chlo.atan", as_unary<kAtan>},
    {"chlo.atanh", as_unary<kAtanh>},
    {"chlo.cosh", as_unary<kCosh>},
    {"chlo.erf", as_unary<kErf>},
    {"chlo.erf_inv", import_erf_inv},
    {"chlo.is_inf", as_unary<kIsInf>},
    {"chlo.is_neg_inf", import_is_one_inf<false>},
    {"chlo.is_pos_inf", import_is_one_inf<true>},
    {"chlo.sinh", as_unary<kSinh>},
    {"chlo.square", import_square},
    {"chlo.tan", as_unary<kTan>},
    {"stablehlo.abs", as_unary<kAbs>},
    {"stablehlo.add", as_binary<kAdd, kOr>},
    {"stablehlo.and", as_binary<kBitAnd, kAnd>},
    {"stablehlo.atan2", import_atan2},
    {"stablehlo.bitcast_convert", import_bitcast},
    {"stablehlo.cbrt", import_cbrt},
    {"stablehlo.ceil", as_unary<kCeil>},
    {"stablehlo.clamp", import_clamp},
    {"stablehlo.compare", import_compare},
    {"stablehlo.convert", import_convert},
    {"stablehlo.cosine", as_unary<kCos>},
    {"stablehlo.divide", as_binary<kDiv, kDiv>},
    {"stablehlo.exponential", as_unary<kExp>},
    {"stablehlo.exponential_minus_one", import_expm1},
    {"stablehlo.floor", as_unary<kFloor>},
    {"stablehlo.is_finite", import_is_finite},
    {"stablehlo.log", as_unary<kLog>},
    {"stablehlo.log_plus_one", import_log1p},
    {"stablehlo.logistic", as_composite<kSigmoid>},
    {"stablehlo.maximum", as_binary<kMax, kOr>},
    {"stablehlo.minimum", as_binary<kMin, kAnd>},
    {"stablehlo.multiply", as_binary<kMul, kAnd>},
    {"stablehlo.negate", as_unary<kNeg>},
    {"stablehlo.not", import_not},
    {"stablehlo.optimization_barrier", import_same},
    {"stablehlo.or", as_binary<kBitOr, kOr>},
    {"stablehlo.popcnt", import_popcnt},
    {"stablehlo.power", as_binary<kPow, kPow>},
    {"stablehlo.reduce_precision", import_reduce_precision},
    {"stablehlo.remainder", as_binary<kRem, kRem>},
    {"stablehlo.round_nearest_afz", import_round_away},
    {"stablehlo.round_nearest_even", as_unary<kRound>},
    {"stablehlo.rsqrt", import_rsqrt},
    {"stablehlo.select", import_select},
    {"stablehlo.shift_left", as_binary<kShiftLeft, kShiftLeft>},
    {"stablehlo.shift_right_arithmetic", import_shift_right<signed_of>},
    {"stablehlo.shift_right_logical", import_shift_right<unsigned_of>},
    {"stablehlo.sign", as_unary<kSign>},
    {"stablehlo.sine", as_unary<kSin>},
    {"stablehlo.sqrt", as_unary<kSqrt>},
    {"stablehlo.subtract", as_binary<kSub, kXor>},
    {"stablehlo.tan", as_unary<kTan>},
    {"stablehlo.tanh", as_unary<kTanh>},
    {"stablehlo.xor", as_binary<kBitXor, kXor>},
};

}  // namespace

std::span<const HloOperator> elementwise_operators() { return kOperators; }

ValueId combined(HloContext& c, const std::string& combiner, ValueId a, ValueId b) {
  const bool bools = c.dtype(a) == DType::kBool;
  if (combiner == "and" || combiner == "or")
    return c.op(fmt::format("{}_{}", bools ? "logical" : "bitwise", combiner), {a, b});
  if (bools) return c.op(combiner == "mul" || combiner == "min" ? "logical_and" : "logical_or", {a, b});
  return c.op(combiner, {a, b});
}

bool is_identity(HloContext& c, const std::string& combiner, ValueId value) {
  const auto known = c.constant(value);
  if (!known || known->num_elements() != 1) return false;
  const DType dtype = known->dtype();
  const double number = known->get_double(0);
  if (combiner == "add" || combiner == "or") return number == 0;
  if (combiner == "mul") return number == 1;
  if (combiner == "and") return dtype == DType::kBool ? number == 1 : known->get_int(0) == -1;
  if (combiner != "min" && combiner != "max") return false;
  const Tensor end = extreme(dtype, combiner == "min");
  return is_float(dtype) ? number == end.get_double(0) : known->get_int(0) == end.get_int(0);
}

Tensor extreme(DType dtype, bool is_largest) {
  Tensor value(dtype, {});
  if (is_float(dtype)) {
    value.set_double(0, (is_largest ? 1 : -1) * std::numeric_limits<double>::infinity());
  } else if (dtype == DType::kBool || is_unsigned_int(dtype)) {
    value.set_int(0, !is_largest ? 0 : dtype == DType::kBool ? 1 : -1);
  } else {
    const int bits = dtype_bits(dtype);
    const int64_t largest = bits == 64 ? INT64_MAX : (int64_t{1} << (bits - 1)) - 1;
    value.set_int(0, is_largest ? largest : -largest - 1);
  }
  return value;
}

}  // namespace tessera::inline stablehlo
