// Activation functions: elementwise, one operand (clip and prelu take their bounds and slopes as operands).
#include <fmt/format.h>

#include <cmath>

#include "graph/adjoint.h"
#include "ops/composites/composites.h"
#include "ops/op_util.h"

namespace tessera::inline ops {
namespace {

using Result = std::vector<ValueId>;

void require_real(CompositeBody& b) { require_dtype(b.context(), 0, is_real, kRealTypes); }

AttrDef number(const char* name, const char* doc) { return {name, AttrKind::kFloat, true, doc}; }

double attr(CompositeBody& b, const char* name) { return b.attrs().get<double>(name); }

// 1 / (1 + exp(-x)): exp overflows to infinity for very negative x, which gives the right 0.
ValueId sigmoid(CompositeBody& b, ValueId x) {
  const ValueId e = b.add("exp", {b.add("neg", {x})});
  return b.add("div", {b.scalar(1), b.add_scalar("add", e, 1)});
}

// log(1 + exp(x)) = max(x, 0) + log(1 + e) with e = exp(-|x|) in 0 .. 1. Where 1 + e rounds, u = 1 + e and
// log(u) * e / (u - 1) keeps the digits that log(1 + e) would lose.
ValueId softplus(CompositeBody& b, ValueId x) {
  const ValueId e = b.add("exp", {b.add("neg", {b.add("abs", {x})})});
  const ValueId u = b.add_scalar("add", e, 1);
  const ValueId log1p = b.add("div", {b.add("mul", {b.add("log", {u}), e}), b.add_scalar("sub", u, 1)});
  const ValueId tail = b.add("select", {b.add_scalar("eq", u, 1), e, log1p});
  return b.add("add", {b.add_scalar("max", x, 0), tail});
}

// tanh(log(1 + t)) = n / (n + 2) with n = t * (t + 2), t = exp(x). From the bound on it is 1 in x's type, and n finite.
ValueId mish(CompositeBody& b, ValueId x) {
  const double bound = b.dtype() == DType::kF16 ? 5 : 20;
  const ValueId t = b.add("exp", {b.add_scalar("min", x, bound)});
  const ValueId n = b.add("mul", {t, b.add_scalar("add", t, 2)});
  return b.add("mul", {x, b.add("div", {n, b.add_scalar("add", n, 2)})});
}

// scale * (exp(x / divisor) - 1) for x < 0.
ValueId exponential_part(CompositeBody& b, ValueId x, double scale, double divisor) {
  ValueId below = b.add_scalar("min", x, 0);
  if (divisor != 1) below = b.add_scalar("div", below, divisor);
  const ValueId e = b.add_scalar("sub", b.add("exp", {below}), 1);
  return scale == 1 ? e : b.add_scalar("mul", e, scale);
}

ValueId elu(CompositeBody& b, ValueId x, double alpha) {
  return b.add("select", {b.add_scalar("lt", x, 0), exponential_part(b, x, alpha, 1), x});
}

Result relu(CompositeBody& b) {
  require_dtype(b.context(), 0, is_arithmetic, kArithmeticTypes);
  return {b.add_scalar("max", b.operand(0), 0)};
}

Result leaky_relu(CompositeBody& b) {
  require_real(b);
  const ValueId x = b.operand(0);
  return {b.add("select", {b.add_scalar("lt", x, 0), b.add_scalar("mul", x, attr(b, "alpha")), x})};
}

// The second and third operand must not make the result larger than the first.
void require_fits_first(CompositeBody& b) {
  require_same_dtype(b.context());
  for (size_t i = 1; i < b.num_operands(); ++i) {
    const Shape& x = b.type(b.operand(0)).shape;
    const Shape joint = broadcast_shapes(b.context(), x, b.type(b.operand(i)).shape);
    if (!same_shape(joint, x))
      b.context().fail("TSR-2023", describe_operand(b.context(), i),
                       "a shape that broadcasts to that of " + describe_operand(b.context(), 0));
  }
}

Result prelu(CompositeBody& b) {
  require_dtype(b.context(), 0, is_arithmetic, kArithmeticTypes);
  require_fits_first(b);
  const ValueId x = b.operand(0);
  return {b.add("select", {b.add_scalar("lt", x, 0), b.add("mul", {x, b.operand(1)}), x})};
}

Result clip(CompositeBody& b) {
  require_dtype(b.context(), 0, is_arithmetic, kArithmeticTypes);
  require_fits_first(b);
  return {b.add("min", {b.add("max", {b.operand(0), b.operand(1)}), b.operand(2)})};
}

// max(0, min(1, alpha * x + beta))
ValueId hard_sigmoid(CompositeBody& b, ValueId x, double alpha, double beta) {
  const ValueId line = b.add_scalar("add", b.add_scalar("mul", x, alpha), beta);
  return b.add_scalar("max", b.add_scalar("min", line, 1), 0);
}

Result gelu(CompositeBody& b) {
  require_real(b);
  const ValueId x = b.operand(0);
  const std::string mode = b.attrs().get_or<std::string>("approximate", "none");
  ValueId inner;
  if (require_word(b.context(), "approximate", mode, {"none", "tanh"}) == 0) {
    inner = b.add("erf", {b.add_scalar("mul", x, std::sqrt(0.5))});
  } else {
    const ValueId cube = b.add("mul", {b.add("mul", {x, x}), x});
    const ValueId sum = b.add("add", {x, b.add_scalar("mul", cube, 0.044715)});
    inner = b.add("tanh", {b.add_scalar("mul", sum, std::sqrt(2 / M_PI))});
  }
  return {b.add("mul", {b.add_scalar("mul", x, 0.5), b.add_scalar("add", inner, 1)})};
}

// ---- gradients: PyTorch's at the kinks ----

using Rule = ValueId (*)(Adjoint& a, ValueId g, ValueId x, ValueId y);

std::function<Result(Adjoint&)> of_one(Rule rule) {
  return [rule](Adjoint& a) -> Result { return {rule(a, a.gradient(), a.in(0), a.out())}; };
}

double number_of(Adjoint& a, const char* name) { return a.attrs().get<double>(name); }
ValueId is_above(Adjoint& a, ValueId x, double bound) { return a.op("gt", {x, a.scalar(bound, x)}); }
ValueId scaled(Adjoint& a, ValueId x, double factor) { return factor == 1 ? x : a.mul(x, a.scalar(factor, x)); }
// For large negative x, exp(-x) is infinite and the quotient 0, as it should be.
ValueId sigmoid_of(Adjoint& a, ValueId x) {
  const ValueId one = a.scalar(1, x);
  return a.div(one, a.add(one, a.op("exp", {a.neg(x)})));
}

// 0 at 0.
ValueId relu_gradient(Adjoint& a, ValueId g, ValueId, ValueId y) {
  return a.select(is_above(a, y, 0), g, a.scalar(0, g));
}

// The slope of the left side at 0.
ValueId leaky_relu_gradient(Adjoint& a, ValueId g, ValueId x, ValueId) {
  return a.select(is_above(a, x, 0), g, scaled(a, g, number_of(a, "alpha")));
}

Result prelu_gradient(Adjoint& a) {
  const ValueId g = a.gradient(), x = a.in(0), positive = is_above(a, x, 0);
  return {a.wants(0) ? a.select(positive, g, a.mul(g, a.in(1))) : Adjoint::kNone,
          a.wants(1) ? a.sum_to(a.select(positive, a.scalar(0, g), a.mul(g, x)), a.in(1)) : Adjoint::kNone};
}

// Within the bounds and on them the gradient is x's.
Result clip_gradient(Adjoint& a) {
  const ValueId g = a.gradient(), x = a.in(0), lo = a.in(1), hi = a.in(2), zero = a.scalar(0, g);
  const ValueId within = a.op("logical_and", {a.op("ge", {x, lo}), a.op("le", {x, hi})});
  Result gradients(3, Adjoint::kNone);
  if (a.wants(0)) gradients[0] = a.select(within, g, zero);
  if (a.wants(1)) {
    const ValueId low = a.op("logical_and", {a.op("lt", {x, lo}), a.op("lt", {lo, hi})});
    gradients[1] = a.sum_to(a.select(low, g, zero), lo);
  }
  if (a.wants(2)) {
    const ValueId high = a.op("logical_or", {a.op("gt", {x, hi}), a.op("lt", {hi, lo})});
    gradients[2] = a.sum_to(a.select(high, g, zero), hi);
  }
  return gradients;
}

ValueId sigmoid_gradient(Adjoint& a, ValueId g, ValueId, ValueId y) {
  return a.mul(g, a.mul(y, a.sub(a.scalar(1, y), y)));
}

// 0 at both ends of the slope.
ValueId hard_sigmoid_gradient(Adjoint& a, ValueId g, ValueId, ValueId y) {
  const ValueId inside = a.op("logical_and", {is_above(a, y, 0), a.op("lt", {y, a.scalar(1, y)})});
  return a.select(inside, scaled(a, g, number_of(a, "alpha")), a.scalar(0, g));
}

// 0 at -3 and 1 at 3: that of the straight parts.
ValueId hard_swish_gradient(Adjoint& a, ValueId g, ValueId x, ValueId) {
  const ValueId curve = a.mul(g, a.add(scaled(a, x, 1.0 / 3), a.scalar(0.5, x)));
  const ValueId not_above = a.select(is_above(a, x, -3), curve, a.scalar(0, g));
  return a.select(a.op("ge", {x, a.scalar(3, x)}), g, not_above);
}

ValueId softplus_gradient(Adjoint& a, ValueId g, ValueId x, ValueId) { return a.mul(g, sigmoid_of(a, x)); }

ValueId softsign_gradient(Adjoint& a, ValueId g, ValueId x, ValueId) {
  const ValueId spread = a.add(a.op("abs", {x}), a.scalar(1, x));
  return a.div(a.div(g, spread), spread);
}

// factor above 0, and at 0 and below what alpha * (exp(x / divisor) - 1) gives there.
ValueId exponential_gradient(Adjoint& a, ValueId g, ValueId x, double factor, double alpha, double divisor) {
  const ValueId below = a.op("exp", {scaled(a, a.op("min", {x, a.scalar(0, x)}), 1 / divisor)});
  return a.select(is_above(a, x, 0), scaled(a, g, factor), a.mul(g, scaled(a, below, factor * alpha / divisor)));
}
ValueId elu_gradient(Adjoint& a, ValueId g, ValueId x, ValueId) {
  return exponential_gradient(a, g, x, 1, number_of(a, "alpha"), 1);
}
ValueId selu_gradient(Adjoint& a, ValueId g, ValueId x, ValueId) {
  return exponential_gradient(a, g, x, number_of(a, "gamma"), number_of(a, "alpha"), 1);
}
ValueId celu_gradient(Adjoint& a, ValueId g, ValueId x, ValueId) {
  return exponential_gradient(a, g, x, 1, number_of(a, "alpha"), number_of(a, "alpha"));
}

ValueId silu_gradient(Adjoint& a, ValueId g, ValueId x, ValueId) {
  const ValueId s = sigmoid_of(a, x), one = a.scalar(1, x);
  return a.mul(g, a.mul(s, a.add(one, a.mul(x, a.sub(one, s)))));
}

// With t = tanh(softplus(x)): t + x * sigmoid(x) * (1 - t * t), and t as in `mish`.
ValueId mish_gradient(Adjoint& a, ValueId g, ValueId x, ValueId) {
  const double bound = a.type(x).dtype == DType::kF16 ? 5 : 20;
  const ValueId e = a.op("exp", {a.op("min", {x, a.scalar(bound, x)})}), two = a.scalar(2, x);
  const ValueId n = a.mul(e, a.add(e, two)), t = a.div(n, a.add(n, two));
  const ValueId slope = a.mul(sigmoid_of(a, x), a.sub(a.scalar(1, x), a.mul(t, t)));
  return a.mul(g, a.add(t, a.mul(x, slope)));
}

// A composite of one real operand without attributes.
CompositeDef plain(const char* name, const char* doc, ValueId (*f)(CompositeBody&, ValueId), const char* example,
                   Rule gradient) {
  return {name,
          doc,
          1,
          1,
          {},
          [f](CompositeBody& b) -> Result {
            require_real(b);
            return {f(b, b.operand(0))};
          },
          example,
          of_one(gradient)};
}

std::vector<CompositeDef> definitions() {
  return {
      {"relu", "max(x, 0).", 1, 1, {}, relu, "relu(x: f32[3])\nrun x = -1 0 2 -> y = 0 0 2", of_one(relu_gradient)},
      {"stop_gradient",
       "x itself; its gradient is zero.",
       1,
       1,
       {},
       [](CompositeBody& b) -> Result {
         return {b.add("reshape", {b.operand(0)}, {{"shape", b.type(b.operand(0)).shape}})};
       },
       "stop_gradient(x: f32[2])\nrun x = -1 2 -> y = -1 2",
       [](Adjoint&) -> Result { return {Adjoint::kNone}; }},
      {"leaky_relu",
       "x, times alpha where x < 0.",
       1,
       1,
       {number("alpha", "the slope below 0")},
       leaky_relu,
       "leaky_relu(x: f32[3]) {alpha = 0.1}\nrun x = -10 0 2 -> y = -1 0 2",
       of_one(leaky_relu_gradient)},
      {"prelu",
       "x, times the slope (which broadcasts to x) where x < 0.",
       2,
       2,
       {},
       prelu,
       "prelu(x: f32[2,2], slope: f32[2])\nrun x = -1 -1 2 2 ; slope = 0.5 0.25 -> y = -0.5 -0.25 2 2",
       prelu_gradient},
      {"clip",
       "min(max(x, lo), hi); lo and hi broadcast to x.",
       3,
       3,
       {},
       clip,
       "clip(x: f32[3], lo: f32[], hi: f32[])\nrun x = -1 0.5 9 ; lo = 0 ; hi = 6 -> y = 0 0.5 6",
       clip_gradient},
      plain("sigmoid", "1 / (1 + exp(-x)).", sigmoid,
            "sigmoid(x: f32[4])\nrun x = 0 1 -200 200 -> y = 0.5 0.73105858 0 1", sigmoid_gradient),
      {"hard_sigmoid",
       "alpha * x + beta, held within 0 and 1.",
       1,
       1,
       {number("alpha", "the slope"), number("beta", "the value at 0")},
       [](CompositeBody& b) -> Result {
         require_real(b);
         return {hard_sigmoid(b, b.operand(0), attr(b, "alpha"), attr(b, "beta"))};
       },
       "hard_sigmoid(x: f32[3]) {alpha = 0.2, beta = 0.5}\nrun x = -9 1 9 -> y = 0 0.7 1",
       of_one(hard_sigmoid_gradient)},
      plain(
          "hard_swish", "x * max(0, min(1, x / 6 + 1/2)).",
          [](CompositeBody& b, ValueId x) { return b.add("mul", {x, hard_sigmoid(b, x, 1.0 / 6, 0.5)}); },
          "hard_swish(x: f32[3])\nrun x = -4 1 4 -> y = 0 0.66666667 4", hard_swish_gradient),
      plain("softplus", "log(1 + exp(x)).", softplus,
            "softplus(x: f32[4])\nrun x = 0 1 -20 100 -> y = 0.69314718 1.31326169 2.0611537e-9 100",
            softplus_gradient),
      plain(
          "softsign", "x / (1 + |x|).",
          [](CompositeBody& b, ValueId x) { return b.add("div", {x, b.add_scalar("add", b.add("abs", {x}), 1)}); },
          "softsign(x: f32[2])\nrun x = 1 -3 -> y = 0.5 -0.75", softsign_gradient),
      {"elu",
       "x, but alpha * (exp(x) - 1) where x < 0.",
       1,
       1,
       {number("alpha", "minus the limit at -infinity")},
       [](CompositeBody& b) -> Result {
         require_real(b);
         return {elu(b, b.operand(0), attr(b, "alpha"))};
       },
       "elu(x: f32[2]) {alpha = 2.0}\nrun x = -1 3 -> y = -1.26424112 3",
       of_one(elu_gradient)},
      {"selu",
       "gamma times elu with alpha.",
       1,
       1,
       {number("alpha", "as in elu"), number("gamma", "the factor")},
       [](CompositeBody& b) -> Result {
         require_real(b);
         return {b.add_scalar("mul", elu(b, b.operand(0), attr(b, "alpha")), attr(b, "gamma"))};
       },
       "selu(x: f32[2]) {alpha = 2.0, gamma = 3.0}\nrun x = -1 3 -> y = -3.79272336 9",
       of_one(selu_gradient)},
      {"celu",
       "max(x, 0) + min(0, alpha * (exp(x / alpha) - 1)).",
       1,
       1,
       {number("alpha", "not 0")},
       [](CompositeBody& b) -> Result {
         require_real(b);
         const double alpha = attr(b, "alpha");
         if (alpha == 0) b.context().fail("TSR-2025", "alpha = 0", "a number other than 0");
         const ValueId x = b.operand(0);
         return {b.add("add", {b.add_scalar("max", x, 0), exponential_part(b, x, alpha, alpha)})};
       },
       "celu(x: f32[2]) {alpha = 2.0}\nrun x = -2 3 -> y = -1.26424112 3",
       of_one(celu_gradient)},
      {"gelu",
       "x times the normal distribution's probability of values below x.",
       1,
       1,
       {{"approximate", AttrKind::kString, false, "none (the default, with erf) or tanh"}},
       gelu,
       "gelu(x: f32[3]) {approximate = \"tanh\"}\nrun x = -1 0 1 -> y = -0.15880801 0 0.84119199"},
      plain(
          "silu", "x * sigmoid(x).", [](CompositeBody& b, ValueId x) { return b.add("mul", {x, sigmoid(b, x)}); },
          "silu(x: f32[2])\nrun x = 0 1 -> y = 0 0.73105858", silu_gradient),
      {"dropout",
       "x: a training step drops elements with this probability and divides the others by what is left.",
       1,
       1,
       {number("ratio", "the probability, 0 to 1"),
        {"seed", AttrKind::kInt, false, "of its random numbers, in place of the training step's"}},
       [](CompositeBody& b) -> Result {
         require_real(b);
         if (const double ratio = attr(b, "ratio"); !(ratio >= 0 && ratio <= 1))
           b.context().fail("TSR-2025", fmt::format("ratio = {}", ratio), "a number from 0 to 1");
         return {b.add("reshape", {b.operand(0)}, {{"shape", b.type(b.operand(0)).shape}})};
       },
       "dropout(x: f32[2]) {ratio = 0.5}\nrun x = 1 2 -> y = 1 2"},
      plain("mish", "x * tanh(softplus(x)).", mish,
            "mish(x: f32[4])\nrun x = 0 1 -20 100 -> y = 0 0.86509839 -4.1223073e-8 100", mish_gradient),
  };
}

}  // namespace

const std::vector<CompositeDef>& activation_composites() {
  static const std::vector<CompositeDef> list = definitions();
  return list;
}

}  // namespace tessera::inline ops
