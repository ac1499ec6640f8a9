// Gradients of convolutions' weights, and products of matrices with long sums, compiled: random shapes, types and
// levels of x86-64, one and two threads, against the interpreter.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <random>

#include "graph/parser.h"
#include "interp/graph_interp.h"
#include "ops/op_table.h"
#include "support/compiled_graph.h"

namespace tessera {
namespace {

using Ints = std::vector<int64_t>;

class RandomCase : public RandomGraphCase {
 public:
  using RandomGraphCase::RandomGraphCase;

  GraphCase conv_weights(DType dtype) {
    const size_t dims = static_cast<size_t>(pick({1, 2, 2, 2, 3}));
    const bool depthwise = random_() % 6 == 0;
    const int64_t groups = depthwise ? pick({3, 16, 24}) : pick({1, 1, 1, 2, 3});
    const int64_t in = depthwise ? 1 : pick({1, 3, 7, 8, 16, 21}),
                  out = depthwise ? pick({1, 1, 2}) : pick({1, 4, 5, 16, 17, 33});
    Ints x = {pick({0, 1, 1, 2, 3}), groups * in}, dy = {x[0], groups * out}, window, strides, dilations, begin, end,
         gaps;
    for (size_t d = 0; d < dims; ++d) {
      window.push_back(pick({1, 1, 2, 3, 3, 5}));
      dilations.push_back(pick({1, 1, 1, 2}));
      strides.push_back(pick({1, 1, 2, 3}));
      begin.push_back(pick({0, 0, 1, 2, -1}));
      end.push_back(pick({0, 0, 1, 2, -1}));
      gaps.push_back(pick({1, 1, 1, 1, 2}));
      const int64_t span = (window.back() - 1) * dilations.back() + 1;
      // Rows of more places than a block has steps, too.
      const int64_t places = dims == 1 ? pick({1, 7, 260, 530}) : pick({1, 2, 5, 14, 17, d == 0 ? 9 : 33});
      const int64_t padded = (places - 1) * strides.back() + span + pick({0, 0, strides.back() - 1});
      x.push_back(std::max<int64_t>(1, (padded - begin.back() - end.back() - 1 + gaps.back()) / gaps.back()));
      const int64_t room = (x.back() - 1) * gaps.back() + 1 + begin.back() + end.back() - span;
      if (room < 0) end.back() -= room;
      dy.push_back(std::max<int64_t>(room, 0) / strides.back() + 1);
    }
    ValueId y = add("conv_weights", {input("x", dtype, x), input("dy", dtype, dy)},
                    {{"strides", strides},
                     {"pads_begin", begin},
                     {"pads_end", end},
                     {"dilations", dilations},
                     {"input_dilations", gaps},
                     {"groups", groups},
                     {"window", window}});
    if (coin()) y = add("neg", {y});
    return done(y, fmt::format("conv_weights {} {} with {} and window {}, groups {}", dtype_name(dtype),
                               fmt::join(x, "x"), fmt::join(dy, "x"), fmt::join(window, "x"), groups));
  }

  GraphCase matmul(DType dtype) {
    const bool ta = random_() % 4 == 0, tb = random_() % 4 != 0;
    const int64_t m = pick({1, 17, 30, 65}), k = pick({64, 257, 1024, 4097}), n = pick({7, 16, 17, 40});
    ValueId a = input("x", dtype, ta ? Ints{k, m} : Ints{m, k});
    ValueId b = input("w", dtype, tb ? Ints{n, k} : Ints{k, n});
    if (dtype == DType::kBF16 || dtype == DType::kF16) {
      a = add("cast", {a}, {{"to", DType::kF32}});
      b = add("cast", {b}, {{"to", DType::kF32}});
    }
    const ValueId product = add("matmul", {a, b}, {{"transpose_a", ta}, {"transpose_b", tb}});
    ValueId y = product;
    if (coin()) y = add("abs", {y});
    const bool both = y != product && coin();  // results of one kernel
    GraphCase made = done(y, fmt::format("matmul {} {}x{}x{}{}{}", dtype_name(dtype), m, k, n,
                                         ta ? ", a transposed" : "", tb ? ", b transposed" : ""));
    if (both) made.graph.outputs.push_back(product);
    return made;
  }
};

// With so many digits that sums are rounded.
Tensor fine_tensor(const TensorType& type, std::mt19937& random) {
  Tensor tensor(type.dtype, type.dims());
  for (int64_t i = 0; i < tensor.num_elements(); ++i)
    tensor.set_double(i, std::ldexp(static_cast<double>(random() % (1 << 20)), -20) - 0.5);
  return tensor;
}

bool by_panels(const Program& program) {
  return std::any_of(program.calls.begin(), program.calls.end(), [&](const KernelCall& call) {
    return program.kernels[static_cast<size_t>(call.kernel)].rule == "packed_panels";
  });
}

// How many of the compiled cases are by panels.
int run_cases(unsigned first, int count, const std::function<GraphCase(RandomCase&, int)>& make) {
  int panels = 0;
  GraphInterpreter interpreter;
  for (int i = 0; i < count && !testing::Test::HasFailure(); ++i) {
    RandomCase random(first + static_cast<unsigned>(i));
    const GraphCase test = make(random, i);
    SCOPED_TRACE(fmt::format("seed {}: {}", first + static_cast<unsigned>(i), test.text));
    std::mt19937 numbers(7);
    std::vector<Tensor> inputs;
    for (const TensorType& type : test.inputs) inputs.push_back(random_tensor(type, numbers));
    const std::vector<Tensor> want = interpreter.evaluate(test.graph, inputs);
    for (const std::string& level : levels_that_run()) {
      const int threads = 1 + (i + static_cast<int>(level.back())) % 2;
      const CompiledRun got = run_compiled(test.graph, inputs, options_for(level, threads));
      panels += by_panels(got.program);
      for (size_t r = 0; r < want.size(); ++r)
        EXPECT_EQ(difference(want[r], got.results.at(r), {.f64 = 1e-13}), "") << level << ", threads: " << threads;
    }
  }
  return panels;
}

constexpr DType kTypes[] = {DType::kF32, DType::kF32, DType::kF32, DType::kBF16, DType::kF64, DType::kF16, DType::kI8};

TEST(PackedPanels, GradientsOfWeights) {
  EXPECT_GT(run_cases(1, 60, [](RandomCase& random, int i) { return random.conv_weights(kTypes[i % 7]); }), 15);
}

TEST(PackedPanels, LongSums) {
  EXPECT_GT(run_cases(1000, 70, [](RandomCase& random, int i) { return random.matmul(kTypes[i % 7]); }), 6);
}

// What a training step of a language model multiplies: sums over the words of a vocabulary with two results, the second
// of which another kernel reads, and sums over few places for each word, added to what is there.
TEST(PackedPanels, VocabulariesBothWays) {
  constexpr const char* kGraphs[] = {
      R"(graph @down(%g: f32[2,37,8199], %w: f32[8199,203], %s: f32[203]) -> (%m: f32[2,37,203], %z: f32[2,37,203]) {
  %m = matmul(%g, %w) : f32[2,37,203]
  %y = mul(%m, %s) : f32[2,37,203]
  %z = transpose(%y) {perm = [0, 1, 2]} : f32[2,37,203]
})",
      R"(graph @up(%g: f32[36,4111], %x: f32[36,203], %s: f32[4111,203]) -> (%y: f32[4111,203]) {
  %m = matmul(%x, %g) {transpose_a = true, transpose_b = false} : f32[203,4111]
  %t = transpose(%m) {perm = [1, 0]} : f32[4111,203]
  %y = add(%t, %s) : f32[4111,203]
})"};
  for (const char* text : kGraphs) {
    const Graph graph = parse_graph(text, standard_ops());
    std::mt19937 numbers(11);
    std::vector<Tensor> inputs;
    for (const ValueId input : graph.inputs) inputs.push_back(fine_tensor(graph.type(input), numbers));
    for (const std::string& level : levels_that_run()) {
      const DriverOptions options = options_for(level, 2);
      DriverOptions without = options;
      without.compile.disabled_passes.insert("packed_panels");
      const CompiledRun got = run_compiled(graph, inputs, options), want = run_compiled(graph, inputs, without);
      // A tile of rows that are copied step by step takes 19 registers.
      if (graph.name == "down" || level == "x86-64-v4") {
        EXPECT_TRUE(by_panels(got.program)) << graph.name << ", " << level;
      }
      for (size_t r = 0; r < want.results.size(); ++r)
        EXPECT_EQ(difference(want.results[r], got.results.at(r), {}), "") << graph.name << ", " << level;
    }
  }
}

// Where sums are cut follows from the shape: all threads and vector widths give the same bits.
TEST(PackedPanels, BitsDoNotDependOnTheMachine) {
  for (const auto& [x, dy, window] : {std::tuple<Ints, Ints, Ints>{{2, 13, 23, 25}, {2, 37, 23, 25}, {3, 3}},
                                      {{1, 40, 18, 18}, {1, 64, 18, 18}, {1, 1}}}) {
    Graph graph;
    const TensorType image{DType::kF32, make_shape(x), {}}, gradient{DType::kF32, make_shape(dy), {}};
    const ValueId a = graph.add_input("x", image), b = graph.add_input("dy", gradient);
    const int64_t pad = window[0] / 2;
    graph.outputs = {GraphBuilder(graph).add(standard_ops().get("conv_weights"), {a, b},
                                             {{"strides", Ints{1, 1}},
                                              {"pads_begin", Ints{pad, pad}},
                                              {"pads_end", Ints{pad, pad}},
                                              {"dilations", Ints{1, 1}},
                                              {"input_dilations", Ints{1, 1}},
                                              {"groups", int64_t{1}},
                                              {"window", window}})};
    graph.rename(graph.outputs[0], "y");
    std::mt19937 numbers(5);
    const std::vector<Tensor> inputs = {fine_tensor(image, numbers), fine_tensor(gradient, numbers)};
    std::optional<Tensor> first;
    for (const std::string& level : levels_that_run()) {
      if (level == "x86-64-v2") continue;  // it has no fused multiply-add
      for (const int threads : {1, 2, 3}) {
        CompiledRun got = run_compiled(graph, inputs, options_for(level, threads));
        EXPECT_TRUE(by_panels(got.program));
        if (!first) first = got.results.at(0);
        EXPECT_EQ(std::memcmp(first->bytes(), got.results.at(0).bytes(), static_cast<size_t>(first->num_bytes())), 0)
            << level << ", threads: " << threads;
      }
    }
  }
}

}  // namespace
}  // namespace tessera
