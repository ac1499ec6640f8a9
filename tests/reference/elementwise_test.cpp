// Elementwise primitives on every type they claim, with broadcasting, tiny and empty shapes.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <map>

#include "reference_util.h"

namespace tessera {
namespace {

const std::vector<Dims> kShapes = {{}, {1}, {7}, {0}, {3, 0, 2}, {2, 1, 5}, {3, 19}, {1, 300}, {300, 1}, {2, 3, 4, 5}};

// Wraps an exact integer result into the type.
double wrapped(DType dtype, double value) {
  Tensor one(dtype, {});
  one.set_int(0, static_cast<int64_t>(value));
  return one.get_double(0);
}

double rounded(DType dtype, double value) {
  Tensor one(dtype, {});
  one.set_double(0, value);
  return one.get_double(0);
}

struct UnaryCase {
  const char* name;
  double (*f)(double);
  double scale, shift;  // of the inputs, which run from -4 to 4, into the function's domain
};

TEST(Unary, RealFunctions) {
  const UnaryCase cases[] = {
      {"neg", [](double x) { return -x; }, 1, 0},
      {"abs", [](double x) { return std::fabs(x); }, 1, 0},
      {"sign", [](double x) { return x > 0   ? 1.0
                                     : x < 0 ? -1.0
                                             : 0.0; }, 1, 0},
      {"exp", [](double x) { return std::exp(x); }, 1, 0},
      {"log", [](double x) { return std::log(x); }, 1, 4.5},
      {"sqrt", [](double x) { return std::sqrt(x); }, 1, 4},
      {"tanh", [](double x) { return std::tanh(x); }, 1, 0},
      {"erf", [](double x) { return std::erf(x); }, 0.5, 0},
      {"sin", [](double x) { return std::sin(x); }, 1, 0},
      {"cos", [](double x) { return std::cos(x); }, 1, 0},
      {"tan", [](double x) { return std::tan(x); }, 0.25, 0},
      {"asin", [](double x) { return std::asin(x); }, 0.25, 0},
      {"acos", [](double x) { return std::acos(x); }, 0.25, 0},
      {"atan", [](double x) { return std::atan(x); }, 1, 0},
      {"sinh", [](double x) { return std::sinh(x); }, 1, 0},
      {"cosh", [](double x) { return std::cosh(x); }, 1, 0},
      {"asinh", [](double x) { return std::asinh(x); }, 1, 0},
      {"acosh", [](double x) { return std::acosh(x); }, 1, 5},
      {"atanh", [](double x) { return std::atanh(x); }, 0.125, 0},
      {"floor", [](double x) { return std::floor(x); }, 0.5, 0},
      {"ceil", [](double x) { return std::ceil(x); }, 0.5, 0},
      {"round", [](double x) { return x - std::remainder(x, 1.0); }, 1, 0},
  };
  std::mt19937 random(1);
  for (const UnaryCase& c : cases)
    for (DType dtype : kRealDTypes)
      for (const Dims& dims : kShapes) {
        Tensor x = random_tensor(random, dtype, dims);
        for (int64_t i = 0; i < x.num_elements(); ++i) x.set_double(i, x.get_double(i) * c.scale + c.shift);
        const auto want = reference(dims, [&](const Dims& index) { return rounded(dtype, c.f(at(x, index))); });
        expect_close(run_op(c.name, {x})[0], dims, want, c.name);
      }
}

TEST(Unary, Integers) {
  std::mt19937 random(2);
  for (DType dtype : kIntDTypes)
    for (const Dims& dims : kShapes) {
      const Tensor x = random_tensor(random, dtype, dims);
      const auto check = [&](const char* name, auto f) {
        const auto want = reference(dims, [&](const Dims& index) { return wrapped(dtype, f(at(x, index))); });
        expect_close(run_op(name, {x})[0], dims, want, name);
      };
      check("neg", [](double v) { return -v; });
      check("abs", [](double v) { return std::fabs(v); });
      check("sign", [](double v) { return v > 0 ? 1.0 : v < 0 ? -1.0 : 0.0; });
      check("bitwise_not", [](double v) { return -v - 1; });
    }
}

TEST(Unary, PredicatesAndSpecialValues) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::nan("");
  for (DType dtype : kRealDTypes) {
    const Tensor x = tensor_of(dtype, {5}, {0, -1.5, inf, -inf, nan});
    expect_close(run_op("is_nan", {x})[0], {5}, {0, 0, 0, 0, 1}, "is_nan");
    expect_close(run_op("is_inf", {x})[0], {5}, {0, 0, 1, 1, 0}, "is_inf");
    expect_close(run_op("abs", {x})[0], {5}, {0, 1.5, inf, inf, nan}, "abs");
    expect_close(run_op("sign", {x})[0], {5}, {0, -1, 1, -1, nan}, "sign");
    expect_close(run_op("exp", {x})[0], {5}, {1, rounded(dtype, std::exp(-1.5)), inf, 0, nan}, "exp");
    expect_close(run_op("sqrt", {x})[0], {5}, {0, nan, inf, nan, nan}, "sqrt");
  }
  const Tensor b = tensor_of(DType::kBool, {2}, {0, 1});
  expect_close(run_op("logical_not", {b})[0], {2}, {1, 0}, "logical_not");
}

// Pairs of shapes that broadcast, and the result's.
struct Broadcast {
  Dims a, b, out;
};
const std::vector<Broadcast> kBroadcasts = {
    {{}, {}, {}},
    {{5}, {}, {5}},
    {{2, 3}, {3}, {2, 3}},
    {{2, 1}, {1, 3}, {2, 3}},
    {{1, 17, 1}, {4, 1, 5}, {4, 17, 5}},
    {{0}, {1}, {0}},
    {{2, 1, 3}, {0, 1}, {2, 0, 3}},
    {{1, 1, 1, 300}, {2, 1, 1}, {1, 2, 1, 300}},
    {{1, 4, 3, 3}, {4, 1, 1}, {1, 4, 3, 3}},
};

double truncated(double a, double b) { return b == 0 ? 0 : std::trunc(a / b); }

TEST(Binary, ArithmeticOnEveryType) {
  struct Case {
    const char* name;
    double (*real)(double, double);
    double (*integer)(double, double);
  };
  const Case cases[] = {
      {"add", [](double a, double b) { return a + b; }, [](double a, double b) { return a + b; }},
      {"sub", [](double a, double b) { return a - b; }, [](double a, double b) { return a - b; }},
      {"mul", [](double a, double b) { return a * b; }, [](double a, double b) { return a * b; }},
      {"div", [](double a, double b) { return a / b; }, truncated},
      {"rem", [](double a, double b) { return std::fmod(a, b); },
       [](double a, double b) { return b == 0 ? a : a - b * truncated(a, b); }},
      {"min", [](double a, double b) { return a < b ? a : b; }, [](double a, double b) { return a < b ? a : b; }},
      {"max", [](double a, double b) { return a > b ? a : b; }, [](double a, double b) { return a > b ? a : b; }},
  };
  std::mt19937 random(3);
  for (const Case& c : cases)
    for (DType dtype : arithmetic_dtypes())
      for (const Broadcast& shapes : kBroadcasts) {
        const Tensor a = random_tensor(random, dtype, shapes.a);
        const Tensor b = random_tensor(random, dtype, shapes.b);
        const auto want = reference(shapes.out, [&](const Dims& index) {
          const double x = at_broadcast(a, index);
          const double y = at_broadcast(b, index);
          return is_float(dtype) ? rounded(dtype, c.real(x, y)) : wrapped(dtype, c.integer(x, y));
        });
        expect_close(run_op(c.name, {a, b})[0], shapes.out, want, c.name);
      }
}

TEST(Binary, IntegersWrapAndDivisionIsTotal) {
  const Tensor a = tensor_of(DType::kI8, {5}, {127, -128, -128, 7, 5});
  const Tensor b = tensor_of(DType::kI8, {5}, {1, -1, 2, 0, -3});
  expect_close(run_op("add", {a, b})[0], {5}, {-128, 127, -126, 7, 2}, "add");
  expect_close(run_op("mul", {a, b})[0], {5}, {127, -128, 0, 0, -15}, "mul");
  expect_close(run_op("div", {a, b})[0], {5}, {127, -128, -64, 0, -1}, "div");
  expect_close(run_op("rem", {a, b})[0], {5}, {0, 0, 0, 7, 2}, "rem");
  Tensor big(DType::kU64, {2});
  big.set_int(0, -1);  // the largest
  big.set_int(1, 10);
  Tensor two(DType::kU64, {});
  two.set_int(0, 2);
  EXPECT_EQ(run_op("div", {big, two})[0].get_int(0), INT64_MAX);
  EXPECT_EQ(run_op("max", {big, two})[0].get_int(0), -1);
  EXPECT_EQ(run_op("lt", {two, big})[0].get_int(0), 1);
}

TEST(Binary, FloatsAreIeee) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::nan("");
  const Tensor a = tensor_of(DType::kF32, {5}, {1, -1, 0, nan, 1});
  const Tensor b = tensor_of(DType::kF32, {5}, {0, 0, 0, 1, nan});
  expect_close(run_op("div", {a, b})[0], {5}, {inf, -inf, nan, nan, nan}, "div");
  expect_close(run_op("min", {a, b})[0], {5}, {0, -1, 0, nan, nan}, "min");
  expect_close(run_op("max", {a, b})[0], {5}, {1, 0, 0, nan, nan}, "max");
  // Each operation rounds: 2^24 + 1 does not exist in f32.
  const Tensor c = tensor_of(DType::kF32, {}, {16777216});
  EXPECT_EQ(run_op("add", {c, tensor_of(DType::kF32, {}, {1})})[0].get_double(0), 16777216);
}

TEST(Binary, Pow) {
  std::mt19937 random(4);
  for (DType dtype : kRealDTypes) {
    const Tensor a = tensor_of(dtype, {4}, {0.5, 2, 3, 4});
    const Tensor b = tensor_of(dtype, {2, 1}, {-1.5, 2});
    const auto want = reference(
        {2, 4}, [&](const Dims& i) { return rounded(dtype, std::pow(at_broadcast(a, i), at_broadcast(b, i))); });
    expect_close(run_op("pow", {a, b})[0], {2, 4}, want, "pow");
  }
  for (DType dtype : kIntDTypes) {
    const Tensor a = tensor_of(dtype, {4}, {0, 1, 2, 3});
    expect_close(run_op("pow", {a, tensor_of(dtype, {}, {4})})[0], {4}, {0, 1, 16, 81}, "pow");
    if (!is_signed_int(dtype)) continue;
    const Tensor base = tensor_of(dtype, {4}, {1, -1, 2, 0});
    expect_close(run_op("pow", {base, tensor_of(dtype, {}, {-3})})[0], {4}, {1, -1, 0, 0}, "pow");
  }
}

TEST(Binary, Bits) {
  std::mt19937 random(5);
  for (DType dtype : kIntDTypes) {
    const Tensor a = random_tensor(random, dtype, {3, 7});
    const Tensor b = random_tensor(random, dtype, {7});
    const auto check = [&](const char* name, auto f) {
      const auto want = reference({3, 7}, [&](const Dims& i) {
        return wrapped(
            dtype, static_cast<double>(f(static_cast<int64_t>(at(a, i)), static_cast<int64_t>(at_broadcast(b, i)))));
      });
      expect_close(run_op(name, {a, b})[0], {3, 7}, want, name);
    };
    check("bitwise_and", [](int64_t x, int64_t y) { return x & y; });
    check("bitwise_or", [](int64_t x, int64_t y) { return x | y; });
    check("bitwise_xor", [](int64_t x, int64_t y) { return x ^ y; });
    const int bits = dtype_bits(dtype);
    const Tensor amounts = tensor_of(dtype, {3}, {0, 2, static_cast<double>(bits)});
    const Tensor five = tensor_of(dtype, {}, {5});
    expect_close(run_op("shift_left", {five, amounts})[0], {3}, {5, 20, 0}, "shift_left");
    expect_close(run_op("shift_right", {five, amounts})[0], {3}, {5, 1, 0}, "shift_right");
    if (is_signed_int(dtype))
      expect_close(run_op("shift_right", {tensor_of(dtype, {}, {-5}), amounts})[0], {3}, {-5, -2, -1}, "shift_right");
  }
}

TEST(Binary, Logic) {
  const Tensor a = tensor_of(DType::kBool, {2, 1}, {0, 1});
  const Tensor b = tensor_of(DType::kBool, {2}, {0, 1});
  expect_close(run_op("logical_and", {a, b})[0], {2, 2}, {0, 0, 0, 1}, "and");
  expect_close(run_op("logical_or", {a, b})[0], {2, 2}, {0, 1, 1, 1}, "or");
  expect_close(run_op("logical_xor", {a, b})[0], {2, 2}, {0, 1, 1, 0}, "xor");
}

TEST(Compare, EveryTypeAndNan) {
  const std::map<std::string, bool (*)(double, double)> cases = {
      {"eq", [](double a, double b) { return a == b; }}, {"ne", [](double a, double b) { return a != b; }},
      {"lt", [](double a, double b) { return a < b; }},  {"le", [](double a, double b) { return a <= b; }},
      {"gt", [](double a, double b) { return a > b; }},  {"ge", [](double a, double b) { return a >= b; }}};
  std::mt19937 random(6);
  auto dtypes = arithmetic_dtypes();
  dtypes.push_back(DType::kBool);
  for (const auto& [name, f] : cases)
    for (DType dtype : dtypes) {
      if (dtype == DType::kBool && name != "eq" && name != "ne") continue;
      for (const Broadcast& shapes : kBroadcasts) {
        const Tensor a = random_tensor(random, dtype, shapes.a);
        Tensor b = random_tensor(random, dtype, shapes.b);
        if (is_float(dtype) && b.num_elements() > 1) b.set_double(1, std::nan(""));
        const auto want =
            reference(shapes.out, [&](const Dims& i) { return f(at_broadcast(a, i), at_broadcast(b, i)) ? 1.0 : 0.0; });
        expect_close(run_op(name, {a, b})[0], shapes.out, want, name);
      }
    }
}

TEST(Select, EveryTypeWithBroadcasting) {
  std::mt19937 random(7);
  for (DType dtype : movable_dtypes()) {
    const Tensor c = random_tensor(random, DType::kBool, {3, 1, 9});
    const Tensor a = random_tensor(random, dtype, {2, 9});
    const Tensor b = random_tensor(random, dtype, {1, 1});
    const auto want = reference(
        {3, 2, 9}, [&](const Dims& i) { return at_broadcast(c, i) != 0 ? at_broadcast(a, i) : at_broadcast(b, i); });
    expect_close(run_op("select", {c, a, b})[0], {3, 2, 9}, want, std::string(dtype_name(dtype)), 0);
  }
}

// Every pair of types; the values are exact in all of them but those that have no negative numbers.
TEST(Binary, SixteenBitResultsRoundToNearestEven) {
  // a + b over values whose sums fall between codes, on them, and below the normal numbers.
  for (DType dtype : {DType::kF16, DType::kBF16}) {
    const double smallest = dtype == DType::kF16 ? 0x1p-24 : 0x1p-133;
    for (double big : {1.0, 1.5, 1024.0, 16384.0, 32768.0, -3.25}) {
      std::vector<double> a, b;
      for (int i = 0; i < 64; ++i) {
        a.push_back(rounded(dtype, big + i * smallest));
        b.push_back(rounded(dtype, big * std::ldexp(1.0 + i / 64.0, -(i % 16))));
      }
      a.push_back(smallest);
      b.push_back(3 * smallest);
      const auto count = static_cast<int64_t>(a.size());
      const Tensor x = tensor_of(dtype, {count}, a), y = tensor_of(dtype, {count}, b);
      const auto want = [&](auto f) {
        return reference({count}, [&](const Dims& i) { return rounded(dtype, f(at(x, i), at(y, i))); });
      };
      expect_close(run_op("add", {x, y})[0], {count}, want([](double p, double q) { return p + q; }), "add", 0);
      expect_close(run_op("mul", {x, y})[0], {count}, want([](double p, double q) { return p * q; }), "mul", 0);
      expect_close(run_op("div", {x, y})[0], {count}, want([](double p, double q) { return p / q; }), "div", 0);
    }
  }
}

TEST(Cast, EveryPairOfTypes) {
  std::mt19937 random(8);
  for (DType from : movable_dtypes())
    for (DType to : movable_dtypes()) {
      Tensor x = random_tensor(random, from, {3, 7});
      const Tensor y = run_op("cast", {x}, {{"to", to}})[0];
      ASSERT_EQ(y.dtype(), to);
      const auto want = reference({3, 7}, [&](const Dims& i) {
        const double value = at(x, i);
        if (to == DType::kBool) return value != 0 ? 1.0 : 0.0;
        if (is_float(to)) return rounded(to, value);
        if (!is_float(from)) return wrapped(to, value);
        // Saturates at the ends of the range.
        const int bits = dtype_bits(to);
        const double hi = is_signed_int(to) ? std::ldexp(1.0, bits - 1) - 1 : std::ldexp(1.0, bits) - 1;
        const double lo = is_signed_int(to) ? -std::ldexp(1.0, bits - 1) : 0;
        return std::min(std::max(std::trunc(value), lo), hi);
      });
      expect_close(y, {3, 7}, want, fmt::format("{} to {}", dtype_name(from), dtype_name(to)), 0);
    }
}

TEST(Cast, Extremes) {
  const double inf = std::numeric_limits<double>::infinity();
  const Tensor x = tensor_of(DType::kF32, {6}, {inf, -inf, std::nan(""), 1e20, -1e20, -0.9});
  const Tensor y = run_op("cast", {x}, {{"to", DType::kI64}})[0];
  const int64_t want[] = {INT64_MAX, INT64_MIN, 0, INT64_MAX, INT64_MIN, 0};
  for (int i = 0; i < 6; ++i) EXPECT_EQ(y.get_int(i), want[i]) << i;
  const Tensor u = run_op("cast", {x}, {{"to", DType::kU8}})[0];
  const int64_t want_u8[] = {255, 0, 0, 255, 0, 0};
  for (int i = 0; i < 6; ++i) EXPECT_EQ(u.get_int(i), want_u8[i]) << i;
  expect_close(run_op("cast", {tensor_of(DType::kF32, {2}, {65519, 65520})}, {{"to", DType::kF16}})[0], {2},
               {65504, inf}, "f16", 0);
}

}  // namespace
}  // namespace tessera
