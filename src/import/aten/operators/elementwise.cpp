// Functions of several operands, element by element, which are broadcast to one shape.
#include <cmath>

#include "import/aten/operators/handlers.h"
#include "import/common/functions.h"

namespace tessera::inline aten {
namespace {

// Whether a remainder of integers or floats, which has the sign of a, has another than b: a quotient rounded down is
// one less then.
ValueId is_beyond(AtenContext& c, ValueId rest, ValueId b) {
  const ValueId zero = c.scalar_like(rest, 0);
  const ValueId other_sign = c.op("ne", {c.op("lt", {rest, zero}), c.op("lt", {b, zero})});
  return c.op("logical_and", {c.op("ne", {rest, zero}), other_sign});
}

// As Python and PyTorch do it: 1 // 0.1 is 9, although the quotient is rounded to 10. A less the remainder is a
// multiple of b but for rounding, so that the nearest integer is meant.
ValueId floor_quotient_of_floats(AtenContext& c, ValueId given_a, ValueId given_b) {
  const ValueId a = in_wide_float(c, given_a), b = in_wide_float(c, given_b);
  const ValueId zero = c.scalar_like(a, 0), one = c.scalar_like(a, 1);
  const ValueId rest = c.op("rem", {a, b});
  const ValueId truncated = c.div(c.sub(a, rest), b);
  const ValueId whole = c.op("select", {is_beyond(c, rest, b), c.sub(truncated, one), truncated});
  const ValueId below = c.op("floor", {whole});
  const ValueId is_next = c.op("gt", {c.sub(whole, below), c.scalar_like(a, 0.5)});
  const ValueId nearest = c.op("select", {is_next, c.add(below, one), below});
  return c.cast(c.op("select", {c.op("eq", {b, zero}), c.div(a, b), nearest}), c.dtype(given_a));
}

}  // namespace

ValueId floor_quotient(AtenContext& c, ValueId a, ValueId b) {
  if (is_float(c.dtype(a))) return floor_quotient_of_floats(c, a, b);
  const ValueId quotient = c.div(a, b);
  if (!is_signed_int(c.dtype(a))) return quotient;
  const ValueId one_less = c.sub(quotient, c.scalar_like(a, 1));
  return c.op("select", {is_beyond(c, c.op("rem", {a, b}), b), one_less, quotient});
}

namespace {

// Both operands in the dtype that they are promoted to.
struct Pair {
  ValueId a, b;
};
Pair promoted_pair(AtenContext& c, const char* a = "self", const char* b = "other") {
  const DType dtype = AtenContext::promoted({c.operand(a), c.operand(b)});
  return {c.as(a, dtype), c.as(b, dtype)};
}
Pair pair_of(AtenContext& c, DType dtype, const char* a = "self", const char* b = "other") {
  return {c.as(a, dtype), c.as(b, dtype)};
}
DType promoted(AtenContext& c, const char* a = "self", const char* b = "other") {
  return AtenContext::promoted({c.operand(a), c.operand(b)});
}

// `b` times the argument "alpha".
ValueId times_alpha(AtenContext& c, ValueId b) {
  if (!c.has("alpha") || c.number("alpha") == 1) return b;
  return c.mul(b, c.as("alpha", c.dtype(b)));
}

void import_add(AtenContext& c) {
  const Pair p = pair_of(c, c.result_dtype(promoted(c)));
  if (c.dtype(p.a) == DType::kBool) return c.out(c.op("logical_or", {p.a, p.b}));
  c.out(c.add(p.a, times_alpha(c, p.b)));
}

void import_sub(AtenContext& c) {
  const Pair p = pair_of(c, c.result_dtype(promoted(c)));
  c.out(c.sub(p.a, times_alpha(c, p.b)));
}

void import_rsub(AtenContext& c) {
  const Pair p = pair_of(c, c.result_dtype(promoted(c)));
  c.out(c.sub(p.b, times_alpha(c, p.a)));
}

void import_mul(AtenContext& c) {
  const Pair p = pair_of(c, c.result_dtype(promoted(c)));
  c.out(c.op(c.dtype(p.a) == DType::kBool ? "logical_and" : "mul", {p.a, p.b}));
}

ValueId truncated_quotient(AtenContext& c, ValueId a, ValueId b) {
  const ValueId quotient = c.div(a, b);
  if (!is_float(c.dtype(a))) return quotient;
  const ValueId below = c.op("lt", {quotient, c.scalar_like(a, 0)});
  return c.op("select", {below, c.op("ceil", {quotient}), c.op("floor", {quotient})});
}

void import_div(AtenContext& c) {
  const Pair p = pair_of(c, c.result_dtype(promoted(c)));
  const std::string mode = c.text("rounding_mode");
  if (mode.empty()) c.out(c.div(p.a, p.b));
  else if (mode == "floor") c.out(floor_quotient(c, p.a, p.b));
  else if (mode == "trunc") c.out(truncated_quotient(c, p.a, p.b));
  else c.malformed("rounding_mode is '" + mode + "'", "floor or trunc");
}

void import_floor_divide(AtenContext& c) {
  const Pair p = pair_of(c, c.result_dtype(promoted(c)));
  c.out(floor_quotient(c, p.a, p.b));
}

// The remainder with the divisor's sign.
void import_remainder(AtenContext& c) {
  const Pair p = pair_of(c, c.result_dtype(promoted(c)));
  const ValueId rest = c.op("rem", {p.a, p.b});
  if (is_unsigned_int(c.dtype(p.a))) return c.out(rest);
  c.out(c.op("select", {is_beyond(c, rest, p.b), c.add(rest, p.b), rest}));
}

void import_fmod(AtenContext& c) {
  const Pair p = pair_of(c, c.result_dtype(promoted(c)));
  c.out(c.op("rem", {p.a, p.b}));
}

void import_pow(AtenContext& c) {
  const DType dtype = c.result_dtype(promoted(c, "self", "exponent"));
  if (c.operand("exponent").weight == Operand::Weight::kNumber) {
    const ValueId x = c.as("self", dtype);
    const double exponent = c.number("exponent");
    if (exponent == 1) return c.out(x);
    if (exponent == 2) return c.out(c.mul(x, x));
    if (exponent == 3) return c.out(c.mul(c.mul(x, x), x));
    if (exponent == 0.5 && is_float(dtype)) return c.out(c.op("sqrt", {x}));
    if (exponent == -0.5 && is_float(dtype)) return c.out(c.div(c.scalar_like(x, 1), c.op("sqrt", {x})));
    if (exponent == -1 && is_float(dtype)) return c.out(c.div(c.scalar_like(x, 1), x));
  }
  const Pair p = pair_of(c, dtype, "self", "exponent");
  c.out(c.op("pow", {p.a, p.b}));
}

template <const char* kName>
void as_binary(AtenContext& c) {
  const Pair p = pair_of(c, c.result_dtype(promoted(c)));
  c.out(c.op(kName, {p.a, p.b}));
}
template <const char* kName>
void as_comparison(AtenContext& c) {
  Pair p = promoted_pair(c);
  if (c.dtype(p.a) == DType::kBool) p = pair_of(c, DType::kU8);
  c.out(c.op(kName, {p.a, p.b}));
}
template <const char* kName>
void as_logical(AtenContext& c) {
  const Pair p = pair_of(c, DType::kBool);
  c.out(c.op(kName, {p.a, p.b}));
}
template <const char* kBitwise, const char* kLogical>
void as_bitwise(AtenContext& c) {
  const Pair p = promoted_pair(c);
  c.out(c.op(c.dtype(p.a) == DType::kBool ? kLogical : kBitwise, {p.a, p.b}));
}
template <const char* kName>
void as_extremum(AtenContext& c) {
  const DType dtype = c.result_dtype(promoted(c));
  if (dtype != DType::kBool) {
    const Pair p = pair_of(c, dtype);
    return c.out(c.op(kName, {p.a, p.b}));
  }
  const Pair p = pair_of(c, DType::kU8);
  c.out(c.cast(c.op(kName, {p.a, p.b}), DType::kBool));
}

constexpr char kAnd[] = "bitwise_and", kOr[] = "bitwise_or", kXor[] = "bitwise_xor", kLogicalAnd[] = "logical_and",
               kLogicalOr[] = "logical_or", kLogicalXor[] = "logical_xor", kEq[] = "eq", kNe[] = "ne", kLt[] = "lt",
               kLe[] = "le", kGt[] = "gt", kGe[] = "ge", kMax[] = "max", kMin[] = "min", kShiftLeft[] = "shift_left",
               kShiftRight[] = "shift_right";

void import_atan2(AtenContext& c) {
  const auto [y, x] = pair_of(c, c.result_dtype(promoted(c)));
  c.out(angle_of(c, y, x));
}

// self + value * tensor1 * tensor2, or / tensor2.
void import_addcmul(AtenContext& c) {
  const DType dtype = c.result_dtype(c.dtype(c.tensor("self")));
  const ValueId product = c.mul(c.as("tensor1", dtype), c.as("tensor2", dtype));
  c.out(c.add(c.as("self", dtype), scaled(c, product, c.number("value", 1))));
}
void import_addcdiv(AtenContext& c) {
  const DType dtype = c.result_dtype(c.dtype(c.tensor("self")));
  const ValueId quotient = c.div(c.as("tensor1", dtype), c.as("tensor2", dtype));
  c.out(c.add(c.as("self", dtype), scaled(c, quotient, c.number("value", 1))));
}

void import_lerp(AtenContext& c) {
  const ValueId start = c.tensor("self"), end = c.tensor("end");
  c.out(c.add(start, c.mul(c.as("weight", c.dtype(start)), c.sub(end, start))));
}

// ---- conversions; values are immutable here, so a copy is the value ----

void import_conversion(AtenContext& c) {
  const ValueId x = c.tensor(c.has("self") ? "self" : "a");
  const DType to = c.result_dtype(c.dtype(x));
  // PyTorch cuts fractions off and wraps; our conversion cuts them off and saturates.
  c.out(c.cast(x, to));
}

void import_same(AtenContext& c) { c.out(c.tensor("self")); }

void import_dropout(AtenContext& c) {
  const ValueId x = c.tensor("input");
  if (c.truth("train", false) && c.number("p", 0.5) != 0) c.unsupported("dropout while training");
  c.out(x);
}

// self takes the elements of src, broadcast and converted.
void import_copy(AtenContext& c) {
  const ValueId x = c.tensor("self");
  c.out(c.broadcast(c.cast(c.tensor("src"), c.dtype(x)), c.shape(x)));
}

}  // namespace

std::span<const AtenOperator> elementwise_operators() {
  static constexpr AtenOperator table[] = {
      {"__and__", as_bitwise<kAnd, kLogicalAnd>},
      {"__lshift__", as_binary<kShiftLeft>},
      {"__or__", as_bitwise<kOr, kLogicalOr>},
      {"__rshift__", as_binary<kShiftRight>},
      {"__xor__", as_bitwise<kXor, kLogicalXor>},
      {"_to_copy", import_conversion},
      {"add", import_add},
      {"addcdiv", import_addcdiv},
      {"addcmul", import_addcmul},
      {"alias", import_same},
      {"atan2", import_atan2},
      {"bitwise_and", as_bitwise<kAnd, kLogicalAnd>},
      {"bitwise_left_shift", as_binary<kShiftLeft>},
      {"bitwise_or", as_bitwise<kOr, kLogicalOr>},
      {"bitwise_right_shift", as_binary<kShiftRight>},
      {"bitwise_xor", as_bitwise<kXor, kLogicalXor>},
      {"clone", import_same},
      {"contiguous", import_same},
      {"copy", import_copy},
      {"detach", import_same},
      {"div", import_div},
      {"dropout", import_dropout},
      {"eq", as_comparison<kEq>},
      {"feature_dropout", import_dropout},
      {"floor_divide", import_floor_divide},
      {"fmod", import_fmod},
      {"ge", as_comparison<kGe>},
      {"gt", as_comparison<kGt>},
      {"le", as_comparison<kLe>},
      {"lerp", import_lerp},
      {"lift_fresh", import_same},
      {"lift_fresh_copy", import_same},
      {"logical_and", as_logical<kLogicalAnd>},
      {"logical_or", as_logical<kLogicalOr>},
      {"logical_xor", as_logical<kLogicalXor>},
      {"lt", as_comparison<kLt>},
      {"maximum", as_extremum<kMax>},
      {"minimum", as_extremum<kMin>},
      {"mul", import_mul},
      {"native_dropout", import_dropout},
      {"ne", as_comparison<kNe>},
      {"pow", import_pow},
      {"prims.convert_element_type", import_conversion},  // of sizes that PyTorch computes with as tensors
      {"remainder", import_remainder},
      {"rsub", import_rsub},
      {"sub", import_sub},
      {"to", import_conversion},
      {"true_divide", import_div},
      {"type_as", import_conversion},
  };
  return table;
}

}  // namespace tessera::inline aten
