// Functions of single elements.
#include <cmath>
#include <limits>
#include <numbers>

#include "import/aten/operators/handlers.h"

namespace tessera::inline aten {

ValueId scaled(AtenContext& c, ValueId x, double factor) {
  return factor == 1 ? x : c.mul(x, c.scalar_like(x, factor));
}

ValueId in_wide_float(AtenContext& c, ValueId x) {
  return is_float(c.dtype(x)) && dtype_bits(c.dtype(x)) < 32 ? c.cast(x, DType::kF32) : x;
}

ValueId clamped(AtenContext& c, ValueId x, double low, double high) {
  return c.composite("clip", {x, c.scalar_like(x, low), c.scalar_like(x, high)});
}

namespace {

// The operand in the dtype that the program gives the result: sqrt of integers is one of floats.
ValueId operand_of_result(AtenContext& c) {
  const ValueId x = c.tensor("self");
  return c.cast(x, c.result_dtype(c.dtype(x)));
}

// The primitive or composite of the same meaning.
template <const char* kName>
void as_primitive(AtenContext& c) {
  c.out(c.op(kName, {operand_of_result(c)}));
}
template <const char* kName>
void as_composite(AtenContext& c) {
  c.out(c.composite(kName, {operand_of_result(c)}));
}
// A question about elements, whose answer is a bool.
template <const char* kName>
void as_question(AtenContext& c) {
  const ValueId x = c.tensor("self");
  c.out(is_float(c.dtype(x)) ? c.op(kName, {x}) : c.zeros(DType::kBool, c.shape(x)));
}

constexpr char kAbs[] = "abs", kAcos[] = "acos", kAcosh[] = "acosh", kAsin[] = "asin", kAsinh[] = "asinh",
               kAtan[] = "atan", kAtanh[] = "atanh", kCeil[] = "ceil", kCos[] = "cos", kCosh[] = "cosh", kErf[] = "erf",
               kExp[] = "exp", kFloor[] = "floor", kHardSwish[] = "hard_swish", kIsInf[] = "is_inf",
               kIsNan[] = "is_nan", kLog[] = "log", kMish[] = "mish", kNeg[] = "neg", kRelu[] = "relu",
               kSigmoid[] = "sigmoid", kSilu[] = "silu", kSin[] = "sin", kSinh[] = "sinh", kSqrt[] = "sqrt",
               kTan[] = "tan", kTanh[] = "tanh";

// Rounding of integers leaves them as they are.
template <const char* kName>
void as_rounding(AtenContext& c) {
  const ValueId x = c.tensor("self");
  c.out(is_float(c.dtype(x)) ? c.op(kName, {x}) : x);
}

void import_round(AtenContext& c) {
  const int64_t decimals = c.whole("decimals", 0);
  const ValueId x = c.tensor("self");
  if (!is_float(c.dtype(x))) return c.out(x);
  if (decimals == 0) return c.out(c.op("round", {x}));
  const ValueId power = c.scalar_like(x, std::pow(10.0, static_cast<double>(std::abs(decimals))));
  if (decimals > 0) c.out(c.div(c.op("round", {c.mul(x, power)}), power));
  else c.out(c.mul(c.op("round", {c.div(x, power)}), power));
}

ValueId truncated(AtenContext& c, ValueId x) {
  return c.op("select", {c.op("lt", {x, c.scalar_like(x, 0)}), c.op("ceil", {x}), c.op("floor", {x})});
}

void import_trunc(AtenContext& c) {
  const ValueId x = c.tensor("self");
  c.out(is_float(c.dtype(x)) ? truncated(c, x) : x);
}

void import_frac(AtenContext& c) {
  const ValueId x = c.tensor("self");
  c.out(c.sub(x, truncated(c, x)));
}

// A NaN has the sign 0.
void import_sign(AtenContext& c) {
  const ValueId x = c.tensor("self");
  if (c.dtype(x) == DType::kBool) return c.out(x);
  const ValueId sign = c.op("sign", {x});
  c.out(is_float(c.dtype(x)) ? c.op("select", {c.op("is_nan", {x}), c.scalar_like(x, 0), sign}) : sign);
}

void import_logical_not(AtenContext& c) { c.out(c.op("logical_not", {c.cast(c.tensor("self"), DType::kBool)})); }

void import_bitwise_not(AtenContext& c) {
  const ValueId x = c.tensor("self");
  c.out(c.op(c.dtype(x) == DType::kBool ? "logical_not" : "bitwise_not", {x}));
}

void import_isfinite(AtenContext& c) {
  const ValueId x = c.tensor("self");
  if (!is_float(c.dtype(x))) return c.out(c.op("logical_not", {c.zeros(DType::kBool, c.shape(x))}));
  c.out(c.op("logical_not", {c.op("logical_or", {c.op("is_nan", {x}), c.op("is_inf", {x})})}));
}

void import_rsqrt(AtenContext& c) {
  const ValueId x = operand_of_result(c);
  c.out(c.div(c.scalar_like(x, 1), c.op("sqrt", {x})));
}

void import_reciprocal(AtenContext& c) {
  const ValueId x = operand_of_result(c);
  c.out(c.div(c.scalar_like(x, 1), x));
}

void import_square(AtenContext& c) {
  const ValueId x = operand_of_result(c);
  c.out(c.mul(x, x));
}

void import_expm1(AtenContext& c) { c.out(exp_minus_one(c, operand_of_result(c))); }
void import_log1p(AtenContext& c) { c.out(log_one_plus(c, operand_of_result(c))); }

void log_over(AtenContext& c, double base) {
  const ValueId x = operand_of_result(c);
  c.out(c.mul(c.op("log", {x}), c.scalar_like(x, 1 / std::log(base))));
}
void import_log2(AtenContext& c) { log_over(c, 2); }
void import_log10(AtenContext& c) { log_over(c, 10); }

void import_exp2(AtenContext& c) {
  const ValueId x = operand_of_result(c);
  c.out(c.op("exp", {scaled(c, x, std::numbers::ln2)}));
}

void import_gelu(AtenContext& c) {
  const std::string approximate = c.text("approximate", "none");
  c.out(c.composite("gelu", {c.tensor("self")}, approximate == "tanh" ? Attrs{{"approximate", approximate}} : Attrs{}));
}

void import_leaky_relu(AtenContext& c) {
  c.out(c.composite("leaky_relu", {c.tensor("self")}, {{"alpha", c.number("negative_slope", 0.01)}}));
}

// scale * x above 0, else scale * alpha * (exp(input_scale * x) - 1).
void import_elu(AtenContext& c) {
  const ValueId x = c.tensor("self");
  const double alpha = c.number("alpha", 1), scale = c.number("scale", 1), input_scale = c.number("input_scale", 1);
  if (input_scale != 1) {
    const ValueId low = scaled(c, c.sub(c.op("exp", {scaled(c, x, input_scale)}), c.scalar_like(x, 1)), alpha);
    return c.out(scaled(c, c.op("select", {c.op("gt", {x, c.scalar_like(x, 0)}), x, low}), scale));
  }
  c.out(scaled(c, c.composite("elu", {x}, {{"alpha", alpha}}), scale));
}

void import_selu(AtenContext& c) {
  c.out(c.composite("selu", {c.tensor("self")},
                    {{"alpha", 1.6732632423543772848170429916717}, {"gamma", 1.0507009873554804934193349852946}}));
}

void import_celu(AtenContext& c) { c.out(c.composite("celu", {c.tensor("self")}, {{"alpha", c.number("alpha", 1)}})); }

// log(1 + exp(beta x)) / beta; x itself where beta x is above the threshold.
void import_softplus(AtenContext& c) {
  const ValueId x = c.tensor("self");
  const double beta = c.number("beta", 1), threshold = c.number("threshold", 20);
  const ValueId inner = scaled(c, x, beta);
  const ValueId soft = scaled(c, c.composite("softplus", {inner}), 1 / beta);
  c.out(c.op("select", {c.op("gt", {inner, c.scalar_like(x, threshold)}), x, soft}));
}

void import_hardsigmoid(AtenContext& c) {
  c.out(c.composite("hard_sigmoid", {c.tensor("self")}, {{"alpha", 1.0 / 6}, {"beta", 0.5}}));
}

void import_hardtanh(AtenContext& c) {
  c.out(clamped(c, c.tensor("self"), c.number("min_val", -1), c.number("max_val", 1)));
}

void import_relu6(AtenContext& c) { c.out(clamped(c, c.tensor("self"), 0, 6)); }

// min(x, 0) - log(1 + exp(-|x|)).
void import_log_sigmoid(AtenContext& c) {
  const ValueId x = c.tensor("self");
  c.out(c.op("neg", {c.composite("softplus", {c.op("neg", {x})})}));
}

void import_threshold(AtenContext& c) {
  const ValueId x = c.tensor("self");
  c.out(c.op("select", {c.op("le", {x, c.as("threshold", c.dtype(x))}), c.as("value", c.dtype(x)), x}));
}

void import_softshrink(AtenContext& c) {
  const ValueId x = c.tensor("self");
  const ValueId lambda = c.scalar_like(x, c.number("lambd", 0.5));
  const ValueId low = c.op("min", {c.add(x, lambda), c.scalar_like(x, 0)});
  c.out(c.add(c.op("max", {c.sub(x, lambda), c.scalar_like(x, 0)}), low));
}

void import_hardshrink(AtenContext& c) {
  const ValueId x = c.tensor("self");
  const ValueId small = c.op("le", {c.op("abs", {x}), c.scalar_like(x, c.number("lambd", 0.5))});
  c.out(c.op("select", {small, c.scalar_like(x, 0), x}));
}

void import_logit(AtenContext& c) {
  ValueId x = operand_of_result(c);
  if (c.has("eps")) x = clamped(c, x, c.number("eps"), 1 - c.number("eps"));
  c.out(c.op("log", {c.div(x, c.sub(c.scalar_like(x, 1), x))}));
}

void import_nan_to_num(AtenContext& c) {
  const ValueId x = c.tensor("self");
  if (!is_float(c.dtype(x))) return c.out(x);
  const double most = c.dtype(x) == DType::kF64    ? std::numeric_limits<double>::max()
                      : c.dtype(x) == DType::kF16  ? 65504
                      : c.dtype(x) == DType::kBF16 ? 3.3895313892515355e38
                                                   : static_cast<double>(std::numeric_limits<float>::max());
  const ValueId no_nan = c.op("select", {c.op("is_nan", {x}), c.scalar_like(x, c.number("nan", 0)), x});
  const ValueId above = c.op("gt", {x, c.scalar_like(x, most)}), below = c.op("lt", {x, c.scalar_like(x, -most)});
  const ValueId bounded = c.op("select", {above, c.scalar_like(x, c.number("posinf", most)), no_nan});
  c.out(c.op("select", {below, c.scalar_like(x, c.number("neginf", -most)), bounded}));
}

// Halves along a dimension: the first times the sigmoid of the second.
void import_glu(AtenContext& c) {
  const ValueId x = c.tensor("self");
  const auto axis = static_cast<size_t>(c.dimension("dim", c.rank(x), -1));
  std::vector<int64_t> starts(static_cast<size_t>(c.rank(x)), 0), sizes = c.dims(x);
  const std::vector<int64_t> steps(sizes.size(), 1);
  sizes[axis] /= 2;
  const ValueId first = c.slice(x, starts, sizes, steps);
  starts[axis] = sizes[axis];
  c.out(c.mul(first, c.composite("sigmoid", {c.slice(x, starts, sizes, steps)})));
}

}  // namespace

std::span<const AtenOperator> unary_operators() {
  static constexpr AtenOperator table[] = {
      {"abs", as_primitive<kAbs>},
      {"acos", as_primitive<kAcos>},
      {"acosh", as_primitive<kAcosh>},
      {"asin", as_primitive<kAsin>},
      {"asinh", as_primitive<kAsinh>},
      {"atan", as_primitive<kAtan>},
      {"atanh", as_primitive<kAtanh>},
      {"bitwise_not", import_bitwise_not},
      {"ceil", as_rounding<kCeil>},
      {"celu", import_celu},
      {"cos", as_primitive<kCos>},
      {"cosh", as_primitive<kCosh>},
      {"elu", import_elu},
      {"erf", as_primitive<kErf>},
      {"exp", as_primitive<kExp>},
      {"exp2", import_exp2},
      {"expm1", import_expm1},
      {"floor", as_rounding<kFloor>},
      {"frac", import_frac},
      {"gelu", import_gelu},
      {"glu", import_glu},
      {"hardshrink", import_hardshrink},
      {"hardsigmoid", import_hardsigmoid},
      {"hardswish", as_composite<kHardSwish>},
      {"hardtanh", import_hardtanh},
      {"isfinite", import_isfinite},
      {"isinf", as_question<kIsInf>},
      {"isnan", as_question<kIsNan>},
      {"leaky_relu", import_leaky_relu},
      {"log", as_primitive<kLog>},
      {"log10", import_log10},
      {"log1p", import_log1p},
      {"log2", import_log2},
      {"log_sigmoid", import_log_sigmoid},
      {"log_sigmoid_forward", import_log_sigmoid},
      {"logical_not", import_logical_not},
      {"logit", import_logit},
      {"mish", as_composite<kMish>},
      {"nan_to_num", import_nan_to_num},
      {"neg", as_primitive<kNeg>},
      {"reciprocal", import_reciprocal},
      {"relu", as_composite<kRelu>},
      {"relu6", import_relu6},
      {"round", import_round},
      {"rsqrt", import_rsqrt},
      {"selu", import_selu},
      {"sigmoid", as_composite<kSigmoid>},
      {"sign", import_sign},
      {"silu", as_composite<kSilu>},
      {"sin", as_primitive<kSin>},
      {"sinh", as_primitive<kSinh>},
      {"softplus", import_softplus},
      {"softshrink", import_softshrink},
      {"sqrt", as_primitive<kSqrt>},
      {"square", import_square},
      {"tan", as_primitive<kTan>},
      {"tanh", as_primitive<kTanh>},
      {"threshold", import_threshold},
      {"trunc", import_trunc},
  };
  return table;
}

}  // namespace tessera::inline aten
