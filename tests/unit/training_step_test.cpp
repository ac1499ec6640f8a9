// Training steps by the interpreter, in f64, against the same steps in plain loops; what is refused.
#include "train/training_step.h"
#include "train/weights.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <random>

#include "graph/parser.h"
#include "graph/printer.h"
#include "graph/verify.h"
#include "interp/graph_interp.h"
#include "interp/graph_session.h"
#include "ops/composites/composites.h"
#include "ops/op_table.h"
#include "support/error.h"

namespace tessera {
namespace {

// y = x w, 3 samples of 2 numbers.
constexpr const char* kLine = R"(
graph @line(%x: f64[3,2]) -> (%y: f64[3,1]) {
  %w = constant {value = dense<f64[2,1] 0.5 -0.25>} : f64[2,1]
  %y = matmul(%x, %w) {transpose_a = false, transpose_b = false} : f64[3,1]
})";

Tensor numbers(const std::vector<int64_t>& dims, const std::vector<double>& values) {
  Tensor tensor(DType::kF64, dims);
  for (size_t i = 0; i < values.size(); ++i) tensor.set_double(static_cast<int64_t>(i), values[i]);
  return tensor;
}

Tensor rate(double value) { return numbers({}, {value}); }

// torch.optim's formulas for one number.
struct Reference {
  OptimizerOptions o;
  double velocity = 0, mean = 0, squares = 0;

  double step(double p, double g, double lr, int t) {
    const double eps = o.epsilon >= 0 ? o.epsilon : o.kind == OptimizerKind::kAdagrad ? 1e-10 : 1e-8;
    if (o.kind == OptimizerKind::kAdamW) p *= 1 - lr * o.weight_decay;
    else g += o.weight_decay * p;
    switch (o.kind) {
      case OptimizerKind::kSgd:
        if (o.momentum == 0) return p - lr * g;
        velocity = t == 1 ? g : o.momentum * velocity + (1 - o.dampening) * g;
        return p - lr * (o.nesterov ? g + o.momentum * velocity : velocity);
      case OptimizerKind::kAdam:
      case OptimizerKind::kAdamW: {
        mean += (g - mean) * (1 - o.beta1);
        squares = squares * o.beta2 + (1 - o.beta2) * g * g;
        const double root = std::sqrt(squares) / std::sqrt(1 - std::pow(o.beta2, t)) + eps;
        return p - lr / (1 - std::pow(o.beta1, t)) * mean / root;
      }
      case OptimizerKind::kRmsProp: {
        squares = o.alpha * squares + (1 - o.alpha) * g * g;
        double spread = squares;
        if (o.centered) {
          mean += (g - mean) * (1 - o.alpha);
          spread -= mean * mean;
        }
        const double direction = g / (std::sqrt(spread) + eps);
        if (o.momentum == 0) return p - lr * direction;
        velocity = o.momentum * velocity + direction;
        return p - lr * velocity;
      }
      case OptimizerKind::kAdagrad:
        squares += g * g;
        return p - lr / (1 + (t - 1) * o.rate_decay) * g / (std::sqrt(squares) + eps);
    }
    return p;
  }
};

std::vector<OptimizerOptions> optimizers() {
  std::vector<OptimizerOptions> list;
  for (const OptimizerKind kind : {OptimizerKind::kSgd, OptimizerKind::kAdam, OptimizerKind::kAdamW,
                                   OptimizerKind::kRmsProp, OptimizerKind::kAdagrad}) {
    OptimizerOptions o;
    o.kind = kind;
    list.push_back(o);
    o.weight_decay = 0.1;
    list.push_back(o);
    o.rate_decay = 0.1, o.epsilon = 1e-3;
    list.push_back(o);
    o.momentum = 0.9;
    list.push_back(o);
    o.centered = true;
    list.push_back(o);
  }
  OptimizerOptions o;
  o.kind = OptimizerKind::kSgd;
  o.momentum = 0.9, o.dampening = 0.5;
  list.push_back(o);
  o.dampening = 0, o.nesterov = true;
  list.push_back(o);
  return list;
}

TEST(TrainingStep, OptimizersFollowTheirFormulas) {
  const Graph model = parse_graph(kLine, standard_ops());
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> uniform(-1, 1);
  for (const OptimizerOptions& options : optimizers())
    for (const double clip : {0.0, 0.1}) {
      SCOPED_TRACE(fmt::format("optimizer {}, clip {}", static_cast<int>(options.kind), clip));
      TrainingOptions training;
      training.loss = LossKind::kMeanSquaredError;
      training.optimizer = options;
      training.clip_norm = clip;
      const TrainingStep step = training_step(model, training, standard_ops());
      EXPECT_THAT(verify(step.graph), testing::IsEmpty());
      EXPECT_EQ(print(parse_graph(print(step.graph), standard_ops())), print(step.graph));
      GraphInterpreter interpreter;
      GraphSession session(step.graph, interpreter);
      double w[2] = {0.5, -0.25};
      Reference reference[2] = {{options}, {options}};
      for (int t = 1; t <= 50; ++t) {
        std::vector<double> x(6), y(3);
        for (double& v : x) v = uniform(random);
        for (double& v : y) v = uniform(random);
        const double lr = 0.01 + 0.001 * t;
        double loss = 0, g[2] = {0, 0};
        for (size_t n = 0; n < 3; ++n) {
          const double off = x[2 * n] * w[0] + x[2 * n + 1] * w[1] - y[n];
          loss += off * off / 3;
          for (size_t k = 0; k < 2; ++k) g[k] += 2 * off * x[2 * n + k] / 3;
        }
        if (clip > 0) {
          const double factor = std::min(1.0, clip / (std::sqrt(g[0] * g[0] + g[1] * g[1]) + 1e-6));
          for (double& v : g) v *= factor;
        }
        for (size_t k = 0; k < 2; ++k) w[k] = reference[k].step(w[k], g[k], lr, t);
        const std::vector<Tensor> results = session.call({numbers({3, 2}, x), numbers({3, 1}, y), rate(lr)});
        ASSERT_NEAR(results.at(0).get_double(0), loss, 1e-9);
        for (int64_t k = 0; k < 2; ++k) ASSERT_NEAR(session.states().at(0).get_double(k), w[k], 1e-9) << "step " << t;
        ASSERT_EQ(session.states().back().get_int(0), t);
      }
    }
}

// Small gradients, whose squares are zeros in f16: weights go the way that they go in f32, rounded after each step.
TEST(TrainingStep, SixteenBitsAreUpdatedInF32) {
  constexpr const char* kSmall = R"(
graph @line(%x: f16[3,2]) -> (%y: f16[3,1]) {
  %w = constant {value = dense<f16[2,1] 0.5 -0.25>} : f16[2,1]
  %y = matmul(%x, %w) {transpose_a = false, transpose_b = false} : f16[3,1]
})";
  const Graph model = parse_graph(kSmall, standard_ops());
  for (const OptimizerKind kind : {OptimizerKind::kAdam, OptimizerKind::kAdamW, OptimizerKind::kRmsProp,
                                   OptimizerKind::kAdagrad, OptimizerKind::kSgd}) {
    SCOPED_TRACE(static_cast<int>(kind));
    TrainingOptions options;
    options.loss = LossKind::kMeanSquaredError;
    options.optimizer.kind = kind;
    const TrainingStep step = training_step(model, options, standard_ops());
    EXPECT_THAT(verify(step.graph), testing::IsEmpty());
    GraphInterpreter interpreter;
    GraphSession session(step.graph, interpreter);
    Tensor x(DType::kF16, {3, 2}), y(DType::kF16, {3, 1});
    for (int64_t i = 0; i < 6; ++i) x.set_double(i, 0.001 * static_cast<double>(i + 1));
    for (int t = 0; t < 20; ++t) session.call({x, y, rate(0.01)});
    for (int64_t k = 0; k < 2; ++k) {
      const double w = session.states().at(0).get_double(k);
      EXPECT_TRUE(std::isfinite(w));
      EXPECT_NEAR(w, k == 0 ? 0.5 : -0.25, 0.25);
    }
    EXPECT_EQ(session.states().at(0).dtype(), DType::kF16);
    if (kind == OptimizerKind::kAdam) EXPECT_NE(session.states().at(0).get_double(0), 0.5);
    for (size_t s = 1; s + 1 < session.states().size(); ++s) EXPECT_EQ(session.states()[s].dtype(), DType::kF32);
  }
}

TEST(TrainingStep, NamesOfItsParts) {
  const Graph model = parse_graph(kLine, standard_ops());
  TrainingOptions options;
  options.loss = LossKind::kMeanSquaredError;
  const TrainingStep step = training_step(model, options, standard_ops());
  std::vector<std::string> inputs, states, outputs;
  for (size_t i = 0; i < step.graph.num_own_inputs(); ++i)
    inputs.push_back(step.graph.value(step.graph.inputs[i]).name);
  for (const State& state : step.graph.states) states.push_back(state.name);
  for (size_t i = 0; i < step.graph.num_own_outputs(); ++i)
    outputs.push_back(step.graph.value(step.graph.outputs[i]).name);
  EXPECT_THAT(inputs, testing::ElementsAre("x", "target", "learning_rate"));
  EXPECT_THAT(states, testing::ElementsAre("w", "w.mean", "w.squares", "training.step"));
  EXPECT_THAT(outputs, testing::ElementsAre("loss", "correct"));
  EXPECT_THAT(step.parameters, testing::ElementsAre("w"));
}

TEST(TrainingStep, WeightsMayHaveTheNamesOfItsParts) {
  const Graph model = parse_graph(R"(
graph @names(%x: f64[3,2]) -> (%y: f64[3,2]) {
  %w = constant {value = dense<f64[2] 1 2>} : f64[2]
  %mean = constant {value = dense<f64[2] 3 4>} : f64[2]
  %step = constant {value = dense<f64[2] 5 6>} : f64[2]
  %a = mul(%x, %w) : f64[3,2]
  %b = add(%a, %mean) : f64[3,2]
  %y = mul(%b, %step) : f64[3,2]
})",
                                  standard_ops());
  Graph named = model;
  for (size_t n = 0; n < named.nodes().size(); ++n)
    for (const auto& [from, to] : {std::pair{"mean", "w.mean"}, std::pair{"step", "training.step"}})
      if (named.value(named.nodes()[n].outputs[0]).name == from) named.rename(named.nodes()[n].outputs[0], to);
  TrainingOptions options;
  options.loss = LossKind::kMeanSquaredError;
  const TrainingStep step = training_step(named, options, standard_ops());
  EXPECT_THAT(step.parameters, testing::ElementsAre("w", "w.mean", "training.step"));
  std::vector<std::string> states;
  for (const State& state : step.graph.states) states.push_back(state.name);
  EXPECT_THAT(states,
              testing::ElementsAre("w", "w.mean", "training.step", "w.mean_1", "w.squares", "w.mean.mean",
                                   "w.mean.squares", "training.step.mean", "training.step.squares", "training.step_1"));
}

// A classifier with a batch normalisation, whose statistics are learnt beside the weights and not by gradients.
Graph normalised() {
  Graph graph;
  graph.name = "net";
  GraphBuilder b(graph);
  const ValueId x = graph.add_input("x", {DType::kF64, make_shape({4, 3}), {}});
  const auto constant = [&](const std::string& name, const std::vector<int64_t>& dims, const std::vector<double>& v) {
    return b.add(standard_ops().get("constant"), {}, {{"value", std::make_shared<const Tensor>(numbers(dims, v))}},
                 name);
  };
  const ValueId w = constant("w", {3, 2}, {0.1, 0.2, 0.3, -0.1, -0.2, -0.3});
  const ValueId h = b.add(standard_ops().get("matmul"), {x, w}, {{"transpose_a", false}, {"transpose_b", false}});
  const ValueId n = add_composite(b, standard_ops(), "batch_norm",
                                  {h, constant("scale", {2}, {1, 1}), constant("bias", {2}, {0, 0}),
                                   constant("mean", {2}, {0, 0}), constant("var", {2}, {1, 1})},
                                  {{"epsilon", 0.1}})[0];
  graph.outputs = {add_composite(b, standard_ops(), "softmax", {n}, {{"axis", int64_t{1}}})[0]};
  graph.rename(graph.outputs[0], "y");
  return graph;
}

TEST(TrainingStep, BatchNormalisationAndCrossEntropy) {
  const Graph model = normalised();
  TrainingOptions options;
  options.frozen = {"bias"};
  const TrainingStep step = training_step(model, options, standard_ops());
  EXPECT_THAT(step.parameters, testing::ElementsAre("w", "scale"));
  EXPECT_THAT(step.statistics, testing::ElementsAre("mean", "var"));
  GraphInterpreter interpreter;
  GraphSession session(step.graph, interpreter);
  const Tensor x = numbers({4, 3}, {1, 2, 3, -1, 0, 2, 0.5, 0.5, 0, 2, -2, 1});
  Tensor target(DType::kI64, {4});
  for (const int64_t i : {1, 3}) target.set_int(i, 1);
  double first = 0, last = 0;
  for (int t = 0; t < 200; ++t) {
    const std::vector<Tensor> results = session.call({x, target, rate(0.05)});
    (t == 0 ? first : last) = results[0].get_double(0);
    if (t == 0) {
      // The softmax that the model ends with is not applied twice; momentum of the statistics is 0.9.
      double mean = 0;
      const double w[3] = {0.1, 0.3, -0.2};
      for (int64_t n = 0; n < 4; ++n)
        for (int64_t k = 0; k < 3; ++k) mean += x.get_double(3 * n + k) * w[k] / 4;
      EXPECT_NEAR(session.states().at(2).get_double(0), 0.1 * mean, 1e-12);
    }
    if (t == 199) EXPECT_EQ(results[1].get_int(0), 4);
  }
  EXPECT_LT(last, first / 5);

  // What was learnt, given to the model: as states, and as constants.
  const std::vector<std::string> names = {"w", "scale", "mean", "var"};
  std::vector<TensorPtr> values;
  for (size_t i = 0; i < names.size(); ++i) values.push_back(std::make_shared<const Tensor>(session.states()[i]));
  const Graph filled = with_constants(model, names, values), open = with_states(model, names);
  EXPECT_THAT(verify(open), testing::IsEmpty());
  GraphSession inference(open, interpreter);
  for (size_t i = 0; i < names.size(); ++i) inference.set_state(i, *values[i]);
  const Tensor want = interpreter.evaluate(filled, {x})[0], got = inference.call({x})[0];
  for (int64_t i = 0; i < 8; ++i) EXPECT_EQ(got.get_double(i), want.get_double(i));
  for (int64_t n = 0; n < 4; ++n)
    EXPECT_GT(want.get_double(2 * n + target.get_int(n)), want.get_double(2 * n + 1 - target.get_int(n)));
}

// Two batch normalisations one after the other that read one constant as scale and variances, one as biases and means.
// Against the formula of torch.nn.CrossEntropyLoss, and its gradient by differences.
TEST(TrainingStep, LabelsAreSmoothed) {
  const std::vector<std::string> texts = {
      "graph @g(%x: f64[3,2]) -> (%y: f64[3,4]) {\n"
      "  %w = constant {value = dense<f64[2,4] 0.5 -0.25 1 0 0.75 -1 2 -0.5>} : f64[2,4]\n"
      "  %y = matmul(%x, %w) {transpose_a = false, transpose_b = false} : f64[3,4]\n}"};
  const std::vector<double> w = {0.5, -0.25, 1, 0, 0.75, -1, 2, -0.5}, x = {1, -2, 0.5, 3, -1.5, 0.25};
  const std::vector<int64_t> targets = {2, 0, 3};
  const auto loss_of = [&](const std::vector<double>& weights, double smoothing) {
    double loss = 0;
    for (size_t n = 0; n < 3; ++n) {
      double y[4], sum = 0, all = 0;
      for (size_t c = 0; c < 4; ++c) sum += std::exp(y[c] = x[2 * n] * weights[c] + x[2 * n + 1] * weights[4 + c]);
      for (const double score : y) all += std::log(sum) - score;
      loss += (1 - smoothing) * (std::log(sum) - y[targets[n]]) + smoothing * all / 4;
    }
    return loss / 3;
  };
  for (const double smoothing : {0.0, 0.1, 0.75}) {
    SCOPED_TRACE(smoothing);
    TrainingOptions options;
    options.optimizer.kind = OptimizerKind::kSgd;
    options.label_smoothing = smoothing;
    const TrainingStep step = training_step(parse_graph(texts[0], standard_ops()), options, standard_ops());
    EXPECT_THAT(verify(step.graph), testing::IsEmpty());
    GraphInterpreter interpreter;
    GraphSession session(step.graph, interpreter);
    const std::vector<Tensor> results =
        session.call({numbers({3, 2}, x), Tensor::from_ints(std::vector<int64_t>(targets)), rate(1)});
    EXPECT_NEAR(results[0].get_double(0), loss_of(w, smoothing), 1e-12);
    for (size_t k = 0; k < w.size(); ++k) {
      std::vector<double> up = w, down = w;
      up[k] += 1e-5, down[k] -= 1e-5;
      const double gradient = (loss_of(up, smoothing) - loss_of(down, smoothing)) / 2e-5;
      EXPECT_NEAR(w[k] - session.states().at(0).get_double(static_cast<int64_t>(k)), gradient, 1e-8);
    }
  }
}

TEST(TrainingStep, StatisticsAreApartFromWhatElseHasTheirNumbers) {
  Graph model;
  GraphBuilder b(model);
  const ValueId x = model.add_input("x", {DType::kF64, make_shape({4, 2}), {}});
  const auto constant = [&](const std::string& name, const std::vector<double>& v) {
    return b.add(standard_ops().get("constant"), {}, {{"value", std::make_shared<const Tensor>(numbers({2}, v))}},
                 name);
  };
  const ValueId ones = constant("ones", {1, 1}), zeros = constant("zeros", {0, 0});
  ValueId y = x;
  for (const char* name : {"first", "second"}) {
    y = add_composite(b, standard_ops(), "batch_norm", {y, ones, zeros, zeros, ones}, {{"epsilon", 0.1}})[0];
    model.rename(y, name);
  }
  model.outputs = {y};
  const Graph own = with_own_statistics(model, standard_ops());
  EXPECT_THAT(verify(own), testing::IsEmpty());
  TrainingOptions options;
  options.optimizer.kind = OptimizerKind::kSgd;
  const TrainingStep step = training_step(own, options, standard_ops());
  EXPECT_THAT(step.parameters, testing::ElementsAre("ones", "zeros"));
  EXPECT_THAT(step.statistics, testing::ElementsAre("first.running_mean", "first.running_variance",
                                                    "second.running_mean", "second.running_variance"));
  GraphInterpreter interpreter;
  GraphSession session(step.graph, interpreter);
  Tensor target(DType::kI64, {4});
  session.call({numbers({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8}), target, rate(0.0625)});
  // 0.9 of what was there and 0.1 of the batch's: a mean of 4, a variance of 20 / 3; then a mean of 0.
  EXPECT_NEAR(session.states().at(2).get_double(0), 0.4, 1e-12);
  EXPECT_NEAR(session.states().at(3).get_double(0), 0.9 + 0.1 * 20 / 3, 1e-12);
  EXPECT_NEAR(session.states().at(4).get_double(0), 0, 1e-12);
  EXPECT_LT(session.states().at(5).get_double(0), 1.1);
  EXPECT_EQ(with_own_statistics(own, standard_ops()).nodes().size(), own.nodes().size());
}

// y = x w + w, where the second w is a constant of another shape over the same numbers, as importers make of a bias
// that two convolutions add.
TEST(TrainingStep, AWeightOfTwoShapesIsOneWeight) {
  Graph model;
  GraphBuilder b(model);
  const ValueId x = model.add_input("x", {DType::kF64, make_shape({2, 3}), {}});
  const auto data = std::make_shared<const Tensor>(numbers({3}, {0.5, -1, 2}));
  const auto constant = [&](const std::string& name, std::vector<int64_t> dims) {
    const auto value = std::make_shared<const Tensor>(data->dtype(), std::move(dims), data, data->bytes());
    return b.add(standard_ops().get("constant"), {}, {{"value", TensorPtr(value)}}, name);
  };
  const ValueId product = b.add(standard_ops().get("mul"), {x, constant("w", {3})});
  model.outputs = {b.add(standard_ops().get("add"), {product, constant("again", {1, 3})})};

  const Graph shared = with_shared_constants(model, standard_ops());
  EXPECT_THAT(verify(shared), testing::IsEmpty());
  TrainingOptions options;
  options.loss = LossKind::kMeanSquaredError;
  options.optimizer.kind = OptimizerKind::kSgd;
  const TrainingStep step = training_step(shared, options, standard_ops());
  ASSERT_THAT(step.parameters, testing::ElementsAre("w"));
  GraphInterpreter interpreter;
  GraphSession session(step.graph, interpreter);
  const std::vector<double> samples = {1, 2, -1, 0.5, -3, 4}, targets = {0, 1, 2, 3, -1, -2};
  session.call({numbers({2, 3}, samples), numbers({2, 3}, targets), rate(0.1)});
  const Tensor learnt = session.states().at(0);
  for (size_t k = 0; k < 3; ++k) {
    const double w = data->get_double(static_cast<int64_t>(k));
    double gradient = 0;
    for (const size_t i : {k, k + 3}) gradient += 2 * (samples[i] * w + w - targets[i]) * (samples[i] + 1) / 6;
    EXPECT_NEAR(learnt.get_double(static_cast<int64_t>(k)), w - 0.1 * gradient, 1e-12);
  }

  // Both places of the model get what was learnt.
  const Graph filled = with_constants(model, {"w"}, {std::make_shared<const Tensor>(learnt)});
  EXPECT_THAT(verify(filled), testing::IsEmpty());
  const Tensor y = interpreter.evaluate(filled, {numbers({2, 3}, samples)})[0];
  for (int64_t i = 0; i < 6; ++i) {
    const double w = learnt.get_double(i % 3);
    EXPECT_NEAR(y.get_double(i), samples[static_cast<size_t>(i)] * w + w, 1e-12);
  }
}

std::string refusal(const std::string& text, const TrainingOptions& options) {
  try {
    training_step(parse_graph(text, standard_ops()), options, standard_ops());
  } catch (const UserError& error) {
    return error.what();
  }
  return "none";
}

TEST(TrainingStep, WhatIsRefused) {
  using testing::AllOf;
  using testing::HasSubstr;
  TrainingOptions options;
  const auto message = [](const auto& ask) -> std::string {
    try {
      ask();
    } catch (const UserError& error) {
      return error.diagnostic().id + ": " + error.diagnostic().message;
    }
    return "";
  };
  EXPECT_EQ(message([] { optimizer_kind("adamm"); }), "TSR-2080: there is no optimizer 'adamm'");
  EXPECT_EQ(message([] { loss_kind("l2"); }), "TSR-2080: there is no loss 'l2'");
  options.loss = LossKind::kMeanSquaredError;
  options.optimizer.beta1 = 1;
  EXPECT_THAT(refusal(kLine, options), AllOf(HasSubstr("TSR-2081"), HasSubstr("beta1 = 1")));
  options.optimizer = {};
  options.optimizer.nesterov = true;
  EXPECT_THAT(refusal(kLine, options), AllOf(HasSubstr("TSR-2081"), HasSubstr("with nesterov")));
  options.optimizer = {};
  options.clip_norm = -1;
  EXPECT_THAT(refusal(kLine, options), AllOf(HasSubstr("TSR-2081"), HasSubstr("clip_norm = -1")));
  options.clip_norm = 0;
  options.label_smoothing = 1;
  EXPECT_THAT(refusal(kLine, options), AllOf(HasSubstr("TSR-2081"), HasSubstr("label_smoothing = 1")));
  options.label_smoothing = 0.1;
  EXPECT_THAT(refusal(kLine, options), AllOf(HasSubstr("TSR-2081"), HasSubstr("label_smoothing of the loss mse")));
  options.label_smoothing = 0;
  options.frozen = {"v"};
  EXPECT_THAT(refusal(kLine, options), AllOf(HasSubstr("TSR-2083"), HasSubstr("'v' is to be frozen"), HasSubstr("w")));
  options.frozen = {"w"};
  EXPECT_THAT(refusal(kLine, options), AllOf(HasSubstr("TSR-2083"), HasSubstr("nothing to learn")));
  options = {};
  EXPECT_THAT(refusal("graph @g(%x: i64[3]) -> (%y: i64[3]) {\n  %y = neg(%x) : i64[3]\n}", options),
              AllOf(HasSubstr("TSR-2083")));
  EXPECT_THAT(refusal(R"(graph @g(%x: f32[3]) -> (%y: f32[3]) {
  %w = constant {value = dense<f32[3] 1 2 3>} : f32[3]
  %y = mul(%x, %w) : f32[3]
})",
                      options),
              AllOf(HasSubstr("TSR-2082"), HasSubstr("scores [N, classes, ...]")));
  EXPECT_THAT(refusal(R"text(graph @g(%x: f32[2,3]) -> (%y: f32[2,3]) {
  %w = constant {value = dense<f32[3] 1 2 3>} : f32[3]
  %c = compute(%w) {body = "out[i<3] = bitcast:f32((bitcast:i32(x0[i]) + 1:i32))"} : f32[3] loc("mine")
  %y = mul(%x, %c) : f32[2,3]
})text",
                      options),
              AllOf(HasSubstr("TSR-2072"), HasSubstr("mine")));
}

}  // namespace
}  // namespace tessera
