// Operators that work element by element, and casts.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "arith/simplify.h"
#include "import/onnx/operators/handlers.h"
#include "import/onnx/read/dtypes.h"

namespace tessera::inline onnx_import {
namespace {

// Where-style constants of the operand's type that a double cannot hold are not needed here: all are small.
bool is_f8(DType dtype) { return is_float(dtype) && dtype_bits(dtype) <= 8; }

// Small floats have no arithmetic of their own.
ValueId widened(NodeContext& c, ValueId v) { return is_f8(c.dtype(v)) ? c.cast(v, DType::kF32) : v; }

double largest_f8(DType dtype) {
  switch (dtype) {
    case DType::kF8E4M3FN: return 448;
    case DType::kF8E4M3FNUZ: return 240;
    default: return 57344;  // both e5m2 forms
  }
}

}  // namespace

// ONNX saturates casts to 8-bit floats by default: values out of range, infinities too, become the largest one.
ValueId cast_to(NodeContext& c, ValueId x, DType to, bool saturate) {
  const DType from = c.dtype(x);
  if (c.is_string(x) || to == DType::kString) return cast_strings(c, x, to);
  if (from == to) return x;
  if (saturate && is_f8(to) && to != DType::kF8E8M0 && to != DType::kF4E2M1 && is_float(from)) {
    x = widened(c, x);
    const double limit = largest_f8(to);
    x = c.op("min", {c.op("max", {x, c.scalar_like(x, -limit)}), c.scalar_like(x, limit)});
  }
  // Floats become integers of less than 8 bits by wrapping, not by saturating.
  if (is_int(to) && dtype_bits(to) < 8 && is_float(from)) x = c.cast(x, DType::kI32);
  return c.cast(x, to);
}

namespace {

void check_round_mode(NodeContext& c, DType to) {
  const std::string mode = c.attrs.get_string("round_mode", "up");
  if (to == DType::kF8E8M0 && mode != "up") c.unsupported(fmt::format("round_mode '{}'", mode));
}

// A scalar operand may also be given as a tensor of one element.
ValueId as_scalar(NodeContext& c, ValueId v) {
  if (!c.has_one_element(v)) c.malformed(fmt::format("an operand of type {}", c.type(v).to_string()), "one element");
  return c.reshape(v, {});
}

}  // namespace

// Before opset 7 the second operand is broadcast only if `broadcast` says so: it is a part of the first one's shape,
// which begins at `axis` or, without that, ends where the first one does.
ValueId aligned_operand(NodeContext& c, ValueId a, ValueId b) {
  if (c.version() >= 7) return b;
  const bool broadcast = c.attrs.get_int("broadcast", 0) != 0;
  const int rank_a = c.rank(a), rank_b = c.rank(b);
  const int64_t last = std::max(0, rank_a - rank_b);
  const int64_t given = c.attrs.get_int("axis", last);
  const int64_t axis = given < 0 ? given + rank_a : given;
  Shape shape = c.shape(b);
  if (!broadcast) {
    if (same_shape(shape, c.shape(a))) return b;
  } else if (c.has_one_element(b)) {
    return c.reshape(b, {});
  } else if (rank_b <= rank_a && axis >= 0 && axis <= last) {
    shape.resize(shape.size() + static_cast<size_t>(last - axis), 1);
    const Shape& dims = c.shape(a);
    bool fits = true;
    for (size_t d = 0; d < shape.size(); ++d)
      fits = fits && (is_const_int(shape[d], 1) || equal_sizes(shape[d], dims[dims.size() - shape.size() + d]));
    if (fits) return c.reshape(b, shape);
  }
  c.malformed(
      fmt::format("operands of type {} and {} with broadcast = {}, axis = {}", c.type(a).to_string(),
                  c.type(b).to_string(), broadcast ? 1 : 0, given),
      "before opset 7: equal shapes, or broadcast = 1 and a second operand whose shape is a part of the first's");
}

namespace {

void import_unary(NodeContext& c) {
  c.require_inputs(1, 1);
  c.out(0, c.op(c.primitive(), {c.in(0)}));
}

void import_binary(NodeContext& c) {
  c.require_inputs(2, 2);
  c.out(0, c.op(c.primitive(), {c.in(0), aligned_operand(c, c.in(0), c.in(1))}));
}

void import_bit_shift(NodeContext& c) {
  c.require_inputs(2, 2);
  const std::string direction = c.attrs.get_string("direction", "");
  if (direction != "LEFT" && direction != "RIGHT")
    c.malformed(fmt::format("direction is '{}'", direction), "LEFT or RIGHT");
  c.out(0, c.op(direction == "LEFT" ? "shift_left" : "shift_right", {c.in(0), c.in(1)}));
}

namespace {

// The remainders of sizes by positive numbers, which are sizes again; empty for other operands.
std::optional<ValueId> size_remainders(NodeContext& c, ValueId a, ValueId b) {
  if (c.attrs.get_int("fmod", 0) != 0 || c.dtype(a) != DType::kI64 || c.dtype(b) != DType::kI64) return std::nullopt;
  if (c.constant(a) && c.constant(b)) return std::nullopt;
  const auto x = c.known_sizes(a), y = c.known_sizes(b);
  if (!x || !y || x->empty() || (x->size() != y->size() && y->size() != 1)) return std::nullopt;
  Shape rests;
  for (size_t i = 0; i < x->size(); ++i) {
    const Expr& divisor = (*y)[y->size() == 1 ? 0 : i];
    if (!size_at_most(1, divisor)) return std::nullopt;
    rests.push_back((*x)[i] - divisor * floordiv((*x)[i], divisor));
  }
  const ValueId values = c.size_values(rests);
  return c.rank(a) == 0 && c.rank(b) == 0 ? c.reshape(values, {}) : values;
}

}  // namespace

// fmod = 1 keeps the sign of a (C's fmod); otherwise the result has the sign of b.
void import_mod(NodeContext& c) {
  c.require_inputs(2, 2);
  const ValueId a = c.in(0), b = c.in(1);
  if (const auto sizes = size_remainders(c, a, b)) return c.out(0, *sizes);
  ValueId rest = c.op("rem", {a, b});
  const bool is_signed = is_float(c.dtype(a)) || is_signed_int(c.dtype(a));
  if (c.attrs.get_int("fmod", 0) == 0 && is_signed) {
    const ValueId zero = c.scalar_like(a, 0);
    const ValueId signs_differ = c.op("logical_xor", {c.op("lt", {rest, zero}), c.op("lt", {b, zero})});
    const ValueId adjust = c.op("logical_and", {signs_differ, c.op("ne", {rest, zero})});
    rest = c.op("select", {adjust, c.add(rest, b), rest});
    if (is_float(c.dtype(a))) {  // a zero has it too
      const ValueId signed_zero = c.op("select", {c.op("lt", {b, zero}), c.scalar_like(a, -0.0), zero});
      rest = c.op("select", {c.op("eq", {rest, zero}), signed_zero, rest});
    }
  }
  c.out(0, rest);
}

// The result has the type of the base; the exponent may have another one.
void import_pow(NodeContext& c) {
  c.require_inputs(2, 2);
  const ValueId base = c.in(0), exponent = aligned_operand(c, base, c.in(1));
  const DType dtype = c.dtype(base);
  if (!is_float(dtype) && is_float(c.dtype(exponent))) {
    const ValueId wide = c.op("pow", {c.cast(base, DType::kF64), c.cast(exponent, DType::kF64)});
    // pow is right to a few ulps; the cast cuts off, so an exact power that came out just below itself is lifted first.
    return c.out(0, c.cast(c.op("mul", {wide, c.scalar_like(wide, 1 + 0x1p-46)}), dtype));
  }
  c.out(0, c.op("pow", {base, c.cast(exponent, dtype)}));
}

void import_variadic(NodeContext& c) {
  c.require_inputs(1, -1);
  ValueId result = c.in(0);
  for (int i = 1; i < c.num_inputs(); ++i) result = c.op(c.primitive(), {result, c.in(i)});
  c.out(0, result);
}

void import_mean(NodeContext& c) {
  c.require_inputs(1, -1);
  ValueId sum = c.in(0);
  for (int i = 1; i < c.num_inputs(); ++i) sum = c.add(sum, c.in(i));
  c.out(0, c.num_inputs() == 1 ? sum : c.div(sum, c.scalar_like(sum, c.num_inputs())));
}

void import_where(NodeContext& c) {
  c.require_inputs(3, 3);
  c.out(0, c.op("select", c.all_inputs()));
}

void import_cast(NodeContext& c) {
  c.require_inputs(1, 1);
  // Before opset 6 the data type is given by its name.
  const int64_t number = c.version() < 6 ? onnx_dtype_number(c.attrs.get_string("to", "")) : c.attrs.require_int("to");
  if (c.version() < 6 && number < 0)
    c.malformed(fmt::format("to is '{}'", c.attrs.get_string("to", "")), "the name of a data type");
  const auto to = dtype_of_onnx(number);
  if (!to) c.unsupported(fmt::format("a cast to the data type {}", onnx_dtype_name(number)));
  check_round_mode(c, *to);
  c.out(0, cast_to(c, c.in(0), *to, c.attrs.get_int("saturate", 1) != 0));
}

void import_bit_cast(NodeContext& c) {
  c.require_inputs(1, 1);
  const int64_t number = c.attrs.require_int("to");
  const auto to = dtype_of_onnx(number);
  const ValueId x = c.in(0);
  if (!to || *to == DType::kString) c.unsupported(fmt::format("to = {}", onnx_dtype_name(number)));
  if (dtype_bits(*to) != dtype_bits(c.dtype(x)))
    c.malformed(fmt::format("an operand of type {} as {}", c.type(x).to_string(), dtype_name(*to)),
                "a type of as many bits");
  c.out(0, *to == c.dtype(x) ? x : c.op("bitcast", {x}, {{"to", *to}}));
}

void import_cast_like(NodeContext& c) {
  c.require_inputs(2, 2);
  const DType to = c.is_string(c.in(1)) ? DType::kString : c.dtype(c.in(1));
  check_round_mode(c, to);
  c.out(0, cast_to(c, c.in(0), to, c.attrs.get_int("saturate", 1) != 0));
}

void import_identity(NodeContext& c) {
  c.require_inputs(1, 1);
  c.out(0, c.binding(0));
}

// Uniform numbers in [0, 1) of 53 bits from a Mersenne twister: those that the standard's reference draws for a seed.
Tensor uniform_numbers(uint32_t seed, const std::vector<int64_t>& dims) {
  std::mt19937 twister(seed);
  Tensor numbers(DType::kF64, dims);
  for (int64_t i = 0; i < numbers.num_elements(); ++i) {
    const uint32_t high = static_cast<uint32_t>(twister()) >> 5, low = static_cast<uint32_t>(twister()) >> 6;
    numbers.set_double(i, (high * 67108864.0 + low) / 9007199254740992.0);
  }
  return numbers;
}

// Where the model is to be trained, whether an exporter says that it is being trained or not: a composite that says how
// many elements a step drops.
void import_dropout_to_train(NodeContext& c) {
  for (const char* name : {"is_test", "consumed_inputs"}) c.attrs.ignore(name);
  Attrs attrs;
  if (c.version() < 12) attrs.set("ratio", c.attrs.get_float("ratio", 0.5));
  else attrs.set("ratio", c.has(1) ? c.const_float(1, "ratio") : 0.5);
  if (c.attrs.has("seed")) attrs.set("seed", c.attrs.get_int("seed", 0));
  const ValueId x = c.in(0);
  if (!c.wants(1)) return c.out(0, c.composite("dropout", {x}, attrs));
  const ValueId factors = c.composite("dropout", {c.broadcast(c.scalar_like(x, 1), c.shape(x))}, attrs);
  c.out(0, c.mul(x, factors));
  const ValueId mask = c.op("ne", {factors, c.scalar_like(x, 0)});
  c.out(1, c.version() >= 10 ? mask : c.cast(mask, c.dtype(x)));
}

// For inference the values pass, and the mask is all true, as it is with a ratio of 0. Training with a seed drops the
// same elements in every run; without one a run that asks for it is refused.
void import_dropout(NodeContext& c) {
  c.require_inputs(1, 3);
  if (c.state().for_training) return import_dropout_to_train(c);
  c.attrs.ignore("ratio");
  if (c.version() < 7 && c.attrs.get_int("is_test", 0) == 0) c.unsupported("is_test = 0; only inference is supported");
  const bool seeded = c.attrs.has("seed");
  const int64_t seed = c.attrs.get_int("seed", 0);
  const ValueId x = c.in(0);
  const auto pass = [&] {
    c.out(0, x);
    if (c.wants(1)) c.out(1, c.broadcast(c.scalar(c.version() >= 10 ? DType::kBool : c.dtype(x), 1), c.shape(x)));
  };
  if (c.version() < 12 || !c.has(2)) return pass();
  const auto known = [&](int i) { return c.has(i) && !c.is_runtime(i); };
  if (known(1) && c.const_float(1, "ratio") == 0) return pass();
  if (c.num_elements(c.in(2)) != 1)
    c.malformed(fmt::format("training_mode of type {}", c.type(c.in(2)).to_string()), "one element");
  if (known(2) && c.const_tensor(2, "training_mode").get_int(0) == 0) return pass();
  const ValueId training = c.reshape(c.cast(c.in(2), DType::kBool), {});
  const ValueId ratio = c.has(1) ? c.cast(c.reshape(c.in(1), {}), DType::kF64) : c.scalar(DType::kF64, 0.5);
  const ValueId off =
      c.op("logical_or", {c.op("logical_not", {training}), c.op("eq", {ratio, c.scalar(DType::kF64, 0)})});
  constexpr int64_t kMostNumbers = 1 << 22;  // they are stored
  if (!seeded || c.num_elements(x) > kMostNumbers) {
    if (known(2) && (known(1) || !c.has(1)))
      c.unsupported(fmt::format("training_mode is true without a seed, or for more than {} elements", kMostNumbers));
    c.check_when_run(2, "training_mode", off, c.reshape(training, {1}), "inference, or a ratio of 0");
    return pass();
  }
  const ValueId numbers = c.constant_value(uniform_numbers(static_cast<uint32_t>(seed), c.dims(x)));
  const ValueId keep = c.op("logical_or", {off, c.op("ge", {numbers, ratio})});
  const ValueId rest = c.op("select", {off, c.scalar(DType::kF64, 1), c.sub(c.scalar(DType::kF64, 1), ratio)});
  const ValueId scaled = c.mul(x, c.cast(c.div(c.scalar(DType::kF64, 1), rest), c.dtype(x)));
  c.out(0, c.op("select", {keep, scaled, c.scalar_like(x, 0)}));
  c.out(1, keep);
}

void import_is_inf(NodeContext& c) {
  c.require_inputs(1, 1);
  const bool negative = c.attrs.get_int("detect_negative", 1) != 0;
  const bool positive = c.attrs.get_int("detect_positive", 1) != 0;
  const ValueId x = widened(c, c.in(0));
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (negative && positive) return c.out(0, c.op("is_inf", {x}));
  if (negative || positive) return c.out(0, c.op("eq", {x, c.scalar_like(x, positive ? kInfinity : -kInfinity)}));
  c.out(0, c.broadcast(c.scalar(DType::kBool, 0), c.shape(x)));
}

void import_is_nan(NodeContext& c) {
  c.require_inputs(1, 1);
  c.out(0, c.op("is_nan", {widened(c, c.in(0))}));
}

void import_reciprocal(NodeContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = c.in(0);
  c.out(0, c.div(c.scalar_like(x, 1), x));
}

// Bounds were attributes before opset 11; either may be left out.
void import_clip(NodeContext& c) {
  c.require_inputs(1, c.version() < 11 ? 1 : 3);
  const ValueId x = c.in(0);
  std::optional<ValueId> lo, hi;
  if (c.version() < 11) {
    if (c.attrs.has("min")) lo = c.scalar_like(x, c.attrs.get_float("min", 0));
    if (c.attrs.has("max")) hi = c.scalar_like(x, c.attrs.get_float("max", 0));
  } else {
    if (c.has(1)) lo = as_scalar(c, c.in(1));
    if (c.has(2)) hi = as_scalar(c, c.in(2));
  }
  if (lo && hi) return c.out(0, c.composite("clip", {x, *lo, *hi}));
  if (lo) return c.out(0, c.op("max", {x, *lo}));
  if (hi) return c.out(0, c.op("min", {x, *hi}));
  c.out(0, x);
}

}  // namespace

OperatorFamily elementwise_operators() {
  static constexpr OperatorImporter standard[] = {
      OperatorImporter{"Abs", 1, import_unary, "abs"},
      OperatorImporter{"Acos", 7, import_unary, "acos"},
      OperatorImporter{"Acosh", 9, import_unary, "acosh"},
      OperatorImporter{"Add", 1, import_binary, "add"},
      OperatorImporter{"And", 1, import_binary, "logical_and"},
      OperatorImporter{"Asin", 7, import_unary, "asin"},
      OperatorImporter{"Asinh", 9, import_unary, "asinh"},
      OperatorImporter{"Atan", 7, import_unary, "atan"},
      OperatorImporter{"Atanh", 9, import_unary, "atanh"},
      OperatorImporter{"BitCast", 26, import_bit_cast},
      OperatorImporter{"BitShift", 11, import_bit_shift},
      OperatorImporter{"BitwiseAnd", 18, import_binary, "bitwise_and"},
      OperatorImporter{"BitwiseNot", 18, import_unary, "bitwise_not"},
      OperatorImporter{"BitwiseOr", 18, import_binary, "bitwise_or"},
      OperatorImporter{"BitwiseXor", 18, import_binary, "bitwise_xor"},
      OperatorImporter{"Cast", 1, import_cast},
      OperatorImporter{"CastLike", 15, import_cast_like},
      OperatorImporter{"Ceil", 1, import_unary, "ceil"},
      OperatorImporter{"Clip", 1, import_clip},
      OperatorImporter{"Cos", 7, import_unary, "cos"},
      OperatorImporter{"Cosh", 9, import_unary, "cosh"},
      OperatorImporter{"Div", 1, import_binary, "div"},
      OperatorImporter{"Dropout", 1, import_dropout},
      OperatorImporter{"Equal", 1, import_binary, "eq"},
      OperatorImporter{"Erf", 9, import_unary, "erf"},
      OperatorImporter{"Exp", 1, import_unary, "exp"},
      OperatorImporter{"Floor", 1, import_unary, "floor"},
      OperatorImporter{"Greater", 1, import_binary, "gt"},
      OperatorImporter{"GreaterOrEqual", 12, import_binary, "ge"},
      OperatorImporter{"Identity", 1, import_identity},
      OperatorImporter{"IsInf", 10, import_is_inf},
      OperatorImporter{"IsNaN", 9, import_is_nan},
      OperatorImporter{"Less", 1, import_binary, "lt"},
      OperatorImporter{"LessOrEqual", 12, import_binary, "le"},
      OperatorImporter{"Log", 1, import_unary, "log"},
      OperatorImporter{"Max", 1, import_variadic, "max"},
      OperatorImporter{"Mean", 1, import_mean},
      OperatorImporter{"Min", 1, import_variadic, "min"},
      OperatorImporter{"Mod", 10, import_mod},
      OperatorImporter{"Mul", 1, import_binary, "mul"},
      OperatorImporter{"Neg", 1, import_unary, "neg"},
      OperatorImporter{"Not", 1, import_unary, "logical_not"},
      OperatorImporter{"Or", 1, import_binary, "logical_or"},
      OperatorImporter{"Pow", 1, import_pow},
      OperatorImporter{"Reciprocal", 1, import_reciprocal},
      OperatorImporter{"Round", 11, import_unary, "round"},
      OperatorImporter{"Sign", 9, import_unary, "sign"},
      OperatorImporter{"Sin", 7, import_unary, "sin"},
      OperatorImporter{"Sinh", 9, import_unary, "sinh"},
      OperatorImporter{"Sqrt", 1, import_unary, "sqrt"},
      OperatorImporter{"Sub", 1, import_binary, "sub"},
      OperatorImporter{"Sum", 1, import_variadic, "add"},
      OperatorImporter{"Tan", 7, import_unary, "tan"},
      OperatorImporter{"Tanh", 1, import_unary, "tanh"},
      OperatorImporter{"Where", 9, import_where},
      OperatorImporter{"Xor", 1, import_binary, "logical_xor"},
  };
  return {{"", standard}};
}

}  // namespace tessera::inline onnx_import
