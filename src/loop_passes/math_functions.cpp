#include "loop_passes/math_functions.h"

#include <cmath>
#include <limits>
#include <span>

#include "loop_passes/math_tables.h"
#include "support/error.h"

namespace tessera::math {
namespace {

using namespace math_tables;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// The binary format of f32 or f64.
struct Format {
  DType real, bits;  // the type and the signed integer of its width
  int mantissa;      // stored bits
  int64_t bias;
  double magic;  // 1.5 * 2^mantissa: adding it rounds to an integer in the low bits
  int64_t magic_bits;
  int64_t sqrt_half_bits;  // of sqrt(1/2)
  int64_t sign_bit;
  double smallest_normal, denormal_scale;
  int denormal_shift;  // denormal_scale = 2^denormal_shift

  Expr c(double value) const { return const_float(real, value); }
  Expr i(int64_t value) const { return const_int(bits, value); }
};

const Format& format_of(const Expr& x) {
  static const Format kF32{DType::kF32, DType::kI32,         23,       127,    0x1.8p23, 0x4b400000,
                           0x3f3504f3,  INT64_C(0x80000000), 0x1p-126, 0x1p23, 23};
  static const Format kF64{DType::kF64,
                           DType::kI64,
                           52,
                           1023,
                           0x1.8p52,
                           0x4338000000000000,
                           0x3fe6a09e667f3bcd,
                           std::numeric_limits<int64_t>::min(),
                           0x1p-1022,
                           0x1p54,
                           54};
  check(x.dtype() == DType::kF32 || x.dtype() == DType::kF64,
        "a mathematical function of another type than f32 and f64");
  return x.dtype() == DType::kF32 ? kF32 : kF64;
}

bool is_f32(const Expr& x) { return x.dtype() == DType::kF32; }

Expr shl(const Expr& a, int64_t n) { return binary(BinaryOp::kShl, a, const_int(a.dtype(), n)); }
Expr shr(const Expr& a, int64_t n) { return binary(BinaryOp::kShr, a, const_int(a.dtype(), n)); }
Expr bit_and(const Expr& a, int64_t mask) { return binary(BinaryOp::kAnd, a, const_int(a.dtype(), mask)); }
Expr abs(const Expr& a) { return unary(UnaryOp::kAbs, a); }
Expr sqrt(const Expr& a) { return unary(UnaryOp::kSqrt, a); }
Expr div(const Expr& a, const Expr& b) { return binary(BinaryOp::kDiv, a, b); }
Expr ne(const Expr& a, const Expr& b) { return binary(BinaryOp::kNe, a, b); }

Expr poly(std::span<const double> coefficients, const Expr& x) {
  Expr sum = const_float(x.dtype(), coefficients.back());
  for (size_t i = coefficients.size() - 1; i-- > 0;) sum = fma(sum, x, const_float(x.dtype(), coefficients[i]));
  return sum;
}

// |a| with the sign of s.
Expr with_sign(const Expr& a, const Expr& s) {
  const Format& f = format_of(s);
  return bitcast(f.real, binary(BinaryOp::kOr, bitcast(f.bits, abs(a)), bit_and(bitcast(f.bits, s), f.sign_bit)));
}

// 2^n as a float for integer n in the range of normal exponents.
Expr power_of_two(const Format& f, const Expr& n) { return bitcast(f.real, shl(n + f.i(f.bias), f.mantissa)); }

struct ExpParts {
  Expr mantissa;  // exp(r), about 0.7 to 1.42
  Expr exponent;  // n, an integer
};

// x = n * ln 2 + r
ExpParts exp_parts(const Expr& x) {
  const Format& f = format_of(x);
  const std::span<const double> ln2 = is_f32(x) ? kLn2PartsF32 : kLn2PartsF64;
  const Expr rounded = fma(x, f.c(1.4426950408889634074), f.c(f.magic));
  const Expr n = rounded - f.c(f.magic);
  Expr r = fma(n, f.c(-ln2[0]), x);
  r = fma(n, f.c(-ln2[1]), r);
  const Expr p = is_f32(x) ? poly(kExpF32, r) : poly(kExpF64, r);
  return {fma(r * r, p, r) + f.c(1), bitcast(f.bits, rounded) - f.i(f.magic_bits)};
}

// exp where the result is a normal number; any x that leaves that range gives garbage.
Expr exp_in_range(const Expr& x) {
  const ExpParts parts = exp_parts(x);
  return parts.mantissa * power_of_two(format_of(x), parts.exponent);
}

// Integer n (small) as a float, without the conversion instruction that i64 lacks on many machines.
Expr small_int_to_float(const Format& f, const Expr& n) {
  return bitcast(f.real, n + f.i(f.magic_bits)) - f.c(f.magic);
}

struct LogParts {
  Expr mantissa;  // from sqrt(1/2) to sqrt(2)
  Expr exponent;  // a whole float
};

// x = mantissa * 2^exponent for x above zero.
LogParts log_parts(const Expr& x) {
  const Format& f = format_of(x);
  const Expr denormal = x < f.c(f.smallest_normal);
  const Expr normal = select(denormal, x * f.c(f.denormal_scale), x);
  const Expr bits = bitcast(f.bits, normal) - f.i(f.sqrt_half_bits);
  const Expr m = bitcast(f.real, bit_and(bits, (INT64_C(1) << f.mantissa) - 1) + f.i(f.sqrt_half_bits));
  const Expr e = small_int_to_float(f, shr(bits, f.mantissa));
  return {m, select(denormal, e - f.c(f.denormal_shift), e)};
}

// v * 2^n for n from about -2100 to 2100, in two factors: denormal results are rounded once, by the second product.
Expr scaled(const Expr& v, const Expr& n) {
  const Format& f = format_of(v);
  const Expr half = shr(n, 1);
  return v * power_of_two(f, half) * power_of_two(f, n - half);
}

// The integer that a small whole float holds, in the low bits.
Expr low_bits(const Format& f, const Expr& whole) { return bitcast(f.bits, whole + f.c(f.magic)); }

}  // namespace

Expr exp(const Expr& x) {
  const Format& f = format_of(x);
  // Beyond these the result is 0 or infinity; up to there n keeps in range. NaN passes through min and max.
  const Expr inside = min(max(x, f.c(is_f32(x) ? -104 : -746)), f.c(is_f32(x) ? 89 : 710));
  const ExpParts parts = exp_parts(inside);
  return scaled(parts.mantissa, parts.exponent);
}

Expr log(const Expr& x) {
  const Format& f = format_of(x);
  const std::span<const double> ln2 = is_f32(x) ? kLn2PartsF32 : kLn2PartsF64;
  const auto [m, e] = log_parts(x);
  const Expr g = m - f.c(1);
  Expr result;
  if (is_f32(x)) {
    const Expr z = g * g;
    const Expr tail = fma(g * z, poly(kLogF32, g), e * f.c(ln2[1]));
    result = fma(e, f.c(ln2[0]), g + fma(z, f.c(-0.5), tail));
  } else {
    // log(1 + g) = 2s + s * z * p(z) with s = g / (2 + g), where 2s = g - s * g.
    const Expr s = div(g, g + f.c(2));
    const Expr z = s * s;
    const Expr tail = s * (g - z * poly(kLogF64, z)) - e * f.c(ln2[1]);
    result = fma(e, f.c(ln2[0]), g - tail);
  }
  result = select(equal(x, f.c(kInf)), x, result);
  return select(x > f.c(0), result, select(equal(x, f.c(0)), f.c(-kInf), f.c(kNan)));
}

Expr tanh(const Expr& x) {
  const Format& f = format_of(x);
  const Expr a = abs(x);
  const Expr z = x * x;
  const Expr near_zero = fma(x * z, is_f32(x) ? poly(kTanhF32, z) : poly(kTanhF64, z), x);
  const Expr e = exp_in_range(min(a, f.c(is_f32(x) ? 10 : 20)) * f.c(2));
  const Expr far = with_sign(f.c(1) - div(f.c(2), e + f.c(1)), x);
  return select(a < f.c(0.625), near_zero, far);
}

Expr erf(const Expr& x) {
  const Format& f = format_of(x);
  const Expr a = abs(x);
  const Expr z = x * x;
  const Expr near_zero = fma(x, is_f32(x) ? poly(kErfF32, z) : poly(kErfF64, z), x);
  // erf(a) = 1 - exp(-p(a)); from `end` on that is 1.
  const Expr inside = min(a, f.c(is_f32(x) ? 4 : 6));
  Expr p;
  if (is_f32(x)) {
    p = poly(kErfTailF32, inside - f.c(0.875));
  } else {
    p = select(inside < f.c(2.5), poly(kErfTailF64, inside - f.c(1)), poly(kErfFarTailF64, inside - f.c(2.5)));
  }
  const Expr far = with_sign(f.c(1) - exp_in_range(-p), x);
  return select(a < f.c(is_f32(x) ? 0.875 : 1), near_zero, far);
}

// ---- trigonometric functions, f64 ----------------------------------------------------------------------------------

namespace {

struct Reduced {
  Expr r;         // |r| <= pi/4
  Expr quadrant;  // i64, of which the two low bits count
};

// x = quadrant * pi/2 + r.
Reduced reduce(const Expr& x, bool narrow) {
  const Format& f = format_of(x);
  const auto round = [&](const Expr& v) { return unary(UnaryOp::kRound, v); };
  if (!narrow) {
    const Expr n = round(x * f.c(0.63661977236758134308));
    Expr r = x;
    for (const double part : kHalfPiPartsF64) r = fma(n, f.c(-part), r);
    return {r, low_bits(f, n)};
  }
  // x has 24 bits and so has every part of 2/pi: the products are exact, and so is dropping multiples of 4 from
  // them. What is left of x * 2/pi is summed from large to small, always within [-1/2, 1/2].
  Expr turns = f.c(0);
  Expr fraction = f.c(0);
  for (const double part : kTwoOverPiParts) {
    Expr product = x * f.c(part);
    product = product - round(product * f.c(0.25)) * f.c(4);
    fraction = fraction + product;
    const Expr whole = round(fraction);
    turns = turns + whole;
    fraction = fraction - whole;
  }
  return {fraction * f.c(1.57079632679489661923), low_bits(f, turns)};
}

struct SinCos {
  Expr sin, cos, quadrant;
};

SinCos sin_cos(const Expr& x, bool narrow) {
  const Format& f = format_of(x);
  const Reduced reduced = reduce(x, narrow);
  const Expr& r = reduced.r;
  const Expr z = r * r;
  return {fma(r * z, poly(kSin, z), r), fma(z * z, poly(kCos, z), fma(z, f.c(-0.5), f.c(1))), reduced.quadrant};
}

Expr odd(const Expr& quadrant) { return ne(bit_and(quadrant, 1), Expr(0)); }

Expr negate_if(const Expr& condition, const Expr& v) { return select(condition, -v, v); }

// Of an odd function: reduction loses the sign of a zero.
Expr zero_of(const Expr& x, const Expr& v) { return select(equal(x, format_of(x).c(0)), x, v); }

}  // namespace

Expr sin(const Expr& x, bool narrow) {
  const SinCos sc = sin_cos(x, narrow);
  return zero_of(x, negate_if(ne(bit_and(sc.quadrant, 2), Expr(0)), select(odd(sc.quadrant), sc.cos, sc.sin)));
}

Expr cos(const Expr& x, bool narrow) {
  const SinCos sc = sin_cos(x, narrow);
  return negate_if(ne(bit_and(sc.quadrant + Expr(1), 2), Expr(0)), select(odd(sc.quadrant), sc.sin, sc.cos));
}

Expr tan(const Expr& x, bool narrow) {
  const SinCos sc = sin_cos(x, narrow);
  const Expr is_odd = odd(sc.quadrant);
  return zero_of(x, negate_if(is_odd, div(select(is_odd, sc.cos, sc.sin), select(is_odd, sc.sin, sc.cos))));
}

Expr atan(const Expr& x) {
  const Format& f = format_of(x);
  const Expr a = abs(x);
  const Expr large = a > f.c(2.41421356237309504880);   // tan(3 pi / 8)
  const Expr medium = a > f.c(0.41421356237309504880);  // tan(pi / 8)
  const Expr numerator = select(large, f.c(-1), select(medium, a - f.c(1), a));
  const Expr denominator = select(large, a, select(medium, a + f.c(1), f.c(1)));
  const Expr t = div(numerator, denominator);
  const Expr base = select(large, f.c(1.57079632679489661923), select(medium, f.c(0.78539816339744830962), f.c(0)));
  const Expr z = t * t;
  return with_sign(base + fma(t * z, poly(kAtan, z), t), x);
}

namespace {

// asin of s where z = s^2 <= 1/4.
Expr asin_near_zero(const Expr& s, const Expr& z) { return fma(s * z, poly(kAsin, z), s); }

}  // namespace

// For |x| > 1/2: asin(x) = pi/2 - 2 asin(sqrt((1 - x) / 2)); beyond 1 the root is NaN.
Expr asin(const Expr& x) {
  const Format& f = format_of(x);
  const Expr a = abs(x);
  const Expr far = a > f.c(0.5);
  const Expr z = select(far, (f.c(1) - a) * f.c(0.5), a * a);
  const Expr p = asin_near_zero(select(far, sqrt(z), a), z);
  return with_sign(select(far, f.c(1.57079632679489661923) - p * f.c(2), p), x);
}

Expr acos(const Expr& x) {
  const Format& f = format_of(x);
  const Expr a = abs(x);
  const Expr far = a > f.c(0.5);
  const Expr z = select(far, (f.c(1) - a) * f.c(0.5), a * a);
  const Expr p = asin_near_zero(select(far, sqrt(z), x), z);
  const Expr twice = p * f.c(2);
  return select(far, select(x > f.c(0), twice, f.c(3.14159265358979323846) - twice), f.c(1.57079632679489661923) - p);
}

// ---- hyperbolic functions, f64 -------------------------------------------------------------------------------------

Expr sinh(const Expr& x) {
  const Format& f = format_of(x);
  const Expr a = abs(x);
  const Expr z = x * x;
  const Expr near_zero = fma(x * z, poly(kSinh, z), x);
  const Expr e = exp(a * f.c(0.5));  // squared at the end, so that it overflows only with the result
  const Expr far = with_sign(e * f.c(0.5) * e - div(div(f.c(0.5), e), e), x);
  return select(a < f.c(1), near_zero, far);
}

Expr cosh(const Expr& x) {
  const Format& f = format_of(x);
  const Expr e = exp(abs(x) * f.c(0.5));
  return e * f.c(0.5) * e + div(div(f.c(0.5), e), e);
}

namespace {

// log(1 + u), with what the sum lost put back.
Expr log1p(const Expr& u) {
  const Format& f = format_of(u);
  const Expr w = u + f.c(1);
  const Expr lost = (w - f.c(1)) - u;
  return select(abs(w) < f.c(kInf), log(w) - div(lost, w), w);
}

constexpr double kHuge = 0x1p28;  // from here on sqrt(x^2 +- 1) is x
constexpr double kLn2 = 0.69314718055994530942;

}  // namespace

Expr asinh(const Expr& x) {
  const Format& f = format_of(x);
  const Expr a = abs(x);
  const Expr z = a * a;
  const Expr inside = log1p(a + div(z, sqrt(z + f.c(1)) + f.c(1)));
  return with_sign(select(a > f.c(kHuge), log(a) + f.c(kLn2), inside), x);
}

Expr acosh(const Expr& x) {
  const Format& f = format_of(x);
  const Expr t = x - f.c(1);
  const Expr inside = log1p(t + sqrt(t * (t + f.c(2))));
  return select(x < f.c(1), f.c(kNan), select(x > f.c(kHuge), log(x) + f.c(kLn2), inside));
}

Expr atanh(const Expr& x) {
  const Format& f = format_of(x);
  const Expr a = abs(x);
  return select(a > f.c(1), f.c(kNan), with_sign(log1p(div(a * f.c(2), f.c(1) - a)) * f.c(0.5), x));
}

// ---- powers and remainders -----------------------------------------------------------------------------------------

namespace {

// hi + lo, where lo is what rounding took from hi: T. J. Dekker, "A floating-point technique for extending the
// available precision", 1971. Nothing here relies on kFma being rounded once.
struct Twofold {
  Expr hi, lo;
};

Twofold twofold(std::span<const double, 2> parts) {
  return {const_float(DType::kF64, parts[0]), const_float(DType::kF64, parts[1])};
}

// a + b; exact where |a| >= |b| or a is 0.
Twofold exact_sum(const Expr& a, const Expr& b) {
  const Expr sum = a + b;
  return {sum, b - (sum - a)};
}

// a * b, exact unless it or a product of their halves leaves the range.
Twofold exact_product(const Expr& a, const Expr& b) {
  const auto halves = [](const Expr& v) {
    const Expr scaled_up = v * const_float(DType::kF64, 0x1p27 + 1);
    const Expr hi = scaled_up - (scaled_up - v);
    return Twofold{hi, v - hi};
  };
  const Twofold x = halves(a), y = halves(b);
  const Expr product = a * b;
  return {product, ((x.hi * y.hi - product) + x.hi * y.lo + x.lo * y.hi) + x.lo * y.lo};
}

Twofold times(const Twofold& a, const Twofold& b) {
  const Twofold product = exact_product(a.hi, b.hi);
  return {product.hi, product.lo + (a.hi * b.lo + a.lo * b.hi)};
}

// log2(a) for finite a above zero, with about 66 bits; that of a power of two is exact.
Twofold log2_twofold(const Expr& a) {
  const Format& f = format_of(a);
  const auto [m, e] = log_parts(a);
  // s = (m - 1) / (m + 1); then log2(m) = s * (2 / ln 2 + z * (2 / (3 ln 2) + z * p(z))) with z = s^2.
  const Expr g = m - f.c(1);
  const Expr d = m + f.c(1);
  const Expr d_lo = m - (d - f.c(1));
  Twofold s{div(g, d), {}};
  const Twofold back = exact_product(s.hi, d);
  s.lo = div(((g - back.hi) - back.lo) - s.hi * d_lo, d);
  const Twofold z = times(s, s);
  const Twofold second = twofold(kTwoThirdsOverLn2), first = twofold(kTwoOverLn2);
  Twofold sum = exact_sum(second.hi, z.hi * poly(kPowLog2, z.hi));
  sum.lo = sum.lo + second.lo;
  sum = times(z, sum);
  const Twofold whole = exact_sum(first.hi, sum.hi);
  const Twofold log_m = times(s, {whole.hi, whole.lo + (first.lo + sum.lo)});
  const Twofold result = exact_sum(e, log_m.hi);
  return {result.hi, result.lo + log_m.lo};
}

// 2^(v.hi + v.lo), with a few bits more than the result has before it is rounded. NaN stays.
Expr exp2_of(const Twofold& v) {
  const Format& f = format_of(v.hi);
  const Expr inside = min(max(v.hi, f.c(-1080)), f.c(1030));  // beyond these the result is 0 or infinity
  const Expr lo = select(equal(inside, v.hi), v.lo, f.c(0));
  const Expr rounded = inside + f.c(f.magic);
  const Twofold ln2 = twofold(kLn2Twofold);
  const Twofold r = times(exact_sum(inside - (rounded - f.c(f.magic)), lo), ln2);
  // exp(r) = 1 + r + r^2 * p(r), of which 1 + r is summed exactly.
  const Twofold sum = exact_sum(f.c(1), r.hi);
  const Expr tail = r.hi * r.hi * poly(kExpF64, r.hi) + r.lo * sum.hi;
  return scaled(sum.hi + (sum.lo + tail), bitcast(f.bits, rounded) - f.i(f.magic_bits));
}

// a^y for a from 0 to infinity.
Expr pow_of_magnitude(const Expr& a, const Expr& y) {
  const Format& f = format_of(a);
  // Larger exponents give 0, 1 and infinity as these do.
  const Expr inside = min(max(y, f.c(-0x1p65)), f.c(0x1p65));
  const Expr finite = exp2_of(times(log2_twofold(a), {inside, f.c(0)}));
  const Expr at_end = select(y > f.c(0), a, div(f.c(1), a));
  const Expr defined = logical_and(equal(a, a), equal(y, y));
  return select(defined, select(logical_or(equal(a, f.c(0)), equal(a, f.c(kInf))), at_end, finite), f.c(kNan));
}

}  // namespace

Expr pow(const Expr& x, const Expr& y, bool narrow) {
  const Format& f = format_of(x);
  const auto floor = [](const Expr& v) { return unary(UnaryOp::kFloor, v); };
  const Expr a = abs(x);
  const Expr unit = equal(a, f.c(1));
  // The product loses what log(a) has beyond 53 bits, which values of f32 do not show.
  Expr magnitude = narrow ? exp(y * log(a)) : pow_of_magnitude(a, y);
  // 1^y is 1 for infinite y too, and x^0 is 1 for every x.
  magnitude = select(logical_and(unit, equal(y, y)), f.c(1), magnitude);
  const Expr whole = equal(floor(y), y);
  const Expr half = y * f.c(0.5);
  const Expr is_odd = logical_and(whole, ne(floor(half), half));
  const Expr negative = bitcast(f.bits, x) < f.i(0);
  Expr result = select(logical_and(negative, is_odd), -magnitude, magnitude);
  const Expr undefined = logical_and(logical_and(x < f.c(0), a < f.c(kInf)), unary(UnaryOp::kNot, whole));
  result = select(undefined, f.c(kNan), result);
  return select(logical_or(equal(y, f.c(0)), equal(x, f.c(1))), f.c(1), result);
}

namespace {

// The remainder of values of f32 that are above zero. Quotients of 28 bits at a time, whose products with the divisor
// are exact; ten times 28 bits cover the largest quotient.
Expr remainder_of_narrow(const Expr& a, const Expr& b) {
  const Format& f = format_of(a);
  Expr r = a;
  for (int step = 9; step >= 0; --step) {
    const Expr divisor = step ? b * f.c(std::ldexp(1.0, 28 * step)) : b;
    const Expr q = unary(UnaryOp::kTrunc, div(r, divisor));
    r = fma(-q, divisor, r);
    r = select(r < f.c(0), r + divisor, r);  // the quotient had been rounded up
  }
  return select(logical_and(equal(b, f.c(kInf)), a < f.c(kInf)), a, r);
}

// The same of f64: quotients of 51 bits, 42 times, and products in two parts.
Expr remainder_of_wide(const Expr& a, const Expr& b) {
  const Format& f = format_of(a);
  constexpr int kBits = 51, kSteps = 42, kHalf = 20;
  const Expr far = b * f.c(std::ldexp(1.0, kBits * kHalf));
  Expr r = a;
  for (int step = kSteps - 1; step >= 0; --step) {
    const Expr divisor = step >= kHalf ? far * f.c(std::ldexp(1.0, kBits * (step - kHalf)))
                         : step > 0    ? b * f.c(std::ldexp(1.0, kBits * step))
                                       : b;
    // Products with the halves of a number must stay in range.
    const Expr large = divisor > f.c(0x1p500), small = divisor < f.c(0x1p-500);
    const auto scale = [&](double up) { return select(large, f.c(1 / up), select(small, f.c(up), f.c(1))); };
    const Expr q = unary(UnaryOp::kTrunc, div(r, divisor));
    const Twofold product = exact_product(q, divisor * scale(0x1p100));
    const Expr rest = ((r * scale(0x1p100) - product.hi) - product.lo) * scale(0x1p-100);
    // The quotient had been rounded up; the divisor is infinite or above the rest.
    r = select(divisor > r, r, select(rest < f.c(0), rest + divisor, rest));
  }
  return r;
}

}  // namespace

Expr fmod(const Expr& x, const Expr& y, bool narrow) {
  return with_sign(narrow ? remainder_of_narrow(abs(x), abs(y)) : remainder_of_wide(abs(x), abs(y)), x);
}

Expr integer_pow(const Expr& base, const Expr& exponent) {
  const DType dtype = base.dtype();
  const auto c = [&](int64_t v) { return const_int(dtype, v); };
  const auto known = as_int(exponent);
  Expr result = c(1);
  Expr square = base;
  const int bits = dtype_bits(dtype);
  for (int k = 0; k < bits; ++k) {
    if (known) {
      if ((*known >> k) & 1) result = result * square;
      if (k + 1 < 64 && (*known >> (k + 1)) == 0) break;
    } else {
      result = select(ne(bit_and(shr(exponent, k), 1), c(0)), result * square, result);
    }
    square = square * square;
  }
  if (!is_signed_int(dtype) || (known && *known >= 0)) return result;
  const Expr is_odd = ne(bit_and(exponent, 1), c(0));
  const Expr reciprocal =
      select(equal(base, c(1)), c(1), select(equal(base, c(-1)), select(is_odd, c(-1), c(1)), c(0)));
  return select(exponent < c(0), reciprocal, result);
}

}  // namespace tessera::math
