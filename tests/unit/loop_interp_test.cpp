// The loop interpreter: what operations mean, what it refuses, and that it is fast enough for whole models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "interp/loop_interp.h"
#include "loop/parser.h"
#include "support/error.h"

namespace tessera {
namespace {

// Runs `text` on x (and gives y), both of the types that the kernel declares with constant shapes.
Tensor run(const std::string& text, const Tensor& x, std::vector<int64_t> symbols = {},
           std::vector<int64_t> y_dims = {}) {
  const LoopProgram program = parse_loop_program(text);
  const BufferPtr y_buffer = program.params.back();
  if (y_dims.empty())
    for (const Expr& dim : y_buffer->shape) y_dims.push_back(as_int(dim).value());
  Tensor y(y_buffer->dtype, y_dims);
  Tensor input = x;
  Tensor* params[] = {&input, &y};
  interpret(program, std::span<Tensor* const>(params), symbols);
  return y;
}

Tensor tensor(DType dtype, std::vector<int64_t> dims, const std::vector<double>& values) {
  Tensor t(dtype, std::move(dims));
  for (size_t i = 0; i < values.size(); ++i) t.set_double(static_cast<int64_t>(i), values[i]);
  return t;
}

std::vector<double> values(const Tensor& t) {
  std::vector<double> v;
  for (int64_t i = 0; i < t.num_elements(); ++i) v.push_back(t.get_double(i));
  return v;
}

// One expression of x[i] for every element.
std::vector<double> map(DType from, DType to, const std::string& expression, const std::vector<double>& x) {
  const std::string n = std::to_string(x.size());
  const std::string text = "kernel @k(x: " + std::string(dtype_name(from)) + "[" + n +
                           "]) -> (y: " + std::string(dtype_name(to)) + "[" + n + "]) { for i in 0.." + n +
                           " { y[i] = " + expression + " } }";
  return values(run(text, tensor(from, {static_cast<int64_t>(x.size())}, x)));
}

using testing::ElementsAre;
constexpr double kInf = INFINITY;

TEST(LoopInterp, FloatOperations) {
  const DType f = DType::kF32;
  EXPECT_THAT(map(f, f, "fma(x[i], 2:f32, 1:f32)", {1, -3}), ElementsAre(3, -5));
  EXPECT_THAT(map(f, f, "min(x[i], 0:f32)", {1, -3, NAN}), ElementsAre(0, -3, testing::IsNan()));
  EXPECT_THAT(map(f, f, "max(0:f32, x[i])", {1, -3, NAN}), ElementsAre(1, 0, testing::IsNan()));
  EXPECT_THAT(map(f, f, "round(x[i])", {0.5, 1.5, -2.5, 2.6}), ElementsAre(0, 2, -2, 3));
  EXPECT_THAT(map(f, f, "sign(x[i])", {-2, 0, 7}), ElementsAre(-1, 0, 1));
  EXPECT_THAT(map(f, f, "(x[i] + 16777216:f32)", {1, 2, 3}), ElementsAre(16777216, 16777218, 16777220));
  EXPECT_THAT(map(f, f, "rem(x[i], 3:f32)", {7, -7}), ElementsAre(1, -1));
  EXPECT_THAT(map(f, DType::kBool, "(x[i] != x[i])", {1, NAN}), ElementsAre(0, 1));
  EXPECT_THAT(map(f, DType::kBool, "isinf(x[i])", {1, kInf, -kInf, NAN}), ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(map(f, DType::kI32, "bitcast:i32(x[i])", {1, -2}), ElementsAre(0x3f800000, -1073741824));
  EXPECT_THAT(map(DType::kF16, DType::kF16, "(x[i] + 2048:f16)", {1, 3}), ElementsAre(2048, 2052));
  EXPECT_THAT(map(DType::kF64, DType::kF64, "(x[i] * x[i])", {1e-200, 3}), ElementsAre(0, 9));
  EXPECT_THAT(map(f, f, "exp(x[i])", {0, 1}), ElementsAre(1, std::exp(1.0f)));
}

TEST(LoopInterp, IntegerOperations) {
  const DType b = DType::kI8;
  EXPECT_THAT(map(b, b, "(x[i] + 100:i8)", {100, -128}), ElementsAre(-56, -28));
  EXPECT_THAT(map(b, b, "neg(x[i])", {5, -128}), ElementsAre(-5, -128));
  EXPECT_THAT(map(b, b, "(x[i] / -1:i8)", {7, -128}), ElementsAre(-7, -128));
  EXPECT_THAT(map(b, b, "(x[i] / (x[i] - x[i]))", {7}), ElementsAre(0));
  EXPECT_THAT(map(b, b, "rem(x[i], (x[i] - x[i]))", {7}), ElementsAre(7));
  EXPECT_THAT(map(b, b, "floordiv(x[i], 4:i8)", {7, -7}), ElementsAre(1, -2));
  EXPECT_THAT(map(b, b, "floormod(x[i], 4:i8)", {7, -7}), ElementsAre(3, 1));
  EXPECT_THAT(map(b, b, "(x[i] / 4:i8)", {7, -7}), ElementsAre(1, -1));
  EXPECT_THAT(map(b, b, "rem(x[i], 4:i8)", {7, -7}), ElementsAre(3, -3));
  EXPECT_THAT(map(b, b, "pow(x[i], 3:i8)", {3, -2}), ElementsAre(27, -8));
  EXPECT_THAT(map(b, b, "shr(x[i], 1:i8)", {-3, 6}), ElementsAre(-2, 3));
  EXPECT_THAT(map(b, b, "shl(x[i], 7:i8)", {1, 2}), ElementsAre(-128, 0));
  EXPECT_THAT(map(DType::kU8, DType::kU8, "(x[i] - 1:u8)", {0, 3}), ElementsAre(255, 2));
  EXPECT_THAT(map(DType::kU8, DType::kU8, "shr(x[i], 1:u8)", {200}), ElementsAre(100));
  EXPECT_THAT(map(DType::kI4, DType::kI4, "(x[i] + 1:i4)", {7, -8, 3}), ElementsAre(-8, -7, 4));
  EXPECT_THAT(map(DType::kBool, DType::kBool, "not(x[i])", {0, 1}), ElementsAre(1, 0));
  EXPECT_THAT(map(DType::kU64, DType::kBool, "(x[i] < -1:u64)", {3}), ElementsAre(1));  // -1 is the largest u64
}

TEST(LoopInterp, Casts) {
  const DType f = DType::kF32;
  EXPECT_THAT(map(f, DType::kI8, "cast:i8(x[i])", {1.9, -1.9, 300, -300, NAN, kInf}),
              ElementsAre(1, -1, 127, -128, 0, 127));
  EXPECT_THAT(map(f, DType::kU8, "cast:u8(x[i])", {-5, 255.5, 256}), ElementsAre(0, 255, 255));
  EXPECT_THAT(map(f, DType::kI64, "cast:i64(x[i])", {1e30, -1e30}),
              ElementsAre(9223372036854775807., -9223372036854775808.));
  EXPECT_THAT(map(f, DType::kBool, "cast:bool(x[i])", {0, -0.0, 0.1, NAN}), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(map(DType::kI32, DType::kI8, "cast:i8(x[i])", {300, -129}), ElementsAre(44, 127));
  EXPECT_THAT(map(DType::kI64, f, "cast:f32(x[i])", {16777217, -3}), ElementsAre(16777216, -3));
  EXPECT_THAT(map(f, DType::kBF16, "cast:bf16(x[i])", {1.00390625, 1.01171875}), ElementsAre(1, 1.015625));
}

TEST(LoopInterp, ConvolutionWithPaddingAgainstDirectSums) {
  const char* text = R"(
kernel @conv(x: f32[3,6,7]) -> (y: f32[3,6,7]) {
  parallel for c in 0..3 {
    for h in 0..6 {
      alloc acc: f32[7] register
      vectorized for w in 0..7 { acc[w] = 0:f32 }
      for i in 0..3 {
        for j in 0..3 {
          vectorized for w in 0..7 {
            acc[w] = fma(select(0 <= h+i-1 & h+i-1 < 6 & 0 <= w+j-1 & w+j-1 < 7, x[c, h+i-1, w+j-1], 0:f32),
                         cast:f32(i*3+j), acc[w])
          }
        }
      }
      vectorized for w in 0..7 { y[c, h, w] = max(acc[w], 0:f32) }
    }
  }
})";
  Tensor x(DType::kF32, {3, 6, 7});
  std::mt19937 random(3);
  for (float& v : x.as_mutable<float>()) v = static_cast<float>(static_cast<int>(random() % 9) - 4);
  const Tensor y = run(text, x);
  for (int64_t c = 0; c < 3; ++c)
    for (int64_t h = 0; h < 6; ++h)
      for (int64_t w = 0; w < 7; ++w) {
        double sum = 0;
        for (int64_t i = 0; i < 3; ++i)
          for (int64_t j = 0; j < 3; ++j) {
            const int64_t ih = h + i - 1;
            const int64_t iw = w + j - 1;
            if (ih >= 0 && ih < 6 && iw >= 0 && iw < 7)
              sum += x.get_double((c * 6 + ih) * 7 + iw) * static_cast<double>(i * 3 + j);
          }
        EXPECT_EQ(y.get_double((c * 6 + h) * 7 + w), std::max(sum, 0.0)) << c << " " << h << " " << w;
      }
}

TEST(LoopInterp, SymbolsAndNonAffineIndices) {
  const char* text = R"(
kernel @k<n>(x: f32[n,4]) -> (y: f32[n * 4]) {
  for t in 0..n * 4 { y[t] = x[floordiv(t, 4), floormod(t, 4)] + cast:f32(n) }
})";
  const Tensor y = run(text, tensor(DType::kF32, {2, 4}, {0, 1, 2, 3, 4, 5, 6, 7}), {2}, {8});
  EXPECT_THAT(values(y), ElementsAre(2, 3, 4, 5, 6, 7, 8, 9));
}

TEST(LoopInterp, LoopsOfRuntimeExtentAndGather) {
  const char* text = R"(
kernel @k(x: i64[4]) -> (y: i64[4]) {
  for i in 0..4 {
    y[i] = 0
    for j in i..+x[i] { y[i] = y[i] * 10 + x[x[j]] }
    for j in 5..+(0 - i) { y[i] = 99 }
  }
})";
  EXPECT_THAT(values(run(text, tensor(DType::kI64, {4}, {1, 3, 2, 1}))), ElementsAre(3, 123, 23, 3));
}

TEST(LoopInterp, OnlyTheChosenOperandIsEvaluated) {
  const char* text = R"(
kernel @k(x: f32[4]) -> (y: f32[5]) {
  for i in 0..5 {
    y[i] = select(i < 4 & x[i] > 0:f32, x[i], select(i < 4 | x[i] > 7:f32, -1:f32, -2:f32))
  }
})";
  EXPECT_THROW(run(text, tensor(DType::kF32, {4}, {1, -1, 2, -2})), InternalError);  // x[4] after the |
  const std::string fixed = std::string(text).replace(std::string(text).find("i < 4 | x[i]"), 12, "i < 9 | x[i]");
  EXPECT_THAT(values(run(fixed, tensor(DType::kF32, {4}, {1, -1, 2, -2}))), ElementsAre(1, -1, 2, -1, -1));
}

// Choices over shared expressions, nested: in proportion to the nodes, not to the paths through them.
TEST(LoopInterp, SharedExpressionsBehindChoices) {
  const BufferPtr x = make_buffer("x", DType::kI64, {2});
  const BufferPtr y = make_buffer("y", DType::kI64, {2});
  Expr e = load(x, {0});
  for (int i = 0; i < 60; ++i) {
    if (i % 3 == 0) e = select(e < Expr(i), e + Expr(1), e + Expr(2));
    else if (i % 3 == 1) e = select(load(x, {1}) < Expr(i), e + Expr(1), Expr(0)) + e * Expr(i % 2);
    else e = select(load(x, {1}) > Expr(i), e * Expr(3), e - Expr(1));
  }
  const LoopProgram program{"k", {x, y}, 1, {}, store(y, {0}, e)};
  Tensor in(DType::kI64, {2});
  Tensor out(DType::kI64, {2});
  in.set_int(0, 5);
  in.set_int(1, 30);
  Tensor* params[] = {&in, &out};
  interpret(program, std::span<Tensor* const>(params));
  int64_t expected = 5;
  for (int i = 0; i < 60; ++i) {
    const auto old = static_cast<uint64_t>(expected);
    if (i % 3 == 0) expected += expected < i ? 1 : 2;
    else if (i % 3 == 1) expected = static_cast<int64_t>((30 < i ? old + 1 : 0) + old * static_cast<uint64_t>(i % 2));
    else expected = static_cast<int64_t>(30 > i ? old * 3 : old - 1);
  }
  EXPECT_EQ(out.get_int(0), expected);

  const Var i = make_var("i");
  Expr index = i;
  for (int doubling = 0; doubling < 62; ++doubling) index = index + index;
  const Stmt put = store(y, {floordiv(index, Expr(int64_t{1} << 61))}, 7);
  const LoopProgram sums{"k", {x, y}, 1, {}, for_loop(i, 0, 1, ForKind::kSerial, put)};
  interpret(sums, std::span<Tensor* const>(params));
  EXPECT_EQ(out.get_int(0), 7);
}

TEST(LoopInterp, ALoadIsRepeatedAfterAStore) {
  const char* text =
      "kernel @k(x: f32[1]) -> (y: f32[2]) { y[0] = 1:f32 y[1] = y[0] + 1:f32 y[0] = y[1] + y[0] y[1] = y[0] * y[1] }";
  EXPECT_THAT(values(run(text, tensor(DType::kF32, {1}, {0}))), ElementsAre(3, 6));
}

std::string error_of(const std::string& body, const std::string& before = "") {
  try {
    run("kernel @conv_7(x: f32[4,2]) -> (y: f32[4,2]) { " + before + body + " }", Tensor(DType::kF32, {4, 2}));
  } catch (const InternalError& error) {
    return error.what();
  }
  return "no error";
}

TEST(LoopInterp, ErrorsOfTheProgram) {
  using testing::HasSubstr;
  EXPECT_THAT(error_of("for i in 0..5 { y[i, 0] = 0:f32 }"),
              HasSubstr("kernel conv_7: store outside its buffer y: f32[4,2]: y[i, 0] has index 4 in dimension 0"));
  EXPECT_THAT(error_of("for i in 0..4 { y[i, 0] = x[0, i] }"),
              HasSubstr("kernel conv_7: load outside its buffer x: f32[4,2]: x[0, i] has index 2 in dimension 1"));
  EXPECT_THAT(error_of("for i in 0..4 { y[i, 0] = x[i - 1, 0] }"),
              HasSubstr("x[(i - 1), 0] has index -1 in dimension 0"));
  EXPECT_THAT(
      error_of("alloc a: f32[3,2] register for i in 0..2 { for j in 0..2 { a[i, j] = 0:f32 } } y[0, 0] = a[2, 1]"),
      HasSubstr("kernel conv_7: load of a[2, 1] from a: f32[3,2] reads element [2, 1], which was never stored to"));
  EXPECT_THAT(error_of("for i in 0..2 { alloc a: f32[1] local if (i == 0) { a[0] = 1:f32 } y[i, 0] = a[0] }"),
              HasSubstr("never stored to"));
  EXPECT_THAT(error_of("if (y[3, 1] == 0:f32) { } for i in 0..3 { for j in 0..i { y[0, i + j * 2] = 0:f32 } }"),
              HasSubstr("index 2 in dimension 1"));
}

TEST(LoopInterp, ParametersMustFit) {
  const LoopProgram program =
      parse_loop_program("kernel @k(x: f32[4]) -> (y: f32[4]) { for i in 0..4 { y[i] = x[i] } }");
  Tensor a(DType::kF32, {4});
  Tensor b(DType::kF32, {2, 2});
  Tensor c(DType::kF64, {4});
  const Tensor read_only(DType::kF32, {4}, nullptr, a.bytes());
  Tensor r = read_only;
  const auto call = [&](std::vector<Tensor*> params) {
    try {
      interpret(program, std::span<Tensor* const>(params));
    } catch (const InternalError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(call({&a}), testing::HasSubstr("called with 1 parameters instead of 2"));
  EXPECT_THAT(call({&a, &b}), testing::HasSubstr("parameter y is f32[4], called with f32[2,2]"));
  EXPECT_THAT(call({&c, &a}), testing::HasSubstr("parameter x is f32[4], called with f64[4]"));
  EXPECT_THAT(call({&a, &r}), testing::HasSubstr("parameter y is stored to but is not writable"));
  Tensor y(DType::kF32, {4});
  EXPECT_EQ(call({&r, &y}), "no error");
}

TEST(LoopInterp, ATensorizedTile) {
  const char* text = R"(
kernel @tile(x: f32[400,14]) -> (y: f32[2,14,16]) {
  alloc acc: f32[2,14,16] register
  unrolled for v in 0..2 { unrolled for p in 0..14 { vectorized for l in 0..16 { acc[v, p, l] = 0:f32 } } }
  for k in 0..400 {
    tensorized "x86.avx512.fma.f32" {
      unrolled for v in 0..2 { unrolled for p in 0..14 { vectorized for l in 0..16 {
        acc[v, p, l] = fma(x[k, p], x[l + v, k * 0 + 3], acc[v, p, l]) } } }
    }
  }
  unrolled for v in 0..2 { unrolled for p in 0..14 { vectorized for l in 0..16 { y[v, p, l] = acc[v, p, l] } } }
})";
  Tensor x(DType::kF32, {400, 14});
  for (float& v : x.as_mutable<float>()) v = 0.25f;
  EXPECT_EQ(run(text, x).get_double(5), 25.0);
}

}  // namespace
}  // namespace tessera
