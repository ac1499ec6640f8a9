// Graphs with gradients, compiled, beside the interpreter: random graphs, networks of random shapes, training steps.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "autodiff/gradients.h"
#include "driver/compile.h"
#include "driver/engine/compiled_evaluator.h"
#include "driver/engine/interpreted_model.h"
#include "driver/engine/native_model.h"
#include "graph/printer.h"
#include "graph/verify.h"
#include "interp/graph_interp.h"
#include "ops/composites/composites.h"
#include "ops/op_table.h"
#include "ops/op_util.h"
#include "support/test_data.h"
#include "train/training_step.h"
#include "unit/random_graph.h"
#include "unit/random_loop.h"

namespace tessera {
namespace {

using Ints = std::vector<int64_t>;

DriverOptions options_of(int level, int threads = 1) {
  DriverOptions options;
  options.compile.opt_level = level;
  options.compile.num_threads = threads;
  return options;
}

// Rounding differs, and grows on the way back.
constexpr double kTolerance = 5e-4;

void expect_agree(const std::vector<Tensor>& got, const std::vector<Tensor>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_TRUE(tensors_agree(got[i], want[i], kTolerance)) << what << ", output " << i;
}

TEST(CompiledGradients, RandomGraphs) {
  GraphInterpreter interpreter;
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    Graph graph = random_graph(seed, 6);
    graph.outputs.resize(1);
    std::vector<ValueId> wrt;
    for (const ValueId input : graph.inputs)
      if (is_real(graph.type(input).dtype)) wrt.push_back(input);
    if (!is_real(graph.type(graph.outputs[0]).dtype)) continue;
    const Graph with = gradients(graph, graph.outputs[0], wrt, standard_ops());
    ASSERT_THAT(verify(with), testing::IsEmpty()) << seed;
    const std::vector<Tensor> inputs = random_inputs(with, seed), want = interpreter.evaluate(with, inputs);
    for (const int level : {0, 3}) {
      CompiledEvaluator compiled(options_of(level, seed % 4 == 0 ? 2 : 1));
      expect_agree(compiled.evaluate(with, inputs), want, fmt::format("seed {}, -O{}\n{}", seed, level, print(with)));
    }
  }
}

// Loops of all forms, their gradients compiled.
TEST(CompiledGradients, Loops) {
  GraphInterpreter interpreter;
  for (uint64_t seed = 0; seed < 24; ++seed) {
    Graph graph;
    GraphBuilder builder(graph);
    RandomLoop form = random_form(seed);
    if (seed % 3 == 0) {  // not written out; bodies whose gradients do not grow without bound
      form.trip += 60;
      form.branches = form.uses_number = false;
    }
    const auto input = [&](const char* name, const Ints& dims) {
      return graph.add_input(name, {DType::kF32, make_shape(dims), {}});
    };
    const ValueId state = input("state", {3}), rows = input("rows", {form.trip, 3}), weights = input("weights", {3, 3}),
                  bias = input("bias", {3});
    const std::vector<ValueId> results = add_loop(builder, form, state, rows, weights, bias);
    const ValueId stacked = builder.add(standard_ops().get("mul"), {results[3], results[4]});
    const ValueId sums = builder.add(standard_ops().get("reduce"), {stacked},
                                     {{"axes", Ints{0}}, {"keepdims", false}, {"kind", std::string("sum")}});
    const ValueId both = builder.add(standard_ops().get("mul"), {results[0], results[1]});
    graph.outputs = {builder.add(standard_ops().get("add"), {both, sums})};
    const Graph with = gradients(graph, graph.outputs[0], graph.inputs, standard_ops());
    ASSERT_THAT(verify(with), testing::IsEmpty()) << seed;
    const std::vector<Tensor> inputs = random_inputs(with, seed), want = interpreter.evaluate(with, inputs);
    for (const int level : {0, 3}) {
      CompiledEvaluator compiled(options_of(level, seed % 4 == 0 ? 2 : 1));
      expect_agree(compiled.evaluate(with, inputs), want, fmt::format("seed {}, -O{}\n{}", seed, level, print(with)));
    }
  }
}

// Random weights: a convolution, an activation, a pool, a product, all of random shapes, as one training step.
class Network {
 public:
  explicit Network(uint64_t seed) : random_(seed), builder_(graph_) {
    const int64_t batch = roll(1, 9), channels = roll(1, 5), height = roll(5, 13), width = roll(5, 17);
    ValueId v = graph_.add_input("x", {DType::kF32, make_shape({batch, channels, height, width}), {}});
    const int64_t filters = roll(1, 20), window = roll(1, 3);
    v = op("conv", {v, weights("conv", {filters, channels, window, window})},
           {{"strides", Ints{roll(1, 2), 1}},
            {"pads_begin", Ints{1, 1}},
            {"pads_end", Ints{1, 1}},
            {"dilations", Ints{1, 1}},
            {"input_dilations", Ints{1, 1}},
            {"groups", int64_t{1}}});
    v = op("add", {v, weights("bias", {filters, 1, 1})});
    const std::vector<std::pair<const char*, Attrs>> activations = {
        {"relu", {}}, {"leaky_relu", {{"alpha", 0.1}}}, {"sigmoid", {}},
        {"silu", {}}, {"elu", {{"alpha", 1.0}}},        {"softplus", {}},
        {"gelu", {}}};
    const auto& [activation, attrs] = activations[seed % activations.size()];
    v = composite(activation, {v}, attrs);
    const Ints pool = {roll(1, 3), roll(1, 3)}, strides = {roll(1, 3), roll(1, 3)};
    v = composite(seed % 3 == 0 ? "average_pool" : "max_pool", {v},
                  {{"window", pool},
                   {"strides", strides},
                   {"pads_begin", Ints{pool[0] > 1 ? roll(0, 1) : 0, 0}},
                   {"pads_end", Ints{0, pool[1] > 1 ? roll(0, 1) : 0}},
                   {"dilations", Ints{1, 1}}});
    if (seed % 2 == 0)
      v = composite("batch_norm",
                    {v, weights("scale", {filters}), weights("shift", {filters}), weights("mean", {filters}),
                     weights("var", {filters}, 0.5, 2)},
                    {{"epsilon", 1e-3}});
    int64_t size = 1;
    for (const int64_t d : graph_.type(v).dims()) size *= d;
    size /= batch;
    v = op("reshape", {v}, {{"shape", make_shape({batch, size})}});
    const int64_t classes = roll(2, 11);
    v = composite("gemm", {v, weights("fc", {classes, size}), weights("fc_bias", {classes})}, {{"trans_b", true}});
    graph_.outputs = {v};
    classes_ = classes;
  }

  const Graph& graph() const { return graph_; }
  // Inputs of a step.
  std::vector<Tensor> batch(const Graph& step) {
    std::vector<Tensor> inputs;
    Tensor& x = inputs.emplace_back(DType::kF32, step.type(step.inputs[0]).dims());
    for (int64_t i = 0; i < x.num_elements(); ++i) x.set_double(i, uniform(-1, 1));
    Tensor& target = inputs.emplace_back(DType::kI64, step.type(step.inputs[1]).dims());
    for (int64_t i = 0; i < target.num_elements(); ++i) target.set_int(i, roll(0, classes_ - 1));
    inputs.emplace_back(DType::kF64, Ints{}).set_double(0, 0.01);
    return inputs;
  }

 private:
  double uniform(double lo, double hi) { return std::uniform_real_distribution<double>(lo, hi)(random_); }
  int64_t roll(int64_t lo, int64_t hi) {
    return lo + static_cast<int64_t>(random_() % static_cast<uint64_t>(hi - lo + 1));
  }
  ValueId op(const std::string& name, std::vector<ValueId> inputs, Attrs attrs = {}) {
    return builder_.add(standard_ops().get(name), std::move(inputs), std::move(attrs));
  }
  ValueId composite(const std::string& name, std::vector<ValueId> inputs, Attrs attrs) {
    return add_composite(builder_, standard_ops(), name, std::move(inputs), std::move(attrs)).at(0);
  }
  ValueId weights(const std::string& name, const Ints& dims, double lo = -0.5, double hi = 0.5) {
    auto tensor = std::make_shared<Tensor>(DType::kF32, dims);
    for (int64_t i = 0; i < tensor->num_elements(); ++i) tensor->set_double(i, uniform(lo, hi));
    return builder_.add(standard_ops().get("constant"), {}, {{"value", TensorPtr(std::move(tensor))}}, name);
  }

  std::mt19937_64 random_;
  Graph graph_;
  GraphBuilder builder_;
  int64_t classes_ = 0;
};

std::unique_ptr<Model> compiled(const Graph& graph, DriverOptions options) {
  options.emit = Emit::kModule;
  const int threads = options.compile.num_threads;
  PassRunner runner(options);
  return load_module(module_in_memory(compile_graph(Graph(graph), options, runner)), graph.name, threads);
}

// Of plain gradient descent, whose steps are no farther apart than the gradients (Adam divides by their size).
TEST(CompiledGradients, TrainingStepsOfRandomNetworks) {
  for (uint64_t seed = 1; seed <= 14; ++seed) {
    Network network(seed);
    TrainingOptions training;
    training.optimizer.kind = OptimizerKind::kSgd;
    training.optimizer.momentum = 0.9;
    training.clip_norm = seed % 4 == 0 ? 0.5 : 0;
    const Graph step = training_step(network.graph(), training, standard_ops()).graph;
    const std::unique_ptr<Model> native = compiled(step, options_of(seed % 3 == 0 ? 0 : 3, seed % 2 == 0 ? 2 : 1));
    const std::unique_ptr<Model> interpreted = interpret_graph(Graph(step), step.name);
    for (int call = 0; call < 3; ++call) {
      const std::vector<Tensor> inputs = network.batch(step);
      for (Model* model : {native.get(), interpreted.get()}) {
        model->bind(inputs);
        model->run();
      }
      const std::string what = fmt::format("seed {}, step {}", seed, call);
      EXPECT_TRUE(tensors_agree(native->results()[0], interpreted->results()[0])) << what;
      for (size_t i = 0; i < interpreted->states().size(); ++i)
        EXPECT_TRUE(tensors_agree(native->state(i), interpreted->state(i), kTolerance))
            << what << ", state " << interpreted->states()[i].name;
    }
  }
}

// One and two threads of the session, of one compile: the same bits.
TEST(CompiledGradients, ThreadsDoNotChangeABit) {
  Network network(7);
  const Graph step = training_step(network.graph(), {}, standard_ops()).graph;
  DriverOptions options = options_of(3, 2);
  options.emit = Emit::kModule;
  PassRunner runner(options);
  const Compiled module = compile_graph(Graph(step), options, runner);
  const std::unique_ptr<Model> one = load_module(module_in_memory(module), "one", 1),
                               two = load_module(module_in_memory(module), "two", 2);
  for (int call = 0; call < 5; ++call) {
    const std::vector<Tensor> inputs = network.batch(step);
    for (Model* model : {one.get(), two.get()}) {
      model->bind(inputs);
      model->run();
    }
    for (size_t i = 0; i < one->states().size(); ++i)
      EXPECT_EQ(one->state(i).content_hash(), two->state(i).content_hash()) << one->states()[i].name;
  }
}

}  // namespace
}  // namespace tessera
