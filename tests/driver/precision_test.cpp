// --precision: what convolutions and products read is rounded, and the rest is not. The oracle is the interpreter on
// the graph that lower_precision leaves, whose casts say what is rounded where.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <iostream>
#include <random>

#include "codegen/llvm/target.h"
#include "driver/compile.h"
#include "driver/engine/model.h"
#include "driver/engine/native_model.h"
#include "interp/graph_interp.h"
#include "loop/printer.h"
#include "ops/op_table.h"
#include "support/test_data.h"
#include "support/watched_compile.h"
#include "tessera/tessera.h"

namespace tessera {
namespace {

using Ints = std::vector<int64_t>;

Tensor random_tensor(std::mt19937_64& random, const Ints& dims, double scale) {
  Tensor tensor(DType::kF32, dims);
  std::normal_distribution<double> normal(0, scale);
  for (float& value : tensor.as_mutable<float>()) value = static_cast<float>(normal(random));
  return tensor;
}

struct Built {
  Graph graph;
  Ints input;
};

// A graph under construction, with weights from one seed.
class Network {
 public:
  Network(Ints input, uint64_t seed) : random_(seed), input_(std::move(input)) {
    value_ = graph_.add_input("x", {DType::kF32, make_shape(input_), {}});
  }

  Network& conv(int64_t out, int64_t window, int64_t stride, int64_t groups) {
    const Ints dims = graph_.type(value_).dims();
    const int64_t per_group = dims[1] / groups;
    const ValueId w = weight({out, per_group, window, window}, per_group * window * window);
    const Ints pads(2, window / 2);
    value_ = add("conv", {value_, w},
                 {{"strides", Ints(2, stride)},
                  {"pads_begin", pads},
                  {"pads_end", pads},
                  {"dilations", Ints(2, 1)},
                  {"input_dilations", Ints(2, 1)},
                  {"groups", groups}});
    return *this;
  }
  Network& matmul(int64_t out) {
    const int64_t terms = graph_.type(value_).dims().back();
    value_ = add("matmul", {value_, weight({terms, out}, terms)});
    return *this;
  }
  Network& exp_of_negative() {
    value_ = add("exp", {add("neg", {add("abs", {value_})})});
    return *this;
  }
  Network& keep() {
    kept_ = value_;
    return *this;
  }
  Network& add_kept() {
    value_ = add("add", {value_, kept_});
    return *this;
  }

  Built build() {
    graph_.outputs = {value_};
    graph_.rename(value_, "y");
    return {graph_, input_};
  }

 private:
  ValueId add(const char* name, std::vector<ValueId> inputs, Attrs attrs = {}) {
    GraphBuilder builder(graph_);
    return builder.add(standard_ops().get(name), std::move(inputs), std::move(attrs));
  }
  ValueId weight(const Ints& dims, int64_t terms) {
    auto data = std::make_shared<Tensor>(random_tensor(random_, dims, 1 / std::sqrt(static_cast<double>(terms))));
    GraphBuilder builder(graph_);
    return builder.add(standard_ops().get("constant"), {}, {{"value", TensorPtr(std::move(data))}});
  }

  std::mt19937_64 random_;
  Ints input_;
  Graph graph_;
  ValueId value_ = -1, kept_ = -1;
};

// The graph's value for `x` as the module computes it, and as the interpreter does behind lower_precision.
struct Results {
  Tensor ours, reference, unrounded;
  std::string text;  // of the program
};

Results run(const Built& built, const std::string& precision, const std::string& target, int opt_level = 3,
            const std::string& fp32 = "fma") {
  std::mt19937_64 random(7);
  const Tensor x = random_tensor(random, built.input, 1);
  Results results;
  results.unrounded = GraphInterpreter().evaluate(built.graph, {x})[0];
  DriverOptions options;
  options.compile.precision = precision;
  options.compile.fp32 = fp32;
  options.compile.target = target;
  options.compile.num_threads = 1;
  options.compile.opt_level = opt_level;
  OnGraph see_graph([&](std::string_view step, const Graph& graph) {
    if (step == "lower_precision") results.reference = GraphInterpreter().evaluate(graph, {x})[0];
  });
  options.observers.add(see_graph);
  OnProgram see_program([&](std::string_view, const Program& program) {
    results.text.clear();
    for (const Kernel& kernel : program.kernels) results.text += print(kernel.program);
  });
  options.observers.add(see_program);
  PassRunner runner(options);
  const Compiled compiled = compile_graph(built.graph, options, runner);
  const std::unique_ptr<Model> model = load_module(module_in_memory(compiled), "precision", 1);
  model->bind({x});
  model->run();
  results.ours = model->results()[0];
  return results;
}

double distance(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.dims(), b.dims());
  double largest = 0, difference = 0;
  for (int64_t i = 0; i < a.num_elements(); ++i) {
    largest = std::max(largest, std::fabs(b.get_double(i)));
    difference = std::max(difference, std::fabs(a.get_double(i) - b.get_double(i)));
  }
  return difference / largest;
}

// Rounding what was summed in another order gives now and then the neighbour: 2^-8 for bf16, 2^-11 for f16.
double step_of(const std::string& precision) { return precision == "bf16" ? 0x1p-8 : 0x1p-11; }

struct Case {
  const char* name;
  std::function<Built()> build;
  bool dots = false;  // every product is one of pairs, where the machine has that
  int layers = 1;     // products behind one another
};

const std::vector<Case>& cases() {
  static const std::vector<Case> list = {
      {"conv 1x1", [] { return Network({1, 64, 9, 7}, 1).conv(48, 1, 1, 1).build(); }, true},
      {"conv 1x1 of few channels", [] { return Network({1, 3, 9, 7}, 2).conv(16, 1, 1, 1).build(); }},
      {"conv 1x1 of an odd number of channels", [] { return Network({1, 33, 8, 8}, 3).conv(40, 1, 1, 1).build(); }},
      {"conv 3x3, stride 2", [] { return Network({2, 32, 15, 13}, 4).conv(32, 3, 2, 1).build(); }, true},
      {"conv 3x3 of a small picture", [] { return Network({1, 64, 7, 7}, 5).conv(64, 3, 1, 1).build(); }, true},
      {"conv 3x3 by minimal filtering", [] { return Network({1, 32, 28, 28}, 6).conv(32, 3, 1, 1).build(); }},
      {"conv 5x5 by minimal filtering", [] { return Network({1, 32, 16, 14}, 22).conv(32, 5, 1, 1).build(); }},
      {"groups by minimal filtering", [] { return Network({1, 64, 14, 14}, 23).conv(64, 3, 1, 4).build(); }},
      {"conv 5x5", [] { return Network({1, 16, 11, 11}, 7).conv(24, 5, 1, 1).build(); }, true},
      {"a first convolution, 7x7", [] { return Network({1, 3, 33, 29}, 18).conv(24, 7, 2, 1).build(); }, true},
      {"a first convolution, 3x3", [] { return Network({2, 3, 17, 20}, 19).conv(16, 3, 2, 1).build(); }, true},
      {"a first convolution of a large picture", [] { return Network({1, 3, 192, 192}, 21).conv(16, 3, 2, 1).build(); },
       true},
      {"one channel, 5x4 outputs", [] { return Network({1, 1, 5, 4}, 20).conv(16, 5, 1, 1).build(); }, true},
      {"depthwise", [] { return Network({1, 48, 14, 14}, 8).conv(48, 3, 1, 48).build(); }},
      {"groups", [] { return Network({1, 64, 10, 10}, 9).conv(64, 3, 1, 4).build(); }, true},
      {"product", [] { return Network({5, 64}, 10).matmul(70).build(); }, true},
      {"product of one row", [] { return Network({1, 256}, 11).matmul(33).build(); }, true},
      {"product of an odd number of terms", [] { return Network({4, 33}, 12).matmul(32).build(); }},
      {"product of few terms", [] { return Network({40, 8}, 13).matmul(64).build(); }},
      {"stacked products", [] { return Network({2, 3, 37, 32}, 14).matmul(17).build(); }, true},
      {"two layers",
       [] { return Network({1, 32, 12, 12}, 15).conv(64, 1, 1, 1).exp_of_negative().conv(32, 1, 1, 1).build(); }, true,
       2},
      {"a residual",
       [] {
         return Network({1, 32, 12, 12}, 16)
             .conv(32, 1, 1, 1)
             .keep()
             .conv(32, 1, 1, 1)
             .add_kept()
             .conv(16, 1, 1, 1)
             .build();
       },
       true, 3},
      {"an inverted residual",
       [] {
         return Network({1, 16, 14, 14}, 17)
             .keep()
             .conv(96, 1, 1, 1)
             .conv(96, 3, 1, 96)
             .conv(16, 1, 1, 1)
             .add_kept()
             .build();
       },
       false, 3},
  };
  return list;
}

class Precision : public testing::TestWithParam<const char*> {};

TEST_P(Precision, AgreesWithTheRoundedGraph) {
  for (const char* target :
       {"native", "x86-64-v4", "x86-64-v3", "x86-64-v2", "x86-64-v4,+portable-tiles", "x86-64-v3,+portable-tiles"}) {
    if (!runs_here(parse_target(target))) {
      std::cout << "skipped: this machine does not run " << target << "\n";
      continue;
    }
    for (const Case& c : cases()) {
      SCOPED_TRACE(std::string(c.name) + " for " + target);
      const Results results = run(c.build(), GetParam(), target);
      EXPECT_LE(distance(results.ours, results.reference), c.layers == 1 ? 1e-4 : c.layers * step_of(GetParam()));
      EXPECT_LE(distance(results.ours, results.unrounded), c.layers * 4 * step_of(GetParam()));
      EXPECT_GT(distance(results.ours, results.unrounded), 0) << "nothing was rounded";
    }
  }
}

TEST_P(Precision, MeansTheSameWithoutOptimisation) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const Results results = run(c.build(), GetParam(), "native", 0);
    EXPECT_LE(distance(results.ours, results.reference), c.layers == 1 ? 1e-4 : c.layers * step_of(GetParam()));
  }
}

// Pieces round nothing: convolutions and products are those of f32.
TEST(Pieces, AgreeWithTheInterpreter) {
  for (const char* target : {"x86-64-v4,+avx512bf16", "x86-64-v4,+portable-tiles", "x86-64-v3,+portable-tiles"}) {
    if (!runs_here(parse_target(target))) {
      std::cout << "skipped: this machine does not run " << target << "\n";
      continue;
    }
    for (const Case& c : cases()) {
      SCOPED_TRACE(std::string(c.name) + " for " + target);
      const Results results = run(c.build(), "f32", target, 3, "pieces");
      EXPECT_LE(distance(results.ours, results.unrounded), 1e-5);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Precision, testing::Values("bf16", "f16"), [](const auto& info) { return info.param; });

TEST(PrecisionKernels, TakesDotProductsWhereTheMachineHasThem) {
  const std::string target = "x86_64-unknown-linux-gnu,cpu=x86-64-v4,+avx512bf16";
  for (const Case& c : cases()) {
    DriverOptions options;
    options.compile = {.opt_level = 3, .target = target, .num_threads = 1, .precision = "bf16"};
    std::string text;
    OnProgram see_program([&](std::string_view, const Program& program) {
      text.clear();
      for (const Kernel& kernel : program.kernels) text += print(kernel.program);
    });
    options.observers.add(see_program);
    PassRunner runner(options);
    compile_graph(c.build().graph, options, runner);
    EXPECT_EQ(text.find("x86.avx512.dot.bf16") != std::string::npos, c.dots || c.layers > 1) << c.name;
    EXPECT_TRUE(!c.dots || text.find("fma.f32") == std::string::npos) << c.name << text;
  }
}

// Values that have no bf16 near them: products read less than 2^-126 as 0, rounding may make 0 of it, and keeps the
// rest.
TEST(PrecisionKernels, RoundsWhatIsSmallLargeAndNoNumber) {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> values = {0x1p-126f,   0x1p-127f, -0x1.8p-130f, 0x1p-149f,   0.0f,         -0.0f,
                                     infinity,    -infinity, nan,          0x1.ffp127f, 0x1.fffp127f, 1.00390625f,
                                     1.01171875f, -3.3e38f,  1e-30f,       7.0f};
  for (const int64_t width : {16, 48, 64, 33}) {
    // 16 rows of equal values: each passes by a row of weights that are 1 in one column.
    Graph graph;
    GraphBuilder builder(graph);
    const ValueId x = graph.add_input("x", {DType::kF32, make_shape({16, width}), {}});
    auto ones = std::make_shared<Tensor>(DType::kF32, Ints{width, 32});
    for (int64_t c = 0; c < 32; ++c) ones->set_double(c % width * 32 + c, 1);
    const ValueId w = builder.add(standard_ops().get("constant"), {}, {{"value", TensorPtr(ones)}});
    graph.outputs = {builder.add(standard_ops().get("matmul"), {x, w})};
    graph.rename(graph.outputs[0], "y");
    Tensor input(DType::kF32, {16, width});
    for (int64_t i = 0; i < input.num_elements(); ++i) input.set_double(i, values[static_cast<size_t>(i / width)]);
    DriverOptions options;
    options.compile.precision = "bf16";
    options.compile.num_threads = 1;
    Tensor reference;
    OnGraph see_graph([&](std::string_view step, const Graph& after) {
      if (step == "lower_precision") reference = GraphInterpreter().evaluate(after, {input})[0];
    });
    options.observers.add(see_graph);
    PassRunner runner(options);
    const auto model = load_module(module_in_memory(compile_graph(graph, options, runner)), "precision", 1);
    model->bind({input});
    model->run();
    for (int64_t i = 0; i < reference.num_elements(); ++i) {
      const double want = reference.get_double(i), got = model->results()[0].get_double(i);
      SCOPED_TRACE(fmt::format("row {}, column {} of {}: {} and {}", i / 32, i % 32, width, want, got));
      if (std::isnan(want)) EXPECT_TRUE(std::isnan(got));
      else if (std::isinf(want)) EXPECT_EQ(got, want);
      else EXPECT_LE(std::fabs(got - want), 0x1p-126);
    }
  }
}

TEST(PrecisionKernels, StoresWhatLiesBetweenIn16Bits) {
  const Built built = Network({1, 32, 12, 12}, 15).conv(64, 1, 1, 1).exp_of_negative().conv(32, 1, 1, 1).build();
  const auto arena_of = [&](const std::string& precision) {
    DriverOptions options;
    options.compile.precision = precision;
    PassRunner runner(options);
    return compile_graph(built.graph, options, runner).program.arena_bytes;
  };
  EXPECT_LT(arena_of("bf16"), arena_of("f32") * 7 / 10);
}

TEST(PrecisionKernels, AnUnknownPrecisionIsAnErrorOfTheUser) {
  DriverOptions options;
  options.compile.precision = "bf61";
  PassRunner runner(options);
  try {
    compile_graph(cases()[0].build().graph, options, runner);
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_EQ(error.diagnostic().id, "TSR-4027");
  }
}

}  // namespace
}  // namespace tessera
