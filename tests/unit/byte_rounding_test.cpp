// byte_rounding beside the loops it came from: random zero points, limits, types and factors; numbers of every kind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "interp/loop_interp.h"
#include "loop/printer.h"
#include "loop/verify.h"
#include "loop_passes/byte_rounding.h"
#include "random_numbers.h"

namespace tessera {
namespace {

Expr number(double value) { return const_float(DType::kF32, static_cast<float>(value)); }

// A number that is rounded to a byte, in one of the ways that passes leave it.
struct Byte {
  DType type;
  int64_t zero, low, high;
  bool is_taken_off, is_first;

  static Byte any(RandomNumbers& random) {
    Byte b{random.coin() ? DType::kU8 : DType::kI8, 0, 0, 0, random.coin(), random.coin()};
    const int64_t least = b.type == DType::kI8 ? -128 : 0, most = least + 255;
    b.zero = random.pick(0, 3) == 0 ? 0 : random.pick(least - 3, most + 3);
    b.low = random.coin() ? least : random.pick(least - 5, most);
    b.high = random.coin() ? most : random.pick(b.low, most + 5);
    return b;
  }
  Expr of(const Expr& x) const {
    Expr value = unary(UnaryOp::kRound, x);
    if (zero != 0)
      value = is_taken_off ? value - number(static_cast<double>(-zero)) : value + number(static_cast<double>(zero));
    const Expr least = number(static_cast<double>(low)), most = number(static_cast<double>(high));
    return cast(type, is_first ? min(max(value, least), most) : max(least, min(most, value)));
  }
};

std::vector<float> numbers(RandomNumbers& random, size_t count) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> values = {0,      -0.0F,   inf,      -inf,        nan,     1e30F,
                               -1e30F, 0x1p22F, -0x1p22F, 0x1p23F + 1, 0x1p31F, 1e-40F};
  for (int i = -300; i <= 300; ++i) values.push_back(static_cast<float>(i) + 0.5F);
  while (values.size() < count) values.push_back(static_cast<float>(random.real(-400, 400)));
  return values;
}

void expect_same(const LoopProgram& before, const std::vector<Tensor*>& inputs, Tensor& output, const char* part) {
  ASSERT_THAT(verify(before), testing::IsEmpty()) << print(before);
  const Target target = reference_machine();
  const LoopProgram after = byte_rounding(before, {target, 3});
  ASSERT_THAT(verify(after), testing::IsEmpty()) << print(after);
  EXPECT_THAT(print(after), testing::HasSubstr(part)) << print(before);
  const auto run = [&](const LoopProgram& program) {
    std::vector<Tensor*> params = inputs;
    params.push_back(&output);
    interpret(program, std::span<Tensor* const>(params));
    std::vector<double> values;
    for (int64_t i = 0; i < output.num_elements(); ++i) values.push_back(output.get_double(i));
    return values;
  };
  const std::vector<double> want = run(before), got = run(after);
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_EQ(got[i], want[i]) << "element " << i << " of " << inputs[0]->get_double(static_cast<int64_t>(i)) << "\n"
                               << print(before) << print(after);
}

LoopProgram over(const std::vector<BufferPtr>& inputs, const BufferPtr& y, const Var& i, const Expr& value) {
  LoopProgram program{"k", inputs, 1, {}, for_loop(i, 0, y->shape[0], ForKind::kSerial, store(y, {i}, value))};
  program.params.push_back(y);
  return program;
}

TEST(ByteRounding, RoundsEveryNumberToTheSameByte) {
  RandomNumbers random(1);
  for (int round = 0; round < 200; ++round) {
    const std::vector<float> values = numbers(random, 800);
    Tensor x(DType::kF32, {800});
    std::copy(values.begin(), values.end(), x.as_mutable<float>().begin());
    const Byte byte = Byte::any(random);
    Tensor y(byte.type, {800});
    const BufferPtr from = make_buffer("x", DType::kF32, {800}), to = make_buffer("y", byte.type, {800});
    const Var i = make_var("i");
    // Where no number stands for NaN the conversion stays.
    const bool has_zero = byte.low <= 0 && byte.high >= 0;
    expect_same(over({from}, to, i, byte.of(load(from, {i}))), {&x}, y, has_zero ? "bitcast:i32" : "round");
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(ByteRounding, BytesThatAreReadAsFloatsStayFloats) {
  RandomNumbers random(2);
  for (int round = 0; round < 200; ++round) {
    const std::vector<float> values = numbers(random, 800);
    Tensor x(DType::kF32, {800}), y(DType::kF32, {800});
    std::copy(values.begin(), values.end(), x.as_mutable<float>().begin());
    const Byte byte = Byte::any(random);
    const BufferPtr from = make_buffer("x", DType::kF32, {800}), to = make_buffer("y", DType::kF32, {800});
    const Var i = make_var("i");
    Expr read = byte.of(load(from, {i}));
    if (random.coin()) {
      read = cast(DType::kI32, read);
      if (random.coin()) read = read - const_int(DType::kI32, random.pick(-128, 255));
    }
    const Expr value = cast(DType::kF32, read) * number(random.real(-2, 2));
    expect_same(over({from}, to, i, value), {&x}, y, byte.low <= 0 && byte.high >= 0 ? "select" : "cast");
    if (testing::Test::HasFatalFailure()) return;
  }
}

// Sums of two scaled bytes, scaled again: all pairs.
TEST(ByteRounding, QuotientsOfFewNumbersNeedNoDivision) {
  RandomNumbers random(3);
  int replaced = 0;
  for (int round = 0; round < 40; ++round) {
    const DType types[2] = {random.coin() ? DType::kU8 : DType::kI8, random.coin() ? DType::kU8 : DType::kI8};
    Tensor a(types[0], {65536}), b(types[1], {65536}), y(DType::kF32, {65536});
    for (int64_t i = 0; i < 65536; ++i) {
      a.set_int(i, i / 256 - (types[0] == DType::kI8 ? 128 : 0));
      b.set_int(i, i % 256 - (types[1] == DType::kI8 ? 128 : 0));
    }
    const BufferPtr from = make_buffer("a", types[0], {65536}), other = make_buffer("b", types[1], {65536}),
                    to = make_buffer("y", DType::kF32, {65536});
    const Var i = make_var("i");
    const auto scaled = [&](const BufferPtr& buffer) {
      const Expr shifted = cast(DType::kI32, load(buffer, {i})) - const_int(DType::kI32, random.pick(-128, 255));
      return cast(DType::kF32, shifted) * number(random.real(0.001, 0.3));
    };
    Expr sum = scaled(from);
    if (random.pick(0, 4) > 0) sum = sum + scaled(other);
    if (random.coin()) sum = max(sum, number(0));
    const LoopProgram before = over({from, other}, to, i, binary(BinaryOp::kDiv, sum, number(random.real(0.001, 0.3))));
    const Target target = reference_machine();
    replaced += print(byte_rounding(before, {target, 3})).find("fma(") != std::string::npos;
    expect_same(before, {&a, &b}, y, "k");
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(replaced, 35);
}

// The same rounded to bytes again: two multiply-adds, with constants behind them where zero points were taken off.
TEST(ByteRounding, SumsOfTwoBytesAreTwoMultiplyAdds) {
  RandomNumbers random(4);
  int combined = 0;
  constexpr int kRounds = 40;
  for (int round = 0; round < kRounds; ++round) {
    const DType types[2] = {random.coin() ? DType::kU8 : DType::kI8, random.coin() ? DType::kU8 : DType::kI8};
    const Byte byte = Byte::any(random);
    Tensor a(types[0], {65536}), b(types[1], {65536}), y(byte.type, {65536});
    for (int64_t i = 0; i < 65536; ++i) {
      a.set_int(i, i / 256 - (types[0] == DType::kI8 ? 128 : 0));
      b.set_int(i, i % 256 - (types[1] == DType::kI8 ? 128 : 0));
    }
    const BufferPtr from = make_buffer("a", types[0], {65536}), other = make_buffer("b", types[1], {65536}),
                    to = make_buffer("y", byte.type, {65536});
    const Var i = make_var("i");
    const auto scaled = [&](const BufferPtr& buffer) {
      Expr read = cast(DType::kI32, load(buffer, {i}));
      if (random.coin()) read = read - const_int(DType::kI32, random.pick(-128, 255));
      return cast(DType::kF32, read) * number(random.real(0.001, 0.3));
    };
    Expr sum = scaled(from);
    if (random.pick(0, 4) > 0) sum = random.coin() ? sum + scaled(other) : sum - scaled(other);
    if (random.coin()) sum = binary(BinaryOp::kDiv, sum, number(random.real(0.05, 0.3)));
    const LoopProgram before = over({from, other}, to, i, byte.of(sum));
    const std::string text = print(byte_rounding(before, {reference_machine(), 3}));
    combined += text.find(" / ") == std::string::npos && text.find(" - ") == std::string::npos;
    expect_same(before, {&a, &b}, y, "k");
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(combined, kRounds / 2);
}

// Any number divided by a scale and rounded: around all places where the byte changes, and beyond.
TEST(ByteRounding, QuotientsThatAreRoundedNeedNoDivision) {
  RandomNumbers random(5);
  int replaced = 0;
  constexpr int kRounds = 100;
  for (int round = 0; round < kRounds; ++round) {
    const Byte byte = Byte::any(random);
    const auto divisor = static_cast<float>(std::exp2(random.real(-20, 10)));
    std::vector<float> values = numbers(random, 800);
    for (float& value : values) value *= divisor;
    for (int integer = -400; integer <= 400; ++integer) {
      float near = static_cast<float>((integer + 0.5) * static_cast<double>(divisor));
      for (int step = 0; step < 3; ++step) near = std::nextafter(near, -HUGE_VALF);
      for (int step = 0; step < 7; ++step) values.push_back(near = std::nextafter(near, HUGE_VALF));
    }
    const auto count = static_cast<int64_t>(values.size());
    Tensor x(DType::kF32, {count}), y(byte.type, {count});
    std::copy(values.begin(), values.end(), x.as_mutable<float>().begin());
    const BufferPtr from = make_buffer("x", DType::kF32, {count}), to = make_buffer("y", byte.type, {count});
    const Var i = make_var("i");
    Expr read = load(from, {i});
    if (random.coin()) read = max(read, number(divisor * random.real(-300, 10)));
    if (random.coin()) read = min(read, number(divisor * random.real(10, 300)));
    if (random.coin()) read = read * number(0.25);
    const Expr scaled = binary(BinaryOp::kDiv, read, const_float(DType::kF32, divisor));
    const LoopProgram before = over({from}, to, i, byte.of(random.coin() ? min(scaled, number(100.5)) : scaled));
    replaced += print(byte_rounding(before, {reference_machine(), 3})).find(" / ") == std::string::npos;
    expect_same(before, {&x}, y, "k");
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(replaced, kRounds / 3);  // those whose limits have a number for NaN
}

TEST(ByteRounding, OtherNumbersStayDivided) {
  const BufferPtr x = make_buffer("x", DType::kF32, {4});
  const Var i = make_var("i");
  const auto divided = [&](double divisor, DType type) {
    const Expr quotient = binary(BinaryOp::kDiv, load(x, {i}), number(divisor));
    const Expr value = type == DType::kU8 ? cast(type, unary(UnaryOp::kRound, quotient)) : quotient;
    const BufferPtr to = make_buffer("y", type, {4});
    return print(byte_rounding(over({x}, to, i, value), {reference_machine(), 3}));
  };
  EXPECT_THAT(divided(0.3, DType::kU8), testing::Not(testing::HasSubstr(" / ")));
  EXPECT_THAT(divided(-0.3, DType::kU8), testing::HasSubstr(" / "));
  EXPECT_THAT(divided(0x1p70, DType::kU8), testing::HasSubstr(" / "));
  EXPECT_THAT(divided(0.3, DType::kF32), testing::HasSubstr(" / "));
}

}  // namespace
}  // namespace tessera
