// scale_sums_once on random layers, beside the graph that they came from: a byte may be the next one where the number
// lies near the middle of two.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "graph/parser.h"
#include "graph/printer.h"
#include "graph/verify.h"
#include "graph_passes/quantized/scale_sums_once.h"
#include "graph_passes/rewrite/dce.h"
#include "interp/graph_interp.h"
#include "ops/op_table.h"
#include "random_numbers.h"

namespace tessera {
namespace {

constexpr int64_t kRows = 37, kColumns = 3;

// A layer in text form; with its number before rounding, in units of the output, as a second output where `shows`.
struct Layer {
  bool is_signed, shifts, adds_residual, adds_float, limits, divides;
  double scale[kColumns], bias[kColumns], residual, unit, low, high;
  int64_t zero, share;

  static Layer any(RandomNumbers& random) {
    Layer l{random.coin(),
            random.coin(),
            random.coin(),
            random.pick(0, 4) == 0,
            random.coin(),
            true,
            {},
            {},
            0,
            0,
            0,
            0,
            0,
            0};
    for (int64_t i = 0; i < kColumns; ++i) {
      l.scale[i] = std::exp(random.real(-9, -5));
      l.bias[i] = random.coin() ? random.real(-2, 2) : 0;
    }
    l.residual = random.real(0.001, 0.02);
    l.unit = random.pick(0, 3) == 0 ? 0.03125 : random.real(0.01, 0.05);
    l.low = random.coin() ? 0 : random.real(-1, 0.5);
    l.high = l.low + random.real(0.1, 6);
    l.zero = l.is_signed ? random.pick(-128, 127) : random.pick(0, 255);
    l.share = random.pick(-4000, 4000);
    return l;
  }

  std::string text(bool shows) const {
    const auto row = [](const double* values) { return fmt::format("{} {} {}", values[0], values[1], values[2]); };
    const char* type = is_signed ? "i8" : "u8";
    std::string s =
        fmt::format("graph @g(%x: i32[{0},5], %w: i32[5,3], %q: u8[{0},3], %f: f32[{0},3]) -> (%y: {1}[{0},3]{2}) {{\n",
                    kRows, type, shows ? fmt::format(", %number: f32[{},3]", kRows) : "");
    int count = 0;
    const auto add = [&](const std::string& op, const char* of) {
      s += fmt::format("  %v{} = {} : {}[{},3]\n", ++count, op, of, kRows);
      return fmt::format("%v{}", count);
    };
    const auto number = [&](double value, const char* of = "f32") {
      s += fmt::format("  %v{} = constant {{value = dense<{}[] {}>}} : {}[]\n", ++count, of, value, of);
      return fmt::format("%v{}", count);
    };
    const auto numbers = [&](const double* values) {
      s += fmt::format("  %v{} = constant {{value = dense<f32[3] {}>}} : f32[3]\n", ++count, row(values));
      return fmt::format("%v{}", count);
    };
    std::string at = add("matmul(%x, %w)", "i32");
    if (shifts) at = add(fmt::format("sub({}, {})", at, number(static_cast<double>(share), "i32")), "i32");
    at = add(fmt::format("cast({}) {{to = f32}}", at), "f32");
    at = add(fmt::format("mul({}, {})", at, numbers(scale)), "f32");
    at = add(fmt::format("add({}, {})", at, numbers(bias)), "f32");
    if (adds_residual) {
      std::string other = add("cast(%q) {to = i32}", "i32");
      other = add(fmt::format("sub({}, {})", other, number(9, "i32")), "i32");
      other = add(fmt::format("cast({}) {{to = f32}}", other), "f32");
      other = add(fmt::format("mul({}, {})", other, number(residual)), "f32");
      at = add(fmt::format("add({}, {})", other, at), "f32");
    }
    if (adds_float) at = add(fmt::format("sub({}, %f)", at), "f32");
    if (limits) {
      at = add(fmt::format("max({}, {})", at, number(low)), "f32");
      at = add(fmt::format("min({}, {})", at, number(high)), "f32");
    }
    const std::string divided = add(fmt::format("div({}, {})", at, number(unit)), "f32");
    at = add(fmt::format("round({})", divided), "f32");
    at = add(fmt::format("add({}, {})", at, number(static_cast<double>(zero))), "f32");
    at = add(fmt::format("max({}, {})", at, number(is_signed ? -128 : 0)), "f32");
    at = add(fmt::format("min({}, {})", at, number(is_signed ? 127 : 255)), "f32");
    s += fmt::format("  %y = cast({}) {{to = {}}} : {}[{},3]\n", at, type, type, kRows);
    if (shows) s += fmt::format("  %number = neg({}) : f32[{},3]\n", divided, kRows);
    return s + "}\n";
  }
};

TEST(ScaleSumsOnce, GivesTheSameBytesButForTies) {
  RandomNumbers random(11);
  GraphInterpreter evaluator;
  const Target target = reference_machine();
  const PassContext ctx{standard_ops(), evaluator, target, 3};
  int64_t bytes = 0, others = 0;
  for (int round = 0; round < 300; ++round) {
    const Layer layer = Layer::any(random);
    const Graph before = parse_graph(layer.text(false), standard_ops());
    const Graph after = dce(scale_sums_once(before, ctx), ctx);
    ASSERT_TRUE(verify(after).empty()) << print(after);
    ASSERT_NE(print(after).find("fma("), std::string::npos) << print(before);
    std::vector<Tensor> inputs;
    for (const ValueId id : before.inputs) {
      const TensorType& type = before.type(id);
      Tensor tensor(type.dtype, *static_dims(type.shape));
      for (int64_t i = 0; i < tensor.num_elements(); ++i)
        tensor.set_double(i, type.dtype == DType::kF32  ? random.real(-1, 1)
                             : type.dtype == DType::kU8 ? static_cast<double>(random.pick(0, 255))
                                                        : static_cast<double>(random.pick(-127, 127)));
      inputs.push_back(std::move(tensor));
    }
    const std::vector<Tensor> shown = evaluator.evaluate(parse_graph(layer.text(true), standard_ops()), inputs);
    const Tensor got = std::move(evaluator.evaluate(after, inputs)[0]);
    for (int64_t i = 0; i < got.num_elements(); ++i) {
      ++bytes;
      const int64_t want = shown[0].get_int(i), own = got.get_int(i);
      if (want == own) continue;
      ++others;
      const double number = -shown[1].get_double(i), from_tie = std::abs(number - std::floor(number) - 0.5);
      ASSERT_EQ(std::abs(want - own), 1) << number << "\n" << print(before) << print(after);
      ASSERT_LE(from_tie, 1e-4) << number << "\n" << print(before) << print(after);
    }
  }
  EXPECT_GT(bytes, 10000);
  EXPECT_LT(others, bytes / 100);
}

// What requantises by one factor is moved from signed bytes to unsigned ones, to the bit.
TEST(ScaleSumsOnce, KeepsOneFactorToTheBit) {
  RandomNumbers random(12);
  GraphInterpreter evaluator;
  const Target target = reference_machine();
  const PassContext ctx{standard_ops(), evaluator, target, 3};
  for (int round = 0; round < 100; ++round) {
    const Graph before = parse_graph(fmt::format(R"(
graph @g(%x: i32[400,1], %w: i32[1,1]) -> (%y: i8[400,1]) {{
  %sums = matmul(%x, %w) : i32[400,1]
  %real = cast(%sums) {{to = f32}} : f32[400,1]
  %s = constant {{value = dense<f32[] {}>}} : f32[]
  %n = mul(%real, %s) : f32[400,1]
  %r = round(%n) : f32[400,1]
  %z = constant {{value = dense<f32[] {}>}} : f32[]
  %a = add(%r, %z) : f32[400,1]
  %low = constant {{value = dense<f32[] {}>}} : f32[]
  %l = max(%a, %low) : f32[400,1]
  %high = constant {{value = dense<f32[] 127>}} : f32[]
  %h = min(%l, %high) : f32[400,1]
  %y = cast(%h) {{to = i8}} : i8[400,1]
}})",
                                                 random.coin() ? 0.5 : random.real(-1, 1), random.pick(-128, 127),
                                                 random.coin() ? -128 : random.pick(-128, 100)),
                                     standard_ops());
    const Graph after = dce(scale_sums_once(before, ctx), ctx);
    ASSERT_NE(print(after).find("to = u8"), std::string::npos) << print(after);
    Tensor x(DType::kI32, {400, 1}), one(DType::kI32, {1, 1});
    for (int64_t i = 0; i < 400; ++i)
      x.set_double(i, static_cast<double>(i < 300 ? i - 150 : random.pick(-1 << 20, 1 << 20)));
    one.set_double(0, 1);
    const std::vector<Tensor> inputs = {x, one};
    const Tensor want = std::move(evaluator.evaluate(before, inputs)[0]),
                 got = std::move(evaluator.evaluate(after, inputs)[0]);
    for (int64_t i = 0; i < 400; ++i) ASSERT_EQ(got.get_int(i), want.get_int(i)) << x.get_double(i) << print(before);
  }
}

}  // namespace
}  // namespace tessera
