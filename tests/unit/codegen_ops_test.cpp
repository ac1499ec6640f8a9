// Every operator on every type, on special values too, against the interpreter: bit for bit.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "codegen_harness.h"
#include "loop/parser.h"
#include "loop_passes/expand_math.h"

namespace tessera {
namespace {

const std::vector<DType>& floats() {
  static const std::vector<DType> kTypes = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16};
  return kTypes;
}
const std::vector<DType>& ints() {
  static const std::vector<DType> kTypes = {DType::kI64, DType::kI32, DType::kI16, DType::kI8,
                                            DType::kU64, DType::kU32, DType::kU16, DType::kU8};
  return kTypes;
}

constexpr int64_t kSize = 333;

// y_r[i] = results[r], once in vectors and once in scalars; all results in one kernel, so that a type is one module.
void expect_same(DType dtype, int num_inputs, const std::vector<BufferPtr>& inputs, const std::vector<Expr>& results,
                 const Var& i, uint32_t seed) {
  LoopProgram loops;
  loops.name = "ops_" + std::string(dtype_name(dtype));
  loops.params = inputs;
  std::vector<Stmt> stmts;
  for (const Expr& result : results) {
    for (const ForKind kind : {ForKind::kVectorized, ForKind::kSerial}) {
      const BufferPtr y = make_buffer("y" + std::to_string(stmts.size()), result.dtype(), {Expr(kSize)});
      loops.params.push_back(y);
      stmts.push_back(for_loop(i, 0, kSize, kind, store(y, {i}, result)));
    }
  }
  loops.num_outputs = static_cast<int>(stmts.size());
  loops.body = seq(stmts);
  std::mt19937 random(seed);
  std::vector<Tensor> tensors;
  for (int k = 0; k < num_inputs; ++k)
    tensors.push_back(random_tensor(inputs[static_cast<size_t>(k)]->dtype, {kSize}, random, true));
  expect_agrees(loops, tensors, 0);
}

TEST(CodegenOps, Floats) {
  for (const DType dtype : floats()) {
    const Var i = make_var("i");
    const std::vector<BufferPtr> inputs = {make_buffer("a", dtype, {Expr(kSize)}),
                                           make_buffer("b", dtype, {Expr(kSize)})};
    const Expr a = load(inputs[0], {i});
    const Expr b = load(inputs[1], {i});
    std::vector<Expr> results;
    for (const UnaryOp op : {UnaryOp::kNeg, UnaryOp::kAbs, UnaryOp::kSqrt, UnaryOp::kFloor, UnaryOp::kCeil,
                             UnaryOp::kRound, UnaryOp::kTrunc, UnaryOp::kSign, UnaryOp::kIsNan, UnaryOp::kIsInf})
      results.push_back(unary(op, a));
    for (const BinaryOp op :
         {BinaryOp::kAdd, BinaryOp::kSub, BinaryOp::kMul, BinaryOp::kDiv, BinaryOp::kMin, BinaryOp::kMax, BinaryOp::kEq,
          BinaryOp::kNe, BinaryOp::kLt, BinaryOp::kLe, BinaryOp::kGt, BinaryOp::kGe})
      results.push_back(binary(op, a, b));
    results.push_back(min(a, const_float(dtype, 1.5)));
    results.push_back(max(const_float(dtype, 0), a));
    results.push_back(select(a < b, a, b));
    for (const DType to : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kI64, DType::kI32, DType::kI16,
                           DType::kI8, DType::kU64, DType::kU32, DType::kU16, DType::kU8, DType::kBool})
      results.push_back(cast(to, a));
    expect_same(dtype, 2, inputs, results, i, 7);
  }
}

TEST(CodegenOps, Integers) {
  for (const DType dtype : ints()) {
    const Var i = make_var("i");
    const std::vector<BufferPtr> inputs = {make_buffer("a", dtype, {Expr(kSize)}),
                                           make_buffer("b", dtype, {Expr(kSize)})};
    const Expr a = load(inputs[0], {i});
    const Expr b = load(inputs[1], {i});
    std::vector<Expr> results;
    for (const UnaryOp op : {UnaryOp::kNeg, UnaryOp::kAbs, UnaryOp::kNot, UnaryOp::kSign})
      results.push_back(unary(op, a));
    for (const BinaryOp op : {BinaryOp::kAdd,      BinaryOp::kSub,      BinaryOp::kMul, BinaryOp::kDiv, BinaryOp::kRem,
                              BinaryOp::kFloorDiv, BinaryOp::kFloorMod, BinaryOp::kMin, BinaryOp::kMax, BinaryOp::kAnd,
                              BinaryOp::kOr,       BinaryOp::kXor,      BinaryOp::kShl, BinaryOp::kShr, BinaryOp::kEq,
                              BinaryOp::kNe,       BinaryOp::kLt,       BinaryOp::kLe,  BinaryOp::kGt,  BinaryOp::kGe})
      results.push_back(binary(op, a, b));
    for (const int64_t divisor : {1, 2, 7, 8, -1, -3, 100, 0})
      for (const BinaryOp op : {BinaryOp::kDiv, BinaryOp::kRem, BinaryOp::kFloorDiv, BinaryOp::kFloorMod})
        results.push_back(binary(op, a, const_int(dtype, divisor)));
    for (const DType to : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kI64, DType::kI32, DType::kI16,
                           DType::kI8, DType::kU64, DType::kU32, DType::kU16, DType::kU8, DType::kBool})
      results.push_back(cast(to, a));
    expect_same(dtype, 2, inputs, results, i, 11);
  }
}

TEST(CodegenOps, Bool) {
  const Var i = make_var("i");
  const std::vector<BufferPtr> inputs = {make_buffer("a", DType::kBool, {Expr(kSize)}),
                                         make_buffer("b", DType::kBool, {Expr(kSize)})};
  const Expr a = load(inputs[0], {i});
  const Expr b = load(inputs[1], {i});
  std::vector<Expr> results = {unary(UnaryOp::kNot, a)};
  for (const BinaryOp op : {BinaryOp::kAnd, BinaryOp::kOr, BinaryOp::kXor, BinaryOp::kMin, BinaryOp::kMax,
                            BinaryOp::kEq, BinaryOp::kNe, BinaryOp::kLt, BinaryOp::kGe})
    results.push_back(binary(op, a, b));
  for (const DType to : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kI64, DType::kI8, DType::kU8})
    results.push_back(cast(to, a));
  expect_same(DType::kBool, 2, inputs, results, i, 5);
}

TEST(CodegenOps, Bitcasts) {
  const Var i = make_var("i");
  const std::vector<BufferPtr> inputs = {
      make_buffer("a", DType::kF32, {Expr(kSize)}), make_buffer("b", DType::kI64, {Expr(kSize)}),
      make_buffer("c", DType::kF16, {Expr(kSize)}), make_buffer("d", DType::kU8, {Expr(kSize)})};
  const std::vector<Expr> results = {
      bitcast(DType::kI32, load(inputs[0], {i})), bitcast(DType::kU32, load(inputs[0], {i})),
      bitcast(DType::kF64, load(inputs[1], {i})), bitcast(DType::kI16, load(inputs[2], {i})),
      bitcast(DType::kI8, load(inputs[3], {i}))};
  expect_same(DType::kF32, 4, inputs, results, i, 6);
}

// All 2^16 patterns of the narrow floats to f32 and back through rounding of f32 values between them.
TEST(CodegenOps, EveryNarrowFloat) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const Var i = make_var("i");
    constexpr int64_t n = 65536;
    LoopProgram loops;
    loops.name = "narrow";
    loops.params = {make_buffer("x", dtype, {Expr(n)}),       make_buffer("f", DType::kF32, {Expr(n)}),
                    make_buffer("d", DType::kF64, {Expr(n)}), make_buffer("wide", DType::kF32, {Expr(n)}),
                    make_buffer("narrow", dtype, {Expr(n)}),  make_buffer("from_f64", dtype, {Expr(n)})};
    loops.num_outputs = 3;
    loops.body = for_loop(i, 0, n, ForKind::kVectorized,
                          seq({store(loops.params[3], {i}, cast(DType::kF32, load(loops.params[0], {i}))),
                               store(loops.params[4], {i}, cast(dtype, load(loops.params[1], {i}))),
                               store(loops.params[5], {i}, cast(dtype, load(loops.params[2], {i})))}));
    Tensor x(dtype, {n});
    Tensor f(DType::kF32, {n});
    Tensor d(DType::kF64, {n});
    std::mt19937 random(9);
    for (int64_t k = 0; k < n; ++k) {
      x.as_mutable<uint16_t>()[static_cast<size_t>(k)] = static_cast<uint16_t>(k);
      const double value = x.get_double(k);
      // Halfway to the next pattern, and a little to either side.
      const double next = decode_float(dtype, static_cast<uint32_t>(k + 1) & 0xffff);
      const double middle = (value + next) / 2;
      const double nudge[] = {0, 1e-7, -1e-7, 1e-12, -1e-12};
      f.set_double(k, middle * (1 + nudge[random() % 3]));
      d.set_double(k, middle * (1 + nudge[random() % 5]));
    }
    expect_agrees(loops, {x, f, d}, 0);
  }
}

// AVX-512 scales by powers of two in one instruction: the same bits, for results that overflow and for denormals, too.
TEST(CodegenOps, ExpIsScaledExactly) {
  const auto& targets = runnable_targets();
  if (std::find(targets.begin(), targets.end(), "x86-64-v4") == targets.end())
    GTEST_SKIP() << "this machine has no AVX-512";
  constexpr int64_t kCount = 1 << 16;
  const BufferPtr x = make_buffer("x", DType::kF32, {Expr(kCount)}), y = make_buffer("y", DType::kF32, {Expr(kCount)});
  const Var i = make_var("i"), l = make_var("l");
  LoopProgram loops;
  loops.name = "exp";
  loops.params = {x, y};
  const Expr at = i * Expr(64) + l;
  loops.body = for_loop(i, 0, kCount / 64, ForKind::kSerial,
                        for_loop(l, 0, 64, ForKind::kVectorized, store(y, {at}, unary(UnaryOp::kExp, load(x, {at})))));
  loops = expand_math(loops);
  Tensor values(DType::kF32, {kCount});
  for (int64_t n = 0; n < kCount; ++n)
    values.as_mutable<float>()[static_cast<size_t>(n)] = -112.0f + static_cast<float>(n) * (208.0f / kCount);
  const float special[] = {0, -0.0f, INFINITY, -INFINITY, NAN, 88.72284f, -87.33655f, -103.97208f};
  std::copy(std::begin(special), std::end(special), values.as_mutable<float>().begin());
  const Tensor want = run_interpreted(loops, {values})[0];
  const Tensor got = NativeModule(program_of(loops), parse_target("x86-64-v4")).run({values})[0];
  EXPECT_EQ(difference(got, want, 0), "");
}

// ---- the same bits on every machine ---------------------------------------------------------------------------------

LoopProgram elementwise(const std::string& name, const std::function<std::vector<Expr>(const std::vector<Expr>&)>& make,
                        int num_inputs, int64_t size) {
  LoopProgram loops;
  loops.name = name;
  const Var i = make_var("i");
  std::vector<Expr> values;
  for (int k = 0; k < num_inputs; ++k) {
    loops.params.push_back(make_buffer("x" + std::to_string(k), DType::kF32, {Expr(size)}));
    values.push_back(load(loops.params.back(), {i}));
  }
  std::vector<Stmt> stmts;
  for (const Expr& result : make(values)) {
    loops.params.push_back(make_buffer("y" + std::to_string(stmts.size()), DType::kF32, {Expr(size)}));
    stmts.push_back(for_loop(i, 0, size, ForKind::kVectorized, store(loops.params.back(), {i}, result)));
  }
  loops.num_outputs = static_cast<int>(stmts.size());
  loops.body = seq(stmts);
  return loops;
}

uint32_t bits_at(const Tensor& tensor, int64_t i) {
  uint32_t bits = 0;
  std::memcpy(&bits, static_cast<const char*>(static_cast<const void*>(tensor.bytes())) + 4 * i, 4);
  return bits;
}

float float_of(uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, 4);
  return value;
}

// Multiply-adds are rounded once on x86-64-v2, too, which has no instruction: among them sums that lie in the middle
// between two floats but for what f64 cannot hold, results without normal exponents, and what is not finite.
TEST(CodegenOps, MultiplyAddsOfFixedBitsAreRoundedOnce) {
  constexpr int64_t kMany = 40000;
  std::mt19937 random(11);
  Tensor a(DType::kF32, {kMany}), b(DType::kF32, {kMany}), c(DType::kF32, {kMany});
  int rounded_twice = 0;
  for (int64_t i = 0; i < kMany; ++i) {
    float x = float_of(random()), y = float_of(random()), z = float_of(random());
    if (i % 4 == 1) {  // the product's own size, and a third factor that leaves little of it
      x = std::ldexp(1 + static_cast<float>(random() % 4096) / 4096, static_cast<int>(random() % 20));
      y = std::ldexp(1 + static_cast<float>(random() % 4096) / 4096, static_cast<int>(random() % 20) - 40);
      z = std::ldexp(static_cast<float>(random() % 2 ? 1 : -1), static_cast<int>(random() % 80) - 60);
    } else if (i % 4 == 2) {  // 1 + 2^-24, a little more or less
      x = std::ldexp(1.0F, -12);
      y = std::ldexp(1.0F, -12);
      z = 1 + std::ldexp(static_cast<float>(random() % 8), -23);
      x += std::ldexp(static_cast<float>(static_cast<int>(random() % 3) - 1), -35);
      y += std::ldexp(static_cast<float>(static_cast<int>(random() % 3) - 1), -35);
    } else if (i % 4 == 3) {  // results near the smallest numbers
      x = std::ldexp(static_cast<float>(random() % 16777216), -100);
      y = std::ldexp(static_cast<float>(random() % 16777216), -90);
      z = float_of(random() % 65536);
    }
    a.set_double(i, x);
    b.set_double(i, y);
    c.set_double(i, z);
    const double sum = static_cast<double>(x) * y + z;
    rounded_twice += std::isfinite(sum) && static_cast<float>(sum) != std::fmaf(x, y, z);
  }
  EXPECT_GT(rounded_twice, 100);
  const LoopProgram loops =
      elementwise("fma", [](const std::vector<Expr>& x) { return std::vector{fma(x[0], x[1], x[2])}; }, 3, kMany);
  const Target reference = reference_machine();
  for (const std::string& target : runnable_targets()) {
    CodegenOptions options;
    options.bits_of = &reference;
    const Tensor got = NativeModule(program_of(loops), parse_target(target), options).run({a, b, c})[0];
    for (int64_t i = 0; i < kMany; ++i) {
      const float x = float_of(bits_at(a, i)), y = float_of(bits_at(b, i)), z = float_of(bits_at(c, i));
      const float want = std::fmaf(x, y, z), value = float_of(bits_at(got, i));
      ASSERT_TRUE((std::isnan(want) && std::isnan(value)) || std::memcmp(&want, &value, 4) == 0)
          << target << ": " << x << " * " << y << " + " << z << " is " << want << ", not " << value;
    }
  }
}

TEST(CodegenOps, MinimaOfFixedBitsChooseTheSameZero) {
  const std::vector<float> kValues = {0.0F, -0.0F, 1.0F, -1.0F, INFINITY, -INFINITY, NAN};
  const auto size = static_cast<int64_t>(kValues.size() * kValues.size());
  Tensor a(DType::kF32, {size}), b(DType::kF32, {size});
  for (int64_t i = 0; i < size; ++i) {
    a.set_double(i, kValues[static_cast<size_t>(i) % kValues.size()]);
    b.set_double(i, kValues[static_cast<size_t>(i) / kValues.size()]);
  }
  const LoopProgram loops = elementwise(
      "minima", [](const std::vector<Expr>& x) { return std::vector{min(x[0], x[1]), max(x[0], x[1])}; }, 2, size);
  const Target reference = reference_machine();
  for (const std::string& target : runnable_targets()) {
    CodegenOptions options;
    options.bits_of = &reference;
    const auto got = NativeModule(program_of(loops), parse_target(target), options).run({a, b});
    for (int64_t i = 0; i < size; ++i) {
      const float x = float_of(bits_at(a, i)), y = float_of(bits_at(b, i));
      const bool is_nan = std::isnan(x) || std::isnan(y);
      for (const bool is_max : {false, true}) {
        const float value = float_of(bits_at(got[is_max ? 1 : 0], i));
        EXPECT_EQ(std::isnan(value), is_nan);
        if (is_nan) continue;
        const float want = is_max ? (x > y ? x : y) : (x < y ? x : y);  // of two zeros the second
        EXPECT_EQ(value, want);
        EXPECT_EQ(std::signbit(value), std::signbit(want)) << target << ": of " << x << " and " << y;
      }
    }
  }
}

// Several vectors of numbers that become bytes at once: numbers of every kind, halves above all.
TEST(CodegenOps, PackedBytes) {
  std::vector<float> values = {0, -0.0F, INFINITY, -INFINITY, NAN, 1e30F, -1e30F, 0x1p22F, 0x1p31F, -0x1p31F, 1e-40F};
  for (int i = -60; i <= 600; ++i) values.push_back(static_cast<float>(i) / 2);
  for (const auto& [name, lanes] : {std::pair{"x86.avx512.pack.u8", 64}, {"x86.avx2.pack.u8", 32}}) {
    Tensor x(DType::kF32, {768});
    for (int64_t i = 0; i < 768; ++i) x.set_double(i, values[static_cast<size_t>(i * 7) % values.size()]);
    const std::string text = fmt::format(R"(kernel @k(x: f32[768]) -> (y: u8[768]) {{
      for s in 0..{} {{
        alloc numbers: f32[{}] local
        vectorized for l in 0..{} {{ numbers[l] = x[((s * {}) + l)] }}
        tensorized "{}" {{ vectorized for l in 0..{} {{
          y[((s * {}) + l)] = cast:u8(bitcast:i32((min(select((numbers[l] > 0:f32), numbers[l], 0:f32), 255:f32) + 12582912:f32)))
        }} }}
      }} }})",
                                         768 / lanes, lanes, lanes, lanes, name, lanes, lanes);
    expect_agrees(parse_loop_program(text), {x}, 0);
  }
}

}  // namespace
}  // namespace tessera
