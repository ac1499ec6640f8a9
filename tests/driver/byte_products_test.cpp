// Products and convolutions of bytes in vectors: beside the interpreter, bit for bit, for every kind of processor.
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>
#include <random>

#include "amx/quantized_graph.h"
#include "codegen/llvm/target.h"
#include "driver/compile.h"
#include "driver/engine/model.h"
#include "driver/engine/native_model.h"
#include "interp/graph_interp.h"
#include "loop/printer.h"

namespace tessera {
namespace {

using Ints = std::vector<int64_t>;
using Random = std::mt19937_64;

constexpr std::string_view kOfU8 = "u8";

// Where weights are u8, the first factors have the sign.
std::string_view dot_of_u8(DType weights) { return weights == DType::kU8 ? kOfU8 : ""; }

// The dot products that they have of weights of i8, and of u8.
struct ByteTarget {
  const char *target, *i8, *u8;
};
constexpr std::array<ByteTarget, 5> kTargets = {
    {{"x86-64-v2", "x86.sse.dot.pairs.", "x86.sse.dot.pairs."},
     {"x86-64-v3", "x86.avx2.dot.pairs.", "x86.avx2.dot.pairs."},
     {"x86-64-v3,+avxvnni", "x86.avx.dot.u8i8", "x86.avx.dot.i8u8"},
     {"x86-64-v4", "x86.avx512.dot.pairs.", "x86.avx512.dot.pairs."},
     {"x86-64-v4,+avx512vnni", "x86.avx512.dot.u8i8", "x86.avx512.dot.i8u8"}}};

// `instead`: what the kernels' text has when it is not the target's own dot product; kOfU8: its other one. `tolerance`
// in parts of the greatest result.
void expect_same(const Graph& graph, const Tensor& x, const std::string& what, bool in_groups,
                 std::string_view instead = "", double tolerance = 0) {
  const std::vector<Tensor> wanted = GraphInterpreter().evaluate(graph, {x});
  for (const auto& [target, of_i8, of_u8] : kTargets) {
    const std::string_view dot = instead == kOfU8 ? of_u8 : instead.empty() ? of_i8 : instead;
    if (!runs_here(parse_target(target))) {
      std::cout << "not run, for want of the processor: " << target << "\n";
      continue;
    }
    DriverOptions options;
    options.compile.target = target;
    options.compile.num_threads = 1;
    options.runner.verify_each = true;
    PassRunner runner(options);
    const Compiled compiled = compile_graph(graph, options, runner);
    const std::unique_ptr<Model> model = load_module(module_in_memory(compiled), "bytes", 1);
    model->bind({x});
    model->run();
    const std::vector<Tensor> ours = model->results();
    for (size_t i = 0; i < wanted.size(); ++i) {
      int64_t differences = 0;
      double greatest = 0;
      for (int64_t e = 0; e < wanted[i].num_elements(); ++e)
        greatest = std::max(greatest, std::abs(wanted[i].get_double(e)));
      for (int64_t e = 0; e < wanted[i].num_elements(); ++e)
        differences += std::abs(wanted[i].get_double(e) - ours[i].get_double(e)) > tolerance * greatest;
      EXPECT_EQ(differences, 0) << what << " result " << i << " " << target;
    }
    bool found = false;
    for (const Kernel& kernel : compiled.program.kernels) found |= print(kernel.program).find(dot) != std::string::npos;
    EXPECT_EQ(found, in_groups) << what << " " << target;
  }
}

TEST(ByteProducts, Products) {
  const std::vector<std::pair<Ints, int64_t>> shapes = {{{16, 16}, 32}, {{17, 65}, 47},      {{1, 96}, 96},
                                                        {{3, 1}, 20},   {{2, 3, 9, 62}, 70}, {{5, 3001}, 17},
                                                        {{70, 128}, 3}, {{64, 20}, 200}};
  uint64_t seed = 1;
  for (const auto& [dims, columns] : shapes)
    for (const Types types : kByteTypes) {
      Random random(++seed);
      const int zero = some_zero_point(types.x, seed);
      QuantizedGraph graph(dims, types.x, zero);
      graph.product(random_bytes(types.w, {dims.back(), columns}, random));
      const Graph done = graph.finish(seed % 3 == 0);
      expect_same(done, random_bytes(types.x, dims, random),
                  fmt::format("{} x {} columns, {} {}", fmt::join(dims, "x"), columns, dtype_name(types.x),
                              dtype_name(types.w)),
                  true, dot_of_u8(types.w));
    }
}

struct ConvCase {
  int64_t channels, outputs, height, width, kernel, stride, pad, groups = 1, dilation = 1;
  bool in_groups = true;
  bool of_any_kind = false;
};

TEST(ByteProducts, Convolutions) {
  const std::vector<ConvCase> cases = {{32, 64, 9, 11, 3, 1, 1},
                                       {3, 32, 19, 18, 7, 2, 3},  // groups of columns, 7 become 8
                                       {3, 16, 9, 12, 3, 2, 1},   // 3 become 4
                                       {1, 5, 8, 8, 4, 1, 0},
                                       {22, 40, 7, 7, 3, 1, 1},  // the last block of channels is not full
                                       {9, 16, 5, 6, 1, 1, 0},
                                       {16, 24, 8, 9, 3, 1, 2, 1, 2},               // dilated
                                       {64, 64, 6, 6, 3, 1, 1, 4},                  // groups of whole blocks
                                       {24, 48, 6, 6, 3, 2, 1, 24, 1, true, true},  // a multiplier: groups are joined
                                       {12, 8, 6, 6, 3, 1, 1, 4}};
  uint64_t seed = 100;
  for (const ConvCase& c : cases)
    for (const Types types : kByteTypes) {
      Random random(++seed);
      const int zero = types.x == DType::kU8 ? static_cast<int>(seed % 3) * 64 : static_cast<int>(seed % 3) * 64 - 128;
      const Ints dims = {1 + static_cast<int64_t>(seed % 2), c.channels, c.height, c.width};
      QuantizedGraph graph(dims, types.x, zero);
      graph.conv(random_bytes(types.w, {c.outputs, c.channels / c.groups, c.kernel, c.kernel}, random), c.stride, c.pad,
                 c.groups, c.dilation);
      const Graph done = graph.finish(seed % 3 == 0);
      expect_same(done, random_bytes(types.x, dims, random),
                  fmt::format("{} of {} channels, {}x{}, {} groups, {} {}", fmt::join(dims, "x"), c.outputs, c.kernel,
                              c.kernel, c.groups, dtype_name(types.x), dtype_name(types.w)),
                  c.in_groups, c.of_any_kind ? ".dot." : dot_of_u8(types.w));
    }
}

// Weights of u8 that have a zero point of their own, which leaves them nine bits.
TEST(ByteProducts, WeightsOfNineBits) {
  const auto weights = [](const Ints& dims, Random& random) {
    Tensor tensor(DType::kI32, dims);
    fill(tensor, random, -100, 155);
    return tensor;
  };
  uint64_t seed = 300;
  for (const DType dtype : {DType::kU8, DType::kI8}) {
    for (const auto& [dims, columns] :
         std::vector<std::pair<Ints, int64_t>>{{{17, 65}, 47}, {{1, 96}, 16}, {{64, 20}, 33}}) {
      Random random(++seed);
      QuantizedGraph graph(dims, dtype, some_zero_point(dtype, seed));
      graph.product(weights({dims.back(), columns}, random));
      expect_same(graph.finish(seed % 2 == 0), random_bytes(dtype, dims, random),
                  fmt::format("{} x {} columns of nine bits, {}", fmt::join(dims, "x"), columns, dtype_name(dtype)),
                  true);
    }
    for (const ConvCase& c : std::vector<ConvCase>{{32, 64, 9, 11, 3, 1, 1},
                                                   {3, 32, 19, 18, 7, 2, 3},
                                                   {22, 40, 7, 7, 1, 1, 0},
                                                   {16, 24, 8, 9, 3, 1, 2, 1, 2}}) {
      Random random(++seed);
      const Ints dims = {1, c.channels, c.height, c.width};
      QuantizedGraph graph(dims, dtype, some_zero_point(dtype, seed));
      graph.conv(weights({c.outputs, c.channels / c.groups, c.kernel, c.kernel}, random), c.stride, c.pad, c.groups,
                 c.dilation);
      expect_same(graph.finish(seed % 2 == 0), random_bytes(dtype, dims, random),
                  fmt::format("{} of {} channels, {}x{}, {} groups of nine bits, {}", fmt::join(dims, "x"), c.outputs,
                              c.kernel, c.kernel, c.groups, dtype_name(dtype)),
                  c.in_groups);
    }
  }
}

// A lane has both factors for itself. Where rows are too short for a window, products are taken one by one.
TEST(ByteProducts, DepthwiseConvolutions) {
  struct Depthwise {
    int64_t channels, height, width, kernel, stride, pad, dilation = 1;
    bool any_rule = false;  // whether windows fit depends on what becomes of the padding
  };
  const std::vector<Depthwise> cases = {{12, 7, 8, 3, 1, 1},
                                        {40, 14, 14, 3, 1, 1},
                                        {16, 7, 7, 3, 2, 1},
                                        {33, 28, 29, 3, 2, 1},
                                        {8, 6, 57, 3, 1, 0},
                                        {17, 5, 4, 3, 1, 2},
                                        {10, 9, 31, 5, 1, 2},
                                        {24, 13, 14, 5, 2, 2},
                                        {20, 16, 17, 7, 1, 3},
                                        {9, 11, 10, 2, 1, 0},
                                        {16, 12, 23, 4, 3, 1},
                                        {32, 12, 16, 3, 1, 2, 2, true},
                                        {15, 20, 21, 3, 2, 3, 3, true},
                                        {16, 3, 3, 3, 1, 1, 1, true},
                                        {16, 1, 1, 3, 1, 1, 1, true},
                                        {19, 8, 6, 1, 1, 0, 1, true}};
  const auto check = [](const Depthwise& c, DType dtype, std::pair<int, int> weight_range, uint64_t seed) {
    Random random(seed);
    const Ints dims = {1 + static_cast<int64_t>(seed % 2), c.channels, c.height, c.width};
    Tensor weights(DType::kI32, {c.channels, 1, c.kernel, c.kernel});
    fill(weights, random, weight_range.first, weight_range.second);
    QuantizedGraph graph(dims, dtype, some_zero_point(dtype, seed));
    graph.conv(weights, c.stride, c.pad, c.channels, c.dilation);
    expect_same(graph.finish(seed % 3 == 0), random_bytes(dtype, dims, random),
                fmt::format("depthwise {}, {}x{}, stride {}, pad {}, {} from {}", fmt::join(dims, "x"), c.kernel,
                            c.kernel, c.stride, c.pad, dtype_name(dtype), weight_range.first),
                true, c.any_rule ? "kernel" : ".dot.");
  };
  const std::pair<int, int> ranges[] = {{-128, 127}, {-100, 155}, {0, 255}};
  uint64_t seed = 500;
  for (const Depthwise& c : cases)
    for (const DType dtype : {DType::kU8, DType::kI8}) ++seed, check(c, dtype, ranges[seed % 3], seed);
  // Any shapes, whichever rule takes them.
  for (int round = 0; round < 20; ++round) {
    Random random(++seed);
    const auto pick = [&](int64_t low, int64_t high) {
      return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    Depthwise c{2 + pick(0, 40),
                pick(1, 12),
                pick(1, 40),
                pick(1, 7),
                pick(1, 3),
                0,
                pick(1, 5) == 1 ? int64_t{2} : int64_t{1}};
    c.pad = pick(0, c.kernel);
    const int64_t span = (c.kernel - 1) * c.dilation + 1 - 2 * c.pad;
    c.height = std::max(c.height, span), c.width = std::max(c.width, span);
    c.any_rule = true;
    check(c, round % 2 == 0 ? DType::kU8 : DType::kI8, ranges[round % 3], seed);
  }
}

// Dequantised factors, as QuantizeLinear and DequantizeLinear in pairs have them: sums of f32 become sums of integers.
TEST(ByteProducts, OfDequantizedFactors) {
  for (const bool conv : {false, true}) {
    Random random(conv ? 5 : 6);
    Graph graph;
    GraphBuilder builder(graph);
    const auto op = [&](const char* name, const std::vector<ValueId>& inputs, const Attrs& attrs = {}) {
      return builder.add(standard_ops().get(name), inputs, attrs);
    };
    const auto constant = [&](Tensor value) {
      return op("constant", {}, {{"value", TensorPtr(std::make_shared<Tensor>(std::move(value)))}});
    };
    const auto real = [&](ValueId bytes, int zero, const Ints& scales) {
      Tensor number(DType::kI32, {}), scale(DType::kF32, scales);
      number.set_double(0, zero);
      for (int64_t i = 0; i < scale.num_elements(); ++i) scale.set_double(i, 1.0 / static_cast<double>(100 + i));
      const ValueId less = op("sub", {op("cast", {bytes}, {{"to", DType::kI32}}), constant(number)});
      return op("mul", {op("cast", {less}, {{"to", DType::kF32}}), constant(scale)});
    };
    const Ints x = conv ? Ints{1, 20, 9, 9} : Ints{7, 45}, w = conv ? Ints{24, 20, 3, 3} : Ints{45, 24};
    const ValueId input = graph.add_input("x", {DType::kU8, make_shape(x), {}});
    const ValueId a = real(input, 99, {});
    const ValueId b = real(constant(random_bytes(DType::kI8, w, random)), 0, conv ? Ints{24, 1, 1, 1} : Ints{1, 24});
    const Attrs window = {{"groups", int64_t{1}},          {"strides", Ints{1, 1}},    {"dilations", Ints{1, 1}},
                          {"input_dilations", Ints{1, 1}}, {"pads_begin", Ints{1, 1}}, {"pads_end", Ints{1, 1}}};
    graph.outputs = {conv ? op("conv", {a, b}, window) : op("matmul", {a, b})};
    graph.rename(graph.outputs[0], "y");
    expect_same(graph, random_bytes(DType::kU8, x, random), conv ? "dequantised conv" : "dequantised product", true, "",
                1e-5);
  }
}

// Scales in fixed point, as TFLite's integer models have them: 32 bits by 32 bits, rounded and shifted. They are stored
// in 32 bits where they fit, which one instruction multiplies.
TEST(ByteProducts, FixedPointScales) {
  for (const bool fits : {true, false}) {
    Random random(fits ? 11 : 12);
    constexpr int64_t kChannels = 37;
    Graph graph;
    GraphBuilder builder(graph);
    const auto op = [&](const char* name, const std::vector<ValueId>& inputs, const Attrs& attrs = {}) {
      return builder.add(standard_ops().get(name), inputs, attrs);
    };
    const auto constant = [&](int64_t low, int64_t high) {
      const auto value = std::make_shared<Tensor>(DType::kI64, Ints{kChannels});
      std::uniform_int_distribution<int64_t> numbers(low, high);
      for (int64_t& number : value->as_mutable<int64_t>()) number = numbers(random);
      return op("constant", {}, {{"value", TensorPtr(value)}});
    };
    const ValueId x = graph.add_input("x", {DType::kI32, make_shape({5, kChannels}), {}});
    const ValueId scale = constant(fits ? INT32_MIN : INT64_C(1) << 31, fits ? INT32_MAX : INT64_C(1) << 32);
    const ValueId product = op("mul", {op("cast", {x}, {{"to", DType::kI64}}), scale});
    const ValueId shifted = op("shift_right", {op("add", {product, constant(0, 1 << 20)}), constant(20, 40)});
    graph.outputs = {op("cast", {shifted}, {{"to", DType::kI32}})};
    graph.rename(graph.outputs[0], "y");
    Tensor numbers(DType::kI32, {5, kChannels});
    fill(numbers, random, INT32_MIN, INT32_MAX);
    numbers.set_double(0, INT32_MIN), numbers.set_double(1, INT32_MAX);
    expect_same(graph, numbers, fits ? "scales of 32 bits" : "scales of 33 bits", fits, ": i32[37], ");
  }
}

// Weights that need more than 8 bits once their zero point is off them.
TEST(ByteProducts, WhatDoesNotFitIsLeftToOthers) {
  Random random(7);
  Tensor wide(DType::kI32, {64, 64});
  fill(wide, random, -255, 255);
  QuantizedGraph nine_bits({64, 64}, DType::kU8, 3);
  nine_bits.product(wide);
  expect_same(nine_bits.finish(), random_bytes(DType::kU8, {64, 64}, random), "nine bits", false);
}

}  // namespace
}  // namespace tessera
