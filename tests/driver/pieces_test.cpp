// --fp32 pieces: products of f32 made of pieces of bf16. On eight families of inputs errors are no larger than those of
// multiply-adds. Tiles run in plain memory (+portable-tiles) and as AMX's instructions, which are emulated where the
// processor has none of them.
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <functional>
#include <iostream>
#include <limits>
#include <random>

#include "amx/amx_emulator.h"
#include "codegen/llvm/target.h"
#include "driver/compile.h"
#include "driver/engine/model.h"
#include "driver/engine/native_model.h"
#include "interp/graph_interp.h"
#include "ops/op_table.h"
#include "support/error.h"

namespace tessera {
namespace {

using Ints = std::vector<int64_t>;
using Random = std::mt19937_64;
using Filler = std::function<void(Tensor& a, Tensor& b, Random& random)>;

constexpr const char* kPairs = "x86-64-v4,+avx512bf16";
constexpr const char* kTiles = "x86-64-v3,+portable-tiles";
constexpr const char* kWideTiles = "x86-64-v4,+portable-tiles";
constexpr const char* kAmx = "x86-64-v4,+amx-tile,+amx-bf16";
constexpr const char* kNarrowAmx = "x86-64-v3,+amx-tile,+amx-bf16";

float uniform(Random& random) { return std::uniform_real_distribution<float>(-1, 1)(random); }

void fill(Tensor& tensor, const std::function<float(int64_t row, int64_t column)>& value) {
  const int64_t columns = tensor.dims()[1];
  const auto values = tensor.as_mutable<float>();
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = value(static_cast<int64_t>(i) / columns, static_cast<int64_t>(i) % columns);
}

void fill_uniform(Tensor& a, Tensor& b, Random& random, float scale_a = 1, float scale_b = 1) {
  fill(a, [&](int64_t, int64_t) { return scale_a * uniform(random); });
  fill(b, [&](int64_t, int64_t) { return scale_b * uniform(random); });
}

const std::vector<std::pair<const char*, Filler>>& families() {
  static const std::vector<std::pair<const char*, Filler>> list = {
      {"uniform", [](Tensor& a, Tensor& b, Random& random) { fill_uniform(a, b, random); }},
      {"normal",
       [](Tensor& a, Tensor& b, Random& random) {
         std::normal_distribution<float> normal;
         fill(a, [&](int64_t, int64_t) { return normal(random); });
         fill(b, [&](int64_t, int64_t) { return normal(random); });
       }},
      {"2^+-60 by row and column",
       [](Tensor& a, Tensor& b, Random& random) {
         std::uniform_int_distribution<int> exponent(-60, 60);
         std::vector<int> rows, columns;
         for (int64_t i = 0; i < a.dims()[0]; ++i) rows.push_back(exponent(random));
         for (int64_t i = 0; i < b.dims()[1]; ++i) columns.push_back(exponent(random));
         fill(a, [&](int64_t r, int64_t) { return std::ldexp(uniform(random), rows[static_cast<size_t>(r)]); });
         fill(b, [&](int64_t, int64_t c) { return std::ldexp(uniform(random), columns[static_cast<size_t>(c)]); });
       }},
      {"cancellation",
       [](Tensor& a, Tensor& b, Random& random) {
         // The second half of a sum takes away the first, but for a little.
         fill_uniform(a, b, random);
         const int64_t terms = a.dims()[1];
         fill(a, [&](int64_t r, int64_t k) {
           const float first = a.as<float>()[static_cast<size_t>(r * terms + k % (terms / 2))];
           return k < terms / 2 ? first : -first * (1 + 1e-5f * uniform(random));
         });
         fill(b, [&](int64_t k, int64_t c) {
           return b.as<float>()[static_cast<size_t>((k % (terms / 2)) * b.dims()[1] + c)];
         });
       }},
      {"near denormal", [](Tensor& a, Tensor& b, Random& random) { fill_uniform(a, b, random, 0x1p-120f, 0x1p-4f); }},
      {"near the greatest",
       [](Tensor& a, Tensor& b, Random& random) { fill_uniform(a, b, random, 3.4e38f, 0x1p-12f); }},
      {"infinities and NaN",
       [](Tensor& a, Tensor& b, Random& random) {
         fill_uniform(a, b, random);
         const auto values = a.as_mutable<float>();
         for (size_t i = 0; i < values.size(); i += 997)
           values[i] = i % 3 == 0   ? std::numeric_limits<float>::infinity()
                       : i % 3 == 1 ? -std::numeric_limits<float>::infinity()
                                    : std::numeric_limits<float>::quiet_NaN();
       }},
      {"integers to 2^24",
       [](Tensor& a, Tensor& b, Random& random) {
         // Sums of magnitudes stay below 2^24.
         const auto most = static_cast<int>(std::sqrt(0x1p24 / static_cast<double>(a.dims()[1])));
         std::uniform_int_distribution<int> whole(-most, most);
         fill(a, [&](int64_t, int64_t) { return static_cast<float>(whole(random)); });
         fill(b, [&](int64_t, int64_t) { return static_cast<float>(whole(random)); });
       }},
  };
  return list;
}

Graph product_graph(const Ints& x, const Tensor& weights) {
  Graph graph;
  const ValueId input = graph.add_input("x", {DType::kF32, make_shape(x), {}});
  GraphBuilder builder(graph);
  const ValueId w =
      builder.add(standard_ops().get("constant"), {}, {{"value", TensorPtr(std::make_shared<Tensor>(weights))}});
  graph.outputs = {builder.add(standard_ops().get("matmul"), {input, w}, {})};
  graph.rename(graph.outputs[0], "y");
  return graph;
}

struct Choice {
  std::string fp32 = "pieces", target = "native", precision = "f32";
  int threads = 1;
};

struct Outcome {
  Tensor y;
  std::vector<std::string> rules, refused;
  uint64_t products = 0;  // of tiles, that were emulated
};

Outcome run(const Graph& graph, const Tensor& x, const Choice& chosen) {
  DriverOptions options;
  options.compile.fp32 = chosen.fp32;
  options.compile.target = chosen.target;
  options.compile.precision = chosen.precision;
  options.compile.num_threads = chosen.threads;
  options.runner.verify_each = true;
  PassRunner runner(options);
  Compiled compiled = compile_graph(graph, options, runner);
  if (emulate_amx()) forget_amx(compiled.info.features);
  const AmxCounts before = amx_counts();
  Outcome result;
  for (const Kernel& kernel : compiled.program.kernels) {
    result.rules.push_back(kernel.rule);
    result.refused.insert(result.refused.end(), kernel.refused.begin(), kernel.refused.end());
  }
  const std::unique_ptr<Model> model = load_module(module_in_memory(compiled), "pieces", chosen.threads);
  model->bind({x});
  model->run();
  result.y = model->results()[0];
  const AmxCounts after = amx_counts();
  result.products = after.bf16_products - before.bf16_products;
  EXPECT_EQ(after.configured_threads, 0) << "tiles are left configured";
  EXPECT_EQ(after.configures - before.configures, after.releases - before.releases);
  return result;
}

bool has(const std::vector<std::string>& list, const std::string& text) {
  return std::any_of(list.begin(), list.end(), [&](const std::string& s) { return s.find(text) != s.npos; });
}

struct Errors {
  double greatest = 0, rms = 0;  // of |y - ab| / |a||b|, in units of 2^-24
  int64_t other_kinds = 0;       // infinite or NaN where the exact sum of f32 is not, or the other way round
};

Errors errors_of(const Tensor& a, const Tensor& b, const Tensor& y) {
  const int64_t rows = a.dims()[0], terms = a.dims()[1], columns = b.dims()[1];
  const auto x = a.as<float>(), w = b.as<float>(), z = y.as<float>();
  Errors errors;
  int64_t count = 0;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      long double sum = 0, magnitude = 0;
      for (int64_t k = 0; k < terms; ++k) {
        const long double term = static_cast<long double>(x[static_cast<size_t>(r * terms + k)]) *
                                 static_cast<long double>(w[static_cast<size_t>(k * columns + c)]);
        sum += term;
        magnitude += std::fabs(term);
      }
      const float got = z[static_cast<size_t>(r * columns + c)];
      const auto wanted = static_cast<float>(sum);
      if (!std::isfinite(wanted) || !std::isfinite(got)) {
        errors.other_kinds += std::isnan(wanted) != std::isnan(got) || (!std::isnan(wanted) && wanted != got);
        continue;
      }
      if (magnitude == 0) continue;
      const auto error = static_cast<double>(std::fabs(got - sum) / magnitude * 0x1p24L);
      errors.greatest = std::max(errors.greatest, error);
      errors.rms += error * error;
      ++count;
    }
  errors.rms = std::sqrt(errors.rms / static_cast<double>(std::max<int64_t>(count, 1)));
  return errors;
}

bool can_run(const char* name) {
  Target target = parse_target(name);
  if (emulate_amx()) std::erase_if(target.features, [](const std::string& f) { return f.starts_with("amx-"); });
  return runs_here(target);
}

// Of more than half a vector of columns behind whole ones: fewer are summed in several parts by multiply-adds, but not
// where pieces fall back to those, and then have 3 % more in the root mean square.
TEST(Pieces, ErrorsAreNoLargerThanThoseOfMultiplyAdds) {
  std::vector<const char*> targets;
  for (const char* target : {kPairs, kTiles, kWideTiles, kAmx}) {
    if (can_run(target)) targets.push_back(target);
    else std::cout << "not run, for want of the processor: " << target << "\n";
  }
  ASSERT_FALSE(targets.empty());
  std::cout << "|y - ab| / |a||b| in units of 2^-24, greatest and rms\n";
  for (const auto& [name, filler] : families())
    for (const int64_t terms : {32, 150, 768}) {
      Random random(static_cast<uint64_t>(terms));
      Tensor a(DType::kF32, {70, terms}), b(DType::kF32, {terms, 62});
      filler(a, b, random);
      const Graph graph = product_graph(a.dims(), b);
      for (const char* target : targets) {
        const Errors fma = errors_of(a, b, run(graph, a, {.fp32 = "fma", .target = target}).y);
        const Outcome ours = run(graph, a, {.target = target});
        const Errors pieces = errors_of(a, b, ours.y);
        std::cout << fmt::format("{:26} {:4} terms  {:32} fma {:8.3f} {:8.4f}  pieces {:8.3f} {:8.4f}  {}\n", name,
                                 terms, target, fma.greatest, fma.rms, pieces.greatest, pieces.rms, ours.rules[0]);
        EXPECT_LE(pieces.greatest, fma.greatest) << name << " " << target << " " << terms;
        EXPECT_LE(pieces.rms, fma.rms) << name << " " << target << " " << terms;
        EXPECT_LE(pieces.other_kinds, fma.other_kinds) << name << " " << target << " " << terms;
        if (name == std::string("integers to 2^24")) {
          EXPECT_EQ(pieces.greatest, 0) << target;
        }
        if (name == std::string("uniform")) {
          EXPECT_TRUE(has(ours.rules, "bf16x3")) << target;
          if (target == kAmx && emulate_amx()) {
            EXPECT_GT(ours.products, 0u);
          }
        }
      }
    }
}

// One number that has no pieces, in one row: its block of rows is what multiply-adds make of it, bit for bit.
TEST(Pieces, UnusualNumbersAreMultipliedInF32) {
  Random random(3);
  Tensor a(DType::kF32, {200, 64}), b(DType::kF32, {64, 44});
  fill_uniform(a, b, random);
  const Graph graph = product_graph(a.dims(), b);
  for (const char* target : {kPairs, kWideTiles, kAmx}) {
    if (!can_run(target)) continue;
    for (const float unusual : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                                std::numeric_limits<float>::quiet_NaN(), 3.4e38f, -3e38f, 1e-45f, -1e-39f, 1e-33f})
      for (const size_t row : {0, 37, 199}) {
        Tensor x(DType::kF32, a.dims());
        std::copy_n(a.as<float>().begin(), a.num_elements(), x.as_mutable<float>().begin());
        x.as_mutable<float>()[row * 64 + 17] = unusual;
        const Tensor plain = run(graph, x, {.fp32 = "fma", .target = target}).y;
        const Tensor ours = run(graph, x, {.target = target}).y;
        for (size_t c = 0; c < 44; ++c) {
          const float want = plain.as<float>()[row * 44 + c], got = ours.as<float>()[row * 44 + c];
          EXPECT_TRUE(want == got || (std::isnan(want) && std::isnan(got))) << target << " " << unusual << " " << row;
        }
        for (size_t i = 0; i < 200 * 44; ++i)
          if (i / 44 != row) {
            EXPECT_NEAR(ours.as<float>()[i], plain.as<float>()[i], 1e-4) << target << " " << unusual << " " << i / 44;
          }
      }
  }
}

TEST(Pieces, WeightsWithoutPiecesKeepMultiplyAdds) {
  Random random(4);
  for (const float unusual :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(), 3e38f, 1e-40f, 1e-20f}) {
    Tensor a(DType::kF32, {32, 64}), b(DType::kF32, {64, 40});
    fill_uniform(a, b, random);
    b.as_mutable<float>()[100] = unusual;
    const Outcome ours = run(product_graph(a.dims(), b), a, {.target = kTiles});
    EXPECT_FALSE(has(ours.rules, "bf16x3")) << unusual;
    EXPECT_TRUE(has(ours.refused, "bf16x3: a weight is ")) << unusual;
  }
}

struct Shape {
  Ints x;
  int64_t columns;
};

TEST(Pieces, AllShapesAndThreads) {
  const std::vector<Shape> shapes = {{{16, 16}, 32},       {{17, 33}, 47},      {{100, 31}, 96}, {{33, 200}, 257},
                                     {{2, 3, 40, 64}, 70}, {{1, 129, 288}, 64}, {{64, 32}, 33},  {{13, 1, 7, 96}, 130},
                                     {{300, 700}, 96},     {{40, 1500}, 512}};
  for (const char* target : {kPairs, kTiles, kWideTiles, kAmx, kNarrowAmx}) {
    if (!can_run(target)) {
      std::cout << "not run, for want of the processor: " << target << "\n";
      continue;
    }
    uint64_t seed = 1;
    for (const Shape& shape : shapes)
      for (const int threads : {1, 3})
        for (const char* precision : {"f32", "bf16"}) {
          if (threads == 1 && target != kAmx) continue;
          Random random(++seed);
          const int64_t terms = shape.x.back();
          Tensor x(DType::kF32, shape.x), w(DType::kF32, {terms, shape.columns});
          for (float& value : x.as_mutable<float>()) value = uniform(random);
          for (float& value : w.as_mutable<float>()) value = uniform(random);
          const Graph graph = product_graph(shape.x, w);
          const Tensor plain = GraphInterpreter().evaluate(graph, {x})[0];
          const Outcome ours = run(graph, x, {.target = target, .precision = precision, .threads = threads});
          const bool rounds = precision == std::string("bf16");
          double largest = 0, distance = 0;
          for (int64_t i = 0; i < plain.num_elements(); ++i) {
            largest = std::max(largest, std::fabs(plain.get_double(i)));
            distance = std::max(distance, std::fabs(plain.get_double(i) - ours.y.get_double(i)));
          }
          EXPECT_LE(distance / largest, rounds ? 0x1p-6 : 1e-5)
              << target << " " << precision << " x " << threads << ", columns " << shape.columns << ", terms " << terms;
          const bool tiles = target != kPairs && rounds && terms >= 16;
          const std::string refused = fmt::format("{}", fmt::join(ours.refused, "; "));
          EXPECT_TRUE(rounds || has(ours.rules, "bf16x3")) << refused;
          EXPECT_TRUE(!tiles || has(ours.rules, "matrix_tile")) << refused;
        }
  }
}

TEST(Pieces, AutoTakesThemWhereThereAreTiles) {
  Random random(5);
  Tensor a(DType::kF32, {64, 64}), b(DType::kF32, {64, 64});
  fill_uniform(a, b, random);
  const Graph graph = product_graph(a.dims(), b);
  EXPECT_TRUE(has(run(graph, a, {.fp32 = "auto", .target = kTiles}).rules, "bf16x3"));
  EXPECT_FALSE(has(run(graph, a, {.fp32 = "auto", .target = "x86-64-v3"}).rules, "bf16x3"));
  EXPECT_FALSE(has(run(graph, a, {.fp32 = "fma", .target = kTiles}).rules, "bf16x3"));
  if (can_run(kPairs)) {
    EXPECT_FALSE(has(run(graph, a, {.fp32 = "auto", .target = kPairs}).rules, "bf16x3"));
  }
}

std::string assembly(const Graph& graph, const std::string& fp32, const std::string& precision) {
  DriverOptions options;
  options.compile.target = kAmx;
  options.compile.fp32 = fp32;
  options.compile.precision = precision;
  options.emit = Emit::kAsm;
  PassRunner runner(options);
  return compile_graph(graph, options, runner).text;
}

int64_t count_of(const std::string& text, const std::string& word) {
  int64_t count = 0;
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) ++count;
  return count;
}

// One 2 x 2 group of tiles: 14 loads for the 24 products of a step; sums begin at zero and are stored once.
TEST(Pieces, AmxHasItsInstructions) {
  Random random(6);
  Tensor a(DType::kF32, {64, 64}), b(DType::kF32, {64, 64});
  fill_uniform(a, b, random);
  const Graph graph = product_graph(a.dims(), b);
  for (const auto& [fp32, precision, products, loads] :
       {std::tuple("pieces", "f32", 24, 14), std::tuple("auto", "f32", 24, 14), std::tuple("fma", "bf16", 4, 4)}) {
    const std::string text = assembly(graph, fp32, precision);
    EXPECT_EQ(count_of(text, "\ttdpbf16ps"), products) << fp32;
    EXPECT_EQ(count_of(text, "\ttileloadd"), loads) << fp32;
    EXPECT_EQ(count_of(text, "\ttilezero"), 4) << fp32;
    EXPECT_EQ(count_of(text, "\ttilestored"), 4) << fp32;
    EXPECT_EQ(count_of(text, "\tldtilecfg"), 1) << fp32;
    EXPECT_EQ(count_of(text, "\ttilerelease"), 1) << fp32;
  }
  EXPECT_EQ(count_of(assembly(graph, "fma", "f32"), "tdpbf16ps"), 0);
  // Two chunks of steps, the second of which begins with sums from memory; far weights are fetched ahead.
  Tensor rows(DType::kF32, {256, 512}), weights(DType::kF32, {512, 512});
  fill_uniform(rows, weights, random);
  const std::string text = assembly(product_graph(rows.dims(), weights), "fma", "bf16");
  EXPECT_EQ(count_of(text, "\ttdpbf16ps"), 8);
  EXPECT_EQ(count_of(text, "\ttileloadd"), 8 + 4);
  EXPECT_EQ(count_of(text, "\ttilezero"), 4);
  EXPECT_GE(count_of(text, "\tprefetcht1"), 2);
}

TEST(Pieces, WhatDoesNotExistIsAnErrorOfTheUser) {
  Tensor x(DType::kF32, {16, 16}), w(DType::kF32, {16, 32});
  const Graph graph = product_graph(x.dims(), w);
  const auto id_of = [&](const Choice& options) {
    try {
      run(graph, x, options);
    } catch (const UserError& error) {
      return error.diagnostic().id;
    }
    return std::string("none");
  };
  EXPECT_EQ(id_of({.fp32 = "bits"}), "TSR-4028");
  EXPECT_EQ(id_of({.fp32 = "pieces", .target = "x86-64-v3"}), "TSR-4029");
}

}  // namespace
}  // namespace tessera
