// The expanded mathematical functions against libm: f32 against double, f64 against long double, over all exponents
// and densely where the function moves. The bounds are those of loop_passes/expand_math.h.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <iomanip>
#include <iostream>
#include <limits>

#include "codegen_harness.h"
#include "interp/loop_interp.h"
#include "loop_passes/expand_math.h"

namespace tessera {
namespace {

using Wide = long double;
using Reference = Wide (*)(Wide);

struct Case {
  UnaryOp op;
  Reference reference;
  double low, high;           // where the function moves
  double bound32, bound64;    // ulp
  double limit64 = INFINITY;  // arguments of f64 beyond this are not tested
};

const Case kCases[] = {
    {UnaryOp::kExp, std::exp, -104, 89, 1.3, 2},     {UnaryOp::kLog, std::log, 0, 4, 1.2, 2},
    {UnaryOp::kTanh, std::tanh, -10, 10, 2, 3},      {UnaryOp::kErf, std::erf, -4.5, 4.5, 2, 3},
    {UnaryOp::kSin, std::sin, -20, 20, 0.6, 2, 6e6}, {UnaryOp::kCos, std::cos, -20, 20, 0.6, 2, 6e6},
    {UnaryOp::kTan, std::tan, -20, 20, 0.6, 4, 6e6}, {UnaryOp::kAsin, std::asin, -1, 1, 0.6, 3},
    {UnaryOp::kAcos, std::acos, -1, 1, 0.6, 3},      {UnaryOp::kAtan, std::atan, -10, 10, 0.6, 3},
    {UnaryOp::kSinh, std::sinh, -90, 90, 0.6, 4},    {UnaryOp::kCosh, std::cosh, -90, 90, 0.6, 4},
    {UnaryOp::kAsinh, std::asinh, -10, 10, 0.6, 4},  {UnaryOp::kAcosh, std::acosh, 1, 10, 0.6, 4},
    {UnaryOp::kAtanh, std::atanh, -1, 1, 0.6, 4},
};

constexpr int64_t kSize = 1 << 17;  // samples of each function

template <typename T>
double ulps(T got, Wide want) {
  if (std::isnan(want)) return std::isnan(got) ? 0 : INFINITY;
  if (std::isnan(got)) return INFINITY;
  const T rounded = static_cast<T>(want);
  if (std::isinf(got) || std::isinf(rounded)) {
    if (got == rounded) return 0;
    // One step from the largest finite value to infinity is one ulp.
    const T largest = std::numeric_limits<T>::max();
    return std::fabs(got) == largest || std::fabs(rounded) == largest ? 1 : INFINITY;
  }
  int exponent = 0;
  std::frexp(rounded, &exponent);
  const int smallest = std::numeric_limits<T>::min_exponent - std::numeric_limits<T>::digits;
  const Wide unit = std::ldexp(Wide{1}, std::max(exponent - std::numeric_limits<T>::digits, smallest));
  return static_cast<double>(std::fabs(static_cast<Wide>(got) - want) / unit);
}

LoopProgram program_of_expr(DType dtype, const std::function<Expr(const Expr&, const Expr&)>& make) {
  const Var i = make_var("i");
  LoopProgram loops;
  loops.name = "math";
  loops.params = {make_buffer("x", dtype, {Expr(kSize)}), make_buffer("y", dtype, {Expr(kSize)}),
                  make_buffer("z", dtype, {Expr(kSize)})};
  loops.body = for_loop(i, 0, kSize, ForKind::kVectorized,
                        store(loops.params[2], {i}, make(load(loops.params[0], {i}), load(loops.params[1], {i}))));
  return loops;
}

template <typename T>
std::vector<T> samples(double low, double high, double limit, uint32_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> dense(low, high);
  std::vector<T> values = {T(0),
                           -T(0),
                           T(INFINITY),
                           -T(INFINITY),
                           T(NAN),
                           T(1),
                           T(-1),
                           T(0.5),
                           T(-0.5),
                           T(2),
                           std::numeric_limits<T>::min(),
                           std::numeric_limits<T>::denorm_min(),
                           std::numeric_limits<T>::max(),
                           std::numeric_limits<T>::lowest(),
                           T(0.625),
                           T(0.875),
                           T(88.72284),
                           T(-87.33655),
                           T(-103.97208),
                           T(709.78271),
                           T(-745.13321)};
  while (values.size() < static_cast<size_t>(kSize)) {
    if (values.size() % 2) {
      values.push_back(static_cast<T>(dense(random)));
    } else if constexpr (sizeof(T) == 4) {
      values.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
    } else {
      values.push_back(std::bit_cast<double>(static_cast<uint64_t>(random())));
    }
  }
  for (T& v : values)
    if (std::isfinite(v) && std::fabs(v) > limit) v = T(1);
  return values;
}

template <typename T>
Tensor tensor_of(const std::vector<T>& values) {
  Tensor t(sizeof(T) == 4 ? DType::kF32 : DType::kF64, {static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), t.as_mutable<T>().begin());
  return t;
}

// The largest error of `got` against reference(x, y), and where.
template <typename T>
std::string check_bound(const std::string& name, const std::vector<T>& x, const std::vector<T>& y, const Tensor& got,
                        const std::function<Wide(Wide, Wide)>& reference, double bound) {
  double worst = 0;
  size_t at = 0;
  const std::span<const T> values = got.as<T>();
  for (size_t i = 0; i < x.size(); ++i) {
    const double error = ulps(values[i], reference(x[i], y[i]));
    if (error > worst || std::isnan(error)) {
      worst = error;
      at = i;
    }
  }
  std::cout << "  " << name << ": " << std::setprecision(3) << worst << " ulp\n";
  if (worst <= bound) return "";
  std::ostringstream text;
  text << std::setprecision(17) << name << "(" << x[at] << ", " << y[at] << ") = " << values[at] << ", " << worst
       << " ulp from " << reference(x[at], y[at]);
  return text.str();
}

template <typename T>
void check_unary(DType dtype) {
  for (const Case& c : kCases) {
    const double bound = sizeof(T) == 4 ? c.bound32 : c.bound64;
    const std::vector<T> x = samples<T>(c.low, c.high, sizeof(T) == 4 ? INFINITY : c.limit64, 1);
    const LoopProgram loops =
        expand_math(program_of_expr(dtype, [&](const Expr& a, const Expr&) { return unary(c.op, a); }));
    for (const std::string& target : runnable_targets()) {
      const NativeModule module(program_of(loops), parse_target(target));
      const Tensor got = module.run({tensor_of(x), tensor_of(x)})[0];
      EXPECT_EQ(check_bound<T>(
                    std::string(unary_name(c.op)) + " " + std::string(dtype_name(dtype)) + " " + target, x, x, got,
                    [&](Wide v, Wide) { return c.reference(v); }, bound),
                "");
    }
  }
}

TEST(Math, UnaryF32) { check_unary<float>(DType::kF32); }
TEST(Math, UnaryF64) { check_unary<double>(DType::kF64); }

TEST(Math, PowF32) {
  std::vector<float> x = samples<float>(-10, 10, INFINITY, 3);
  std::vector<float> y = samples<float>(-30, 30, INFINITY, 4);
  for (size_t i = 0; i < y.size(); ++i)
    if (i % 4 == 1) y[i] = std::round(y[i]);
  // Every pair of special values.
  const float special[] = {0.0f, -0.0f, 1,  -1,   INFINITY, -INFINITY,   NAN,   2,
                           -2,   3,     -3, 0.5f, -0.5f,    16777217.0f, 1e30f, -1e30f};
  size_t at = 100;
  for (const float a : special)
    for (const float b : special) {
      x[at] = a;
      y[at++] = b;
    }
  const LoopProgram loops = expand_math(
      program_of_expr(DType::kF32, [](const Expr& a, const Expr& b) { return binary(BinaryOp::kPow, a, b); }));
  for (const std::string& target : runnable_targets()) {
    const Tensor got = NativeModule(program_of(loops), parse_target(target)).run({tensor_of(x), tensor_of(y)})[0];
    EXPECT_EQ(
        check_bound<float>("pow f32 " + target, x, y, got, [](Wide a, Wide b) { return std::pow(a, b); }, 0.6), "");
  }
}

TEST(Math, PowF32OfQuarters) {
  std::vector<float> x = samples<float>(0, 10, INFINITY, 5);
  const float special[] = {0.0f, -0.0f, 1, -1, INFINITY, -INFINITY, NAN, 2, -2, 1e30f, -1e30f, 1e-40f, 1e-45f, 3e38f};
  std::copy(std::begin(special), std::end(special), x.begin() + 100);
  for (const double power : {0.25, 0.75, 1.25, 1.5, -0.25, -0.5}) {
    const LoopProgram loops = expand_math(program_of_expr(DType::kF32, [&](const Expr& a, const Expr&) {
      return binary(BinaryOp::kPow, a, const_float(DType::kF32, power));
    }));
    const std::vector<float> y(x.size(), static_cast<float>(power));
    for (const std::string& target : runnable_targets()) {
      const Tensor got = NativeModule(program_of(loops), parse_target(target)).run({tensor_of(x), tensor_of(y)})[0];
      const std::string name = "pow(x, " + std::to_string(power) + ") f32 " + target;
      EXPECT_EQ(check_bound<float>(name, x, y, got, [](Wide a, Wide b) { return std::pow(a, b); }, 2.2), "");
      for (size_t i = 100; i < 102; ++i)
        EXPECT_EQ(std::signbit(got.as<float>()[i]), false) << name << " of zero number " << i;
    }
  }
}

TEST(Math, PowF64) {
  std::vector<double> x = samples<double>(0, 10, INFINITY, 3);
  std::vector<double> y = samples<double>(-20, 20, INFINITY, 4);
  size_t at = 100;
  const double special[] = {0.0, -0.0, 1,    -1,    INFINITY,    -INFINITY,   NAN,    2,      -2,
                            3,   -3,   0.5,  -0.5,  0x1p53 + 1,  1e300,       -1e300, 5e-324, -5e-324,
                            1e6, -1e6, 1e17, -1e17, 1 + 0x1p-52, 1 - 0x1p-53, 1e-310};
  for (const double a : special)
    for (const double b : special) {
      x[at] = a;
      y[at++] = b;
    }
  // Results over all of the range: near 1 with large exponents, far from it with small ones.
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> logarithm(-1080, 1030), digits(-52, 10);
  for (; at < 60000; ++at) {
    const double step = std::exp2(digits(random));
    x[at] = at % 2 ? 1 + step : 1 / (1 + step);
    y[at] = logarithm(random) / std::log2(x[at]);
  }
  const LoopProgram loops = expand_math(
      program_of_expr(DType::kF64, [](const Expr& a, const Expr& b) { return binary(BinaryOp::kPow, a, b); }));
  for (const std::string& target : runnable_targets()) {
    const Tensor got = NativeModule(program_of(loops), parse_target(target)).run({tensor_of(x), tensor_of(y)})[0];
    EXPECT_EQ(
        check_bound<double>("pow f64 " + target, x, y, got, [](Wide a, Wide b) { return std::pow(a, b); }, 0.9), "");
  }
}

// Of whole numbers, their roots' powers and powers of two: where f64 holds the power, it is that.
TEST(Math, PowF64IsExactWhereItCanBe) {
  std::vector<double> x, y;
  for (int base = 2; base < 400; ++base) {
    Wide power = 1;
    for (int exponent = 1; (power *= base) < 0x1p53L; ++exponent) {
      for (const double scale : {1.0, 0x1p-3, 0x1p7}) {
        x.push_back(base * scale);
        y.push_back(exponent);
      }
      x.push_back(-base);
      y.push_back(exponent);
    }
    x.push_back(double(base) * base * base * base);
    y.push_back(0.25);
    x.push_back(double(base) * base);
    y.push_back(1.5);
  }
  for (int exponent = -1074; exponent < 1024; ++exponent) {
    x.push_back(2);
    y.push_back(exponent);
  }
  ASSERT_LE(x.size(), static_cast<size_t>(kSize));
  x.resize(kSize, 1), y.resize(kSize, 1);
  const LoopProgram loops = expand_math(
      program_of_expr(DType::kF64, [](const Expr& a, const Expr& b) { return binary(BinaryOp::kPow, a, b); }));
  for (const std::string& target : runnable_targets()) {
    const Tensor got = NativeModule(program_of(loops), parse_target(target)).run({tensor_of(x), tensor_of(y)})[0];
    EXPECT_EQ(check_bound<double>(
                  "exact pow f64 " + target, x, y, got, [](Wide a, Wide b) { return std::pow(a, b); }, 0),
              "");
  }
}

TEST(Math, RemainderF64IsExact) {
  std::mt19937_64 random(9);
  std::uniform_real_distribution<double> mantissa(1, 2), bits(-3, 60), exponent(-1074, 1023);
  std::vector<double> x = samples<double>(-1000, 1000, INFINITY, 5);
  std::vector<double> y = samples<double>(-7, 7, INFINITY, 6);
  size_t at = 100;
  const double special[] = {0.0,    -0.0,      INFINITY, NAN,      1,          -3,       1e308,
                            5e-324, 0x1p-1022, 0x1p52,   0x1p1023, 0x1p53 + 2, 0x1p-500, 0x1p500};
  for (const double a : special)
    for (const double b : special) {
      x[at] = a;
      y[at++] = b;
    }
  for (; at < x.size(); at += 2) {
    y[at] = std::ldexp(mantissa(random), static_cast<int>(exponent(random)));
    x[at] = at % 4 ? y[at] * std::exp2(bits(random)) : std::ldexp(mantissa(random), static_cast<int>(exponent(random)));
    if (at % 3 == 0) x[at] = -x[at];
  }
  const LoopProgram loops = expand_math(
      program_of_expr(DType::kF64, [](const Expr& a, const Expr& b) { return binary(BinaryOp::kRem, a, b); }));
  for (const std::string& target : runnable_targets()) {
    const Tensor got = NativeModule(program_of(loops), parse_target(target)).run({tensor_of(x), tensor_of(y)})[0];
    EXPECT_EQ(
        check_bound<double>("rem f64 " + target, x, y, got, [](Wide a, Wide b) { return std::fmod(a, b); }, 0), "");
  }
}

TEST(Math, RemainderF32IsExact) {
  std::vector<float> x = samples<float>(-1000, 1000, INFINITY, 5);
  std::vector<float> y = samples<float>(-7, 7, INFINITY, 6);
  for (const BinaryOp op : {BinaryOp::kRem, BinaryOp::kFloorMod}) {
    const LoopProgram loops =
        expand_math(program_of_expr(DType::kF32, [&](const Expr& a, const Expr& b) { return binary(op, a, b); }));
    const auto reference = [&](Wide a, Wide b) {
      const Wide r = std::fmod(a, b);
      return op == BinaryOp::kFloorMod && r != 0 && (r < 0) != (b < 0) ? r + b : r;
    };
    for (const std::string& target : runnable_targets()) {
      const Tensor got = NativeModule(program_of(loops), parse_target(target)).run({tensor_of(x), tensor_of(y)})[0];
      EXPECT_EQ(check_bound<float>(std::string(binary_name(op)) + " f32 " + target, x, y, got, reference,
                                   op == BinaryOp::kRem ? 0 : 0.5),
                "");
    }
  }
}

TEST(Math, IntegerPow) {
  for (const DType dtype : {DType::kI64, DType::kU8}) {
    const LoopProgram loops =
        program_of_expr(dtype, [](const Expr& a, const Expr& b) { return binary(BinaryOp::kPow, a, b); });
    expect_agrees(loops, random_inputs(loops, 2, true), 0);
    const LoopProgram constant = program_of_expr(
        dtype, [&](const Expr& a, const Expr&) { return binary(BinaryOp::kPow, a, const_int(dtype, 5)); });
    expect_agrees(constant, random_inputs(constant, 2, true), 0);
  }
}

TEST(Math, NarrowTypesGoThroughF32) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    for (const UnaryOp op : {UnaryOp::kExp, UnaryOp::kTanh, UnaryOp::kSin}) {
      const LoopProgram loops = program_of_expr(dtype, [&](const Expr& a, const Expr&) { return unary(op, a); });
      expect_agrees(loops, random_inputs(loops, 2, true), dtype == DType::kF16 ? 1e-3 : 8e-3);
    }
  }
}

// The expansion means the same to the interpreter: it is ordinary IR.
TEST(Math, ExpansionInTheInterpreter) {
  for (const Case& c : kCases) {
    const LoopProgram loops = program_of_expr(DType::kF32, [&](const Expr& a, const Expr&) { return unary(c.op, a); });
    const std::vector<float> x = samples<float>(c.low, c.high, INFINITY, 8);
    const Tensor want = run_interpreted(loops, {tensor_of(x), tensor_of(x)})[0];
    const LoopProgram expanded = expand_math(loops);
    EXPECT_EQ(check_bound<float>(
                  std::string("interpreted ") + unary_name(c.op), x, x,
                  run_interpreted(expanded, {tensor_of(x), tensor_of(x)})[0],
                  [&](Wide v, Wide) { return c.reference(v); }, c.bound32),
              "");
  }
}

}  // namespace
}  // namespace tessera
