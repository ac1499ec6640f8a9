// Special functions of single elements. What series and rational functions approximate is computed in f64 and rounded.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "import/aten/operators/handlers.h"
#include "import/common/real.h"

namespace tessera::inline aten {
namespace {

constexpr double kPi = std::numbers::pi, kInfinity = std::numeric_limits<double>::infinity(),
                 kNoNumber = std::numeric_limits<double>::quiet_NaN();

// `function` of the operand, in the dtype of the result.
template <Real (*kFunction)(const Real&)>
void in_doubles(AtenContext& c) {
  const ValueId given = c.tensor("self");
  const DType dtype = c.result_dtype(c.dtype(given));
  c.out(c.cast(kFunction(Real(c, c.cast(c.cast(given, dtype), DType::kF64))).id(), dtype));
}

// erfc(x) * exp(x * x) as a continued fraction, from 2 on.
Real scaled_erfc_tail(const Real& x) {
  const Real far = x.where(x.is("gt", 2), 2);
  Real rest = far;
  for (int k = 40; k >= 1; --k) rest = far + k / 2.0 / rest;
  return 1 / std::sqrt(kPi) / rest;
}

// 1 - erf(x), whose digits do not cancel on the right.
Real erfc(const Real& x) {
  const Real y = (scaled_erfc_tail(x) * exp(-(x * x))).where(x.is("gt", 2), 1 - erf(x));
  return y.but(x.is("eq", kInfinity), 0);
}

Real erfcx(const Real& x) {
  const ValueId is_far = x.is("gt", 2);
  const Real near = x.but(is_far, 0);
  return scaled_erfc_tail(x).where(is_far, (1 - erf(near)) * exp(near * near));
}

// The logarithm of the normal distribution's function.
Real log_ndtr(const Real& x) {
  const ValueId is_low = x.is("lt", -1);
  const Real t = x * (1 / std::numbers::sqrt2), low = t.where(is_low, -1), high = t.but(is_low, 0);
  const Real below = log(erfcx(-low) * 0.5) - low * low;
  // log(1 - q) by its series where q is small.
  const Real q = erfc(high) * 0.5;
  const Real small = -(q * polynomial(q, {1, 1 / 2.0, 1 / 3.0, 1 / 4.0, 1 / 5.0, 1 / 6.0}));
  return below.where(is_low, small.where(q.is("lt", 1e-3), log(erfc(-high) * 0.5)));
}

// The quantile of the normal distribution. Where 2x - 1 has lost x, Newton's steps towards the logarithm of x.
Real ndtri(const Real& x) {
  constexpr double kSmall = 1e-3;
  constexpr int kSteps = 5;  // from a start that is 10 % off at most: 1e-15 of the result
  const Real usual = inverse_erf(x * 2 - 1) * std::numbers::sqrt2;
  const ValueId is_small = x.is("lt", kSmall), is_none = x.is("le", 0);
  const Real log_x = log(x.where(is_small, kSmall).but(is_none, kSmall));
  Real z = -(log_x * -2).of("sqrt");
  for (int step = 0; step < kSteps; ++step) {
    const Real at = log_ndtr(z);
    z = z - (at - log_x) * exp(z * z * 0.5 + at) * std::sqrt(2 * std::numbers::pi);
  }
  return usual.where(is_none, z.where(is_small, usual));
}

// x from 8 on, where series are short; below it x + 8 takes its place, and what that changes is made good.
struct Shifted {
  ValueId is_small;  // whether it was below 8
  Real small, far;   // x or else 1; what series are asked for
};
Shifted shifted(const Real& x) {
  const ValueId is_small = x.is("lt", 8);
  return {is_small, x.where(is_small, 1), (x + 8).where(is_small, x)};
}

// x if it is 0.5 or more, else 1 - x, for reflections.
Real right_of_half(const Real& x) { return (1 - x).where(x.is("lt", 0.5), x); }

Real fraction(const Real& x) { return x - x.of("floor"); }

Real lgamma(const Real& x) {
  const Shifted s = shifted(right_of_half(x));
  Real product = s.small;
  for (int k = 1; k < 8; ++k) product = product * (s.small + k);
  const Real inverse = 1 / s.far;
  const Real series =
      inverse * polynomial(inverse * inverse, {1.0 / 12, -1.0 / 360, 1.0 / 1260, -1.0 / 1680, 1.0 / 1188,
                                               -691.0 / 360360, 1.0 / 156, -3617.0 / 122400});
  const Real main = (s.far - 0.5) * log(s.far) - s.far + std::log(2 * kPi) / 2;
  const Real y = main + series - log(product).where(s.is_small, 0);
  const Real reflected = log(kPi / absolute(sine(fraction(x) * kPi))) - y;
  return reflected.where(x.is("lt", 0.5), y).but(x.is_infinite(), kInfinity);
}

// The derivative of lgamma.
Real digamma(const Real& x) {
  const Shifted s = shifted(right_of_half(x));
  Real correction = 1 / s.small;
  for (int k = 1; k < 8; ++k) correction = correction + 1 / (s.small + k);
  const Real inverse = 1 / s.far, square = inverse * inverse;
  const Real series = square * polynomial(square, {1.0 / 12, -1.0 / 120, 1.0 / 252, -1.0 / 240, 1.0 / 132,
                                                   -691.0 / 32760, 1.0 / 12, -3617.0 / 8160});
  const Real y = log(s.far) - inverse * 0.5 - series - correction.where(s.is_small, 0);
  const Real reflected = y - kPi / (fraction(x) * kPi).of("tan");
  const Real at_whole = x.same(kNoNumber).where(x.is("lt", 0), -(1 / x));  // of -0 it is the other infinity
  const ValueId is_whole = fraction(x).is("eq", 0);
  return at_whole.where(is_whole, reflected).where(x.is("lt", 0.5), y);
}

// The sum of (x + k)^-2, the derivative of digamma.
Real trigamma(const Real& x) {
  const Shifted s = shifted(right_of_half(x));
  const auto reciprocal_square = [](const Real& v) { return 1 / (v * v); };
  Real correction = reciprocal_square(s.small);
  for (int k = 1; k < 8; ++k) correction = correction + reciprocal_square(s.small + k);
  const Real inverse = 1 / s.far, square = inverse * inverse;
  const Real series =
      square * inverse *
      polynomial(square, {1.0 / 6, -1.0 / 30, 1.0 / 42, -1.0 / 30, 5.0 / 66, -691.0 / 2730, 7.0 / 6, -3617.0 / 510});
  const Real y = inverse + square * 0.5 + series + correction.where(s.is_small, 0);
  const Real wave = sine(fraction(x) * kPi);
  return (kPi * kPi / (wave * wave) - y).where(x.is("lt", 0.5), y);
}

void import_polygamma(AtenContext& c) {
  const int64_t n = c.whole("n");
  if (n == 0) return in_doubles<digamma>(c);
  if (n == 1) return in_doubles<trigamma>(c);
  c.unsupported("derivatives of the gamma function beyond trigamma");
}

// ---- modified Bessel functions of the first kind, of order 0 or 1 ----

// exp(-|x|) times the function: its power series, all of one sign, up to 15, and beyond the asymptotic one.
Real scaled_bessel(const Real& x, int order) {
  const Real magnitude = absolute(x);
  const ValueId is_far = magnitude.is("gt", 15);
  const Real near = x.but(is_far, 1), quarter = near * near * 0.25;
  std::vector<double> terms = {1};
  for (int k = 1; k < 45; ++k) terms.push_back(terms.back() / k / (k + order));
  const Real sum = polynomial(quarter, terms) * exp(-absolute(near));
  const Real far = magnitude.where(is_far, 16);
  std::vector<double> tail = {1};
  const double square = 4.0 * order * order;
  for (int k = 1; k < 24; ++k) tail.push_back(-tail.back() * (square - (2 * k - 1) * (2 * k - 1)) / (8.0 * k));
  const Real asymptotic = polynomial(1 / far, tail) / (far * (2 * kPi)).of("sqrt");
  if (order == 0) return asymptotic.where(is_far, sum);
  return (asymptotic * x.of("sign")).where(is_far, sum * near * 0.5);
}
Real i0e(const Real& x) { return scaled_bessel(x, 0); }
Real i1e(const Real& x) { return scaled_bessel(x, 1); }
Real i0(const Real& x) { return scaled_bessel(x, 0) * exp(absolute(x)); }
Real i1(const Real& x) { return scaled_bessel(x, 1) * exp(absolute(x)); }

// ---- of signs ----

// Whether a number has the sign bit, -0 among them.
ValueId is_negative(AtenContext& c, ValueId x) {
  const ValueId below = c.op("lt", {x, c.scalar_like(x, 0)});
  if (!is_float(c.dtype(x))) return below;
  return c.op("logical_or", {below, c.op("lt", {c.div(c.scalar_like(x, 1), x), c.scalar_like(x, 0)})});
}

void import_signbit(AtenContext& c) {
  const ValueId x = c.tensor("self");
  c.out(c.dtype(x) == DType::kBool ? c.zeros(DType::kBool, c.shape(x)) : is_negative(c, x));
}

void import_copysign(AtenContext& c) {
  const DType dtype = c.result_dtype(AtenContext::promoted({c.operand("self"), c.operand("other")}));
  const ValueId x = c.op("abs", {c.as("self", dtype)}), sign = c.as("other", dtype);
  c.out(c.op("select", {is_negative(c, sign), c.op("neg", {x}), x}));
}

// Half a turn for what is negative.
void import_angle(AtenContext& c) {
  const ValueId given = c.tensor("self");
  const ValueId x = c.cast(given, c.result_dtype(c.dtype(given)));
  const ValueId angle =
      c.op("select", {c.op("lt", {x, c.scalar_like(x, 0)}), c.scalar_like(x, kPi), c.scalar_like(x, 0)});
  c.out(c.op("select", {c.op("is_nan", {x}), x, angle}));
}

// The first operand where it is at least (at most) the other or the other is no number, else the other: unlike max and
// min, a NaN is never chosen beside a number, and of equal operands the first has the gradient.
template <const char* kComparison>
void as_chosen(AtenContext& c) {
  const DType dtype = c.result_dtype(AtenContext::promoted({c.operand("self"), c.operand("other")}));
  const DType compared = dtype == DType::kBool ? DType::kU8 : dtype;
  const ValueId a = c.as("self", compared), b = c.as("other", compared);
  ValueId first = c.op(kComparison, {a, b});
  if (is_float(dtype)) first = c.op("logical_or", {first, c.op("is_nan", {b})});
  c.out(c.cast(c.op("select", {first, a, b}), dtype));
}
constexpr char kGe[] = "ge", kLe[] = "le";

// sqrt(x * x + y * y), of which squares neither overflow nor vanish.
void import_hypot(AtenContext& c) {
  const DType dtype = c.result_dtype(AtenContext::promoted({c.operand("self"), c.operand("other")}));
  const bool narrow = dtype != DType::kF64;
  const auto wide = [&](const char* name) { return c.cast(c.as(name, dtype), narrow ? DType::kF64 : dtype); };
  const ValueId x = c.op("abs", {wide("self")}), y = c.op("abs", {wide("other")});
  const ValueId zero = c.scalar_like(x, 0);
  ValueId length = 0;
  if (narrow) {
    const ValueId sum = c.add(c.mul(x, x), c.mul(y, y));
    length = c.op("select", {c.op("eq", {sum, zero}), zero, c.op("sqrt", {sum})});
  } else {
    const ValueId most = c.op("max", {x, y});
    const ValueId scale = c.op("select", {c.op("gt", {most, zero}), most, c.scalar_like(x, 1)});
    const ValueId u = c.div(x, scale), v = c.div(y, scale);
    const ValueId sum = c.add(c.mul(u, u), c.mul(v, v));
    length = c.op("select", {c.op("eq", {sum, zero}), zero, c.mul(scale, c.op("sqrt", {sum}))});
  }
  const ValueId infinite = c.op("logical_or", {c.op("is_inf", {x}), c.op("is_inf", {y})});
  c.out(c.cast(c.op("select", {infinite, c.scalar_like(x, kInfinity), length}), dtype));
}

}  // namespace

std::span<const AtenOperator> special_operators() {
  static constexpr AtenOperator table[] = {
      {"angle", import_angle},
      {"copysign", import_copysign},
      {"digamma", in_doubles<digamma>},
      {"erfc", in_doubles<erfc>},
      {"erfinv", in_doubles<inverse_erf>},
      {"fmax", as_chosen<kGe>},
      {"fmin", as_chosen<kLe>},
      {"hypot", import_hypot},
      {"i0", in_doubles<i0>},
      {"lgamma", in_doubles<lgamma>},
      {"polygamma", import_polygamma},
      {"signbit", import_signbit},
      {"special_erfcx", in_doubles<erfcx>},
      {"special_i0e", in_doubles<i0e>},
      {"special_i1", in_doubles<i1>},
      {"special_i1e", in_doubles<i1e>},
      {"special_log_ndtr", in_doubles<log_ndtr>},
      {"special_modified_bessel_i0", in_doubles<i0>},
      {"special_modified_bessel_i1", in_doubles<i1>},
      {"special_ndtri", in_doubles<ndtri>},
  };
  return table;
}

}  // namespace tessera::inline aten
