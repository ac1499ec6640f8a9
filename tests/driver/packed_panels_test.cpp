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

#include "codegen/llvm/target.h"
#include "driver/compile.h"
#include "driver/engine/model.h"
#include "driver/engine/native_model.h"
#include "interp/graph_interp.h"
#include "ops/op_table.h"

namespace tessera {
namespace {

using Ints = std::vector<int64_t>;

struct Case {
  Graph graph;
  std::vector<TensorType> inputs;
  std::string text;
};

class RandomCase {
 public:
  explicit RandomCase(unsigned seed) : random_(seed) {}

  int64_t pick(std::initializer_list<int64_t> choices) {
    return *(choices.begin() + static_cast<std::ptrdiff_t>(random_() % choices.size()));
  }
  bool coin() { return random_() % 2 == 0; }

  Case conv_weights(DType dtype) {
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

  Case matmul(DType dtype) {
    const bool ta = random_() % 4 == 0, tb = random_() % 4 != 0;
    const int64_t m = pick({1, 16, 17, 30}), k = pick({64, 257, 1024, 4097}), n = pick({7, 16, 17, 40});
    ValueId a = input("x", dtype, ta ? Ints{k, m} : Ints{m, k});
    ValueId b = input("w", dtype, tb ? Ints{n, k} : Ints{k, n});
    if (dtype == DType::kBF16 || dtype == DType::kF16) {
      a = add("cast", {a}, {{"to", DType::kF32}});
      b = add("cast", {b}, {{"to", DType::kF32}});
    }
    ValueId y = add("matmul", {a, b}, {{"transpose_a", ta}, {"transpose_b", tb}});
    if (coin()) y = add("abs", {y});
    return done(y, fmt::format("matmul {} {}x{}x{}{}{}", dtype_name(dtype), m, k, n, ta ? ", a transposed" : "",
                               tb ? ", b transposed" : ""));
  }

 private:
  ValueId input(const char* name, DType dtype, const Ints& dims) {
    types_.push_back({dtype, make_shape(dims), {}});
    return graph_.add_input(name, types_.back());
  }
  ValueId add(const char* name, std::vector<ValueId> inputs, Attrs attrs = {}) {
    GraphBuilder builder(graph_);
    return builder.add(standard_ops().get(name), std::move(inputs), std::move(attrs));
  }
  Case done(ValueId y, std::string text) {
    graph_.outputs = {y};
    graph_.rename(y, "y");
    return {std::move(graph_), std::move(types_), std::move(text)};
  }

  std::mt19937 random_;
  Graph graph_;
  std::vector<TensorType> types_;
};

// `fine`: with so many digits that sums are rounded.
Tensor random_tensor(const TensorType& type, std::mt19937& random, bool fine = false) {
  Ints dims;
  for (const Expr& dim : type.shape) dims.push_back(*as_int(dim));
  Tensor tensor(type.dtype, dims);
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    const int value = static_cast<int>(random() % 33) - 16;
    if (fine) tensor.set_double(i, std::ldexp(static_cast<double>(random() % (1 << 20)), -20) - 0.5);
    else if (is_float(type.dtype)) tensor.set_double(i, value * 0.125);
    else tensor.set_int(i, value);
  }
  return tensor;
}

std::string difference(const Tensor& want, const Tensor& got) {
  double scale = 0;
  for (int64_t i = 0; i < want.num_elements(); ++i) scale = std::max(scale, std::fabs(want.get_double(i)));
  const double bound = want.dtype() == DType::kF32   ? 1e-5 * scale
                       : want.dtype() == DType::kF64 ? 1e-13 * scale
                       : is_float(want.dtype())      ? 1e-2 * scale
                                                     : 0;
  for (int64_t i = 0; i < want.num_elements(); ++i)
    if (!(std::fabs(want.get_double(i) - got.get_double(i)) <= bound))
      return fmt::format("element {}: {} instead of {}", i, got.get_double(i), want.get_double(i));
  return "";
}

std::vector<std::string> levels() {
  std::vector<std::string> result;
  for (const char* level : {"x86-64-v2", "x86-64-v3", "x86-64-v4"})
    if (runs_here(parse_target(level))) result.emplace_back(level);
  return result;
}

struct Result {
  Tensor value;
  bool by_panels = false;
};

Result run(const Graph& graph, const std::vector<Tensor>& inputs, const std::string& level, int threads) {
  DriverOptions options;
  options.compile.target = level;
  options.compile.num_threads = threads;
  PassRunner runner(options.runner);
  Compiled compiled = compile_graph(graph, options, runner);
  Result result;
  for (const KernelCall& call : compiled.program.calls)
    result.by_panels |= compiled.program.kernels[static_cast<size_t>(call.kernel)].rule == "packed_panels";
  const std::unique_ptr<Model> model = load_module(module_in_memory(compiled), "panels", threads);
  model->bind(inputs);
  model->run();
  const Tensor& value = model->results().at(0);
  result.value = Tensor(value.dtype(), value.dims());
  std::memcpy(result.value.mutable_bytes(), value.bytes(), static_cast<size_t>(value.num_bytes()));
  return result;
}

// How many of the compiled cases are by panels.
int run_cases(unsigned first, int count, const std::function<Case(RandomCase&, int)>& make) {
  int by_panels = 0;
  GraphInterpreter interpreter;
  for (int i = 0; i < count && !testing::Test::HasFailure(); ++i) {
    RandomCase random(first + static_cast<unsigned>(i));
    const Case test = make(random, i);
    SCOPED_TRACE(fmt::format("seed {}: {}", first + static_cast<unsigned>(i), test.text));
    std::mt19937 numbers(7);
    std::vector<Tensor> inputs;
    for (const TensorType& type : test.inputs) inputs.push_back(random_tensor(type, numbers));
    const Tensor want = interpreter.evaluate(test.graph, inputs).at(0);
    for (const std::string& level : levels()) {
      const int threads = 1 + (i + static_cast<int>(level.back())) % 2;
      const Result got = run(test.graph, inputs, level, threads);
      by_panels += got.by_panels;
      EXPECT_EQ(difference(want, got.value), "") << level << ", threads: " << threads;
    }
  }
  return by_panels;
}

constexpr DType kTypes[] = {DType::kF32, DType::kF32, DType::kF32, DType::kBF16, DType::kF64, DType::kF16, DType::kI8};

TEST(PackedPanels, GradientsOfWeights) {
  EXPECT_GT(run_cases(1, 60, [](RandomCase& random, int i) { return random.conv_weights(kTypes[i % 7]); }), 20);
}

TEST(PackedPanels, LongSums) {
  EXPECT_GT(run_cases(1000, 42, [](RandomCase& random, int i) { return random.matmul(kTypes[i % 7]); }), 6);
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
    const std::vector<Tensor> inputs = {random_tensor(image, numbers, true), random_tensor(gradient, numbers, true)};
    std::optional<Tensor> first;
    for (const std::string& level : levels()) {
      if (level == "x86-64-v2") continue;  // it has no fused multiply-add
      for (const int threads : {1, 2, 3}) {
        const Result got = run(graph, inputs, level, threads);
        EXPECT_TRUE(got.by_panels);
        if (!first) first = got.value;
        EXPECT_EQ(std::memcmp(first->bytes(), got.value.bytes(), static_cast<size_t>(first->num_bytes())), 0)
            << level << ", threads: " << threads;
      }
    }
  }
}

}  // namespace
}  // namespace tessera
