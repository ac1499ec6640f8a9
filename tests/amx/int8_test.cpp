// Products and convolutions of bytes in tiles: beside the interpreter, bit for bit, on random shapes.
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iostream>
#include <random>

#include "amx/amx_emulator.h"
#include "amx/quantized_graph.h"
#include "codegen/llvm/target.h"
#include "driver/compile.h"
#include "driver/engine/model.h"
#include "driver/engine/native_model.h"
#include "interp/graph_interp.h"

namespace tessera {
namespace {

using Ints = std::vector<int64_t>;
using Random = std::mt19937_64;

constexpr const char* kPortable = "x86-64-v4,+portable-tiles";
constexpr const char* kAmx = "x86-64-v4,+amx-tile,+amx-int8";

bool can_run(const char* name) {
  Target target = parse_target(name);
  if (emulate_amx()) std::erase_if(target.features, [](const std::string& f) { return f.starts_with("amx-"); });
  if (runs_here(target)) return true;
  std::cout << "not run, for want of the processor: " << name << "\n";
  return false;
}

struct Outcome {
  std::vector<Tensor> results;
  std::vector<std::string> rules, refused;
  uint64_t products = 0;
};

Outcome run(const Graph& graph, const Tensor& x, const char* target, int threads) {
  DriverOptions options;
  options.compile.target = target;
  options.compile.num_threads = threads;
  options.runner.verify_each = true;
  PassRunner runner(options);
  Compiled compiled = compile_graph(graph, options, runner);
  Outcome result;
  for (const Kernel& kernel : compiled.program.kernels) {
    result.rules.push_back(kernel.rule);
    result.refused.insert(result.refused.end(), kernel.refused.begin(), kernel.refused.end());
  }
  if (emulate_amx()) forget_amx(compiled.info.features);
  const AmxCounts before = amx_counts();
  const std::unique_ptr<Model> model = load_module(module_in_memory(compiled), "int8", threads);
  model->bind({x});
  model->run();
  result.results = model->results();
  const AmxCounts after = amx_counts();
  result.products = after.int8_products - before.int8_products;
  EXPECT_EQ(after.configured_threads, 0) << "tiles are left configured";
  return result;
}

void expect_same(const Graph& graph, const Tensor& x, const std::string& what, bool in_tiles) {
  const std::vector<Tensor> wanted = GraphInterpreter().evaluate(graph, {x});
  for (const char* target : {kPortable, kAmx}) {
    if (!can_run(target)) continue;
    const Outcome ours = run(graph, x, target, target == kAmx ? 2 : 1);
    for (size_t i = 0; i < wanted.size(); ++i) {
      int64_t differences = 0;
      for (int64_t e = 0; e < wanted[i].num_elements(); ++e)
        differences += wanted[i].get_double(e) != ours.results[i].get_double(e);
      EXPECT_EQ(differences, 0) << what << " result " << i << " " << target;
    }
    const bool taken = std::find(ours.rules.begin(), ours.rules.end(), "matrix_tile") != ours.rules.end();
    EXPECT_EQ(taken, in_tiles) << what << fmt::format("{}", fmt::join(ours.refused, "; "));
    if (taken && target == kAmx && emulate_amx()) {
      EXPECT_GT(ours.products, 0u) << what;
    }
  }
}

TEST(Int8Tiles, Products) {
  const std::vector<std::pair<Ints, int64_t>> shapes = {{{16, 16}, 32},   {{17, 65}, 47},      {{100, 31}, 96},
                                                        {{33, 200}, 257}, {{2, 3, 9, 64}, 70}, {{64, 1100}, 64},
                                                        {{300, 128}, 40}};
  uint64_t seed = 1;
  for (const auto& [dims, columns] : shapes)
    for (const Types types : kByteTypes) {
      Random random(++seed);
      const int zero = some_zero_point(types.x, seed);
      QuantizedGraph graph(dims, types.x, zero);
      graph.product(random_bytes(types.w, {dims.back(), columns}, random));
      const Graph done = graph.finish();
      expect_same(done, random_bytes(types.x, dims, random),
                  fmt::format("{} x {} columns, {} {}", fmt::join(dims, "x"), columns, dtype_name(types.x),
                              dtype_name(types.w)),
                  true);
    }
}

struct ConvCase {
  int64_t channels, outputs, height, width, kernel, stride, pad;
};

TEST(Int8Tiles, Convolutions) {
  const std::vector<ConvCase> cases = {{32, 64, 9, 11, 3, 1, 1},  {16, 32, 14, 14, 1, 1, 0}, {64, 48, 13, 13, 3, 2, 1},
                                       {48, 96, 10, 7, 5, 1, 2},  {128, 32, 8, 8, 1, 2, 0},  {64, 40, 7, 7, 3, 1, 1},
                                       {96, 64, 16, 5, 3, 1, 0},  {64, 32, 6, 30, 5, 1, 2},  {128, 64, 14, 14, 3, 1, 1},
                                       {192, 32, 9, 40, 3, 1, 0}, {64, 96, 30, 33, 3, 1, 1}};
  uint64_t seed = 100;
  for (const ConvCase& c : cases)
    for (const Types types : kByteTypes) {
      Random random(++seed);
      const int zero = types.x == DType::kU8 ? 128 : static_cast<int>(seed % 3) - 1;
      const Ints dims = {1 + static_cast<int64_t>(seed % 2), c.channels, c.height, c.width};
      QuantizedGraph graph(dims, types.x, zero);
      graph.conv(random_bytes(types.w, {c.outputs, c.channels, c.kernel, c.kernel}, random), c.stride, c.pad);
      const Graph done = graph.finish();
      expect_same(done, random_bytes(types.x, dims, random),
                  fmt::format("{} of {} channels, {}x{}, {} {}", fmt::join(dims, "x"), c.outputs, c.kernel, c.kernel,
                              dtype_name(types.x), dtype_name(types.w)),
                  true);
    }
}

// Weights that need more than 8 bits once their zero point is off them, and few rows: other rules take them.
TEST(Int8Tiles, WhatDoesNotFitIsLeftToOthers) {
  Random random(7);
  Tensor wide(DType::kI32, {64, 64});
  fill(wide, random, -255, 255);
  QuantizedGraph nine_bits({64, 64}, DType::kU8, 3);
  nine_bits.product(wide);
  const Graph first = nine_bits.finish();
  expect_same(first, random_bytes(DType::kU8, {64, 64}, random), "nine bits", false);
  QuantizedGraph one_row({1, 64}, DType::kU8, 3);
  one_row.product(random_bytes(DType::kI8, {64, 64}, random));
  const Graph second = one_row.finish();
  expect_same(second, random_bytes(DType::kU8, {1, 64}, random), "one row", false);
}

}  // namespace
}  // namespace tessera
