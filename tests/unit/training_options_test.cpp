// What a training step can do besides: it leaves states alone when numbers are not finite, says where they come from,
// drops elements, learns from a teacher, keeps masters in f32, scales its loss; what becomes of a model that learns
// with few bits or fewer channels. By the interpreter.
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
#include "train/channels.h"
#include "train/dropout.h"
#include "train/fake_quantization.h"
#include "train/not_finite.h"
#include "train/training_step.h"
#include "train/weights.h"

namespace tessera {
namespace {

using Ints = std::vector<int64_t>;

Tensor numbers(const Ints& dims, const std::vector<double>& values, DType dtype = DType::kF32) {
  Tensor tensor(dtype, dims);
  for (size_t i = 0; i < values.size(); ++i) tensor.set_double(static_cast<int64_t>(i), values[i]);
  return tensor;
}
Tensor random_numbers(const Ints& dims, uint64_t seed, DType dtype = DType::kF32) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  Tensor tensor(dtype, dims);
  for (int64_t i = 0; i < tensor.num_elements(); ++i) tensor.set_double(i, uniform(random));
  return tensor;
}
Tensor classes(const std::vector<int64_t>& values) { return Tensor::from_ints(std::vector<int64_t>(values)); }
Tensor rate(double value) { return numbers({}, {value}, DType::kF64); }

// Models of these tests: two products with a relu between them, [4,6] -> [4,3].
class Model {
 public:
  explicit Model(DType dtype = DType::kF32, uint64_t seed = 1) : builder_(graph_), dtype_(dtype), seed_(seed) {
    graph_.name = "net";
    x_ = graph_.add_input("x", {dtype, make_shape({4, 6}), {}});
  }
  ValueId weights(const std::string& name, const Ints& dims) {
    return builder_.add(standard_ops().get("constant"), {},
                        {{"value", std::make_shared<const Tensor>(random_numbers(dims, seed_++, dtype_))}}, name);
  }
  ValueId op(const char* name, std::vector<ValueId> operands, Attrs attrs = {}) {
    builder_.set_loc(name);
    return builder_.add(standard_ops().get(name), std::move(operands), std::move(attrs));
  }
  ValueId composite(const char* name, std::vector<ValueId> operands, Attrs attrs = {}) {
    builder_.set_loc(name);
    return add_composite(builder_, standard_ops(), name, std::move(operands), std::move(attrs))[0];
  }
  ValueId product(ValueId x, const std::string& name, const Ints& dims) {
    const ValueId w = weights(name, dims);
    builder_.set_loc(name + ".product");
    return builder_.add(standard_ops().get("matmul"), {x, w}, {{"transpose_a", false}, {"transpose_b", false}});
  }
  Graph with_output(ValueId y) {
    graph_.outputs = {y};
    graph_.rename(y, "y");
    return graph_;
  }
  ValueId x() const { return x_; }
  void rename(ValueId v, const std::string& name) { graph_.rename(v, name); }

 private:
  Graph graph_;
  GraphBuilder builder_;
  DType dtype_;
  uint64_t seed_;
  ValueId x_ = -1;
};

Graph perceptron(DType dtype = DType::kF32, uint64_t seed = 1) {
  Model m(dtype, seed);
  const ValueId hidden = m.composite("relu", {m.op("add", {m.product(m.x(), "w1", {6, 8}), m.weights("b1", {8})})});
  return m.with_output(m.op("add", {m.product(hidden, "w2", {8, 3}), m.weights("b2", {3})}));
}

size_t state_named(const Graph& step, const std::string& name) {
  for (size_t i = 0; i < step.states.size(); ++i)
    if (step.states[i].name == name) return i;
  ADD_FAILURE() << "no state " << name;
  return 0;
}

TrainingStep step_of(const Graph& model, const TrainingOptions& options) {
  TrainingStep step = training_step(model, options, standard_ops());
  EXPECT_THAT(verify(step.graph), testing::IsEmpty());
  EXPECT_EQ(print(parse_graph(print(step.graph), standard_ops())), print(step.graph));
  return step;
}

std::string refusal(const TrainingOptions& options, const Graph& model) {
  try {
    training_step(model, options, standard_ops());
  } catch (const UserError& error) {
    return error.diagnostic().id + ": " + error.diagnostic().message;
  }
  return "none";
}

TEST(GuardedStep, NothingChangesWithoutFiniteNumbers) {
  const Graph model = perceptron();
  for (const double clip : {0.0, 1.0}) {
    TrainingOptions options;
    options.guarded = true;
    options.clip_norm = clip;
    const TrainingStep step = step_of(model, options);
    options.guarded = false;
    const TrainingStep plain = step_of(model, options);
    GraphInterpreter interpreter;
    GraphSession session(step.graph, interpreter), unguarded(plain.graph, interpreter);
    const Tensor x = random_numbers({4, 6}, 5), target = classes({0, 1, 2, 1});
    for (int t = 0; t < 2; ++t) {
      EXPECT_EQ(session.call({x, target, rate(0.01)})[2].get_int(0), 1);
      unguarded.call({x, target, rate(0.01)});
    }
    for (size_t i = 0; i < step.graph.states.size(); ++i)
      EXPECT_EQ(session.states()[i].content_hash(), unguarded.states()[i].content_hash()) << step.graph.states[i].name;
    const std::vector<Tensor> before(session.states().begin(), session.states().end());
    for (const double wrong : {std::nan(""), HUGE_VAL}) {
      Tensor bad = random_numbers({4, 6}, 6);
      bad.set_double(7, wrong);
      const std::vector<Tensor> results = session.call({bad, target, rate(0.01)});
      EXPECT_FALSE(std::isfinite(results[0].get_double(0)));
      EXPECT_EQ(results[2].get_int(0), 0);
      for (size_t i = 0; i < before.size(); ++i)
        EXPECT_EQ(session.states()[i].content_hash(), before[i].content_hash()) << step.graph.states[i].name;
    }
  }
}

// sqrt has no finite derivative at 0: the loss is finite, and its gradients' norm is not.
TEST(GuardedStep, GradientsAreWatchedWhereTheirNormIsKnown) {
  Model m;
  const ValueId root = m.op("sqrt", {m.op("abs", {m.product(m.x(), "w", {6, 3})})});
  TrainingOptions options;
  options.loss = LossKind::kMeanSquaredError;
  options.guarded = true;
  options.clip_norm = 1;
  const TrainingStep step = step_of(m.with_output(root), options);
  GraphInterpreter interpreter;
  GraphSession session(step.graph, interpreter);
  const std::vector<Tensor> results = session.call({Tensor(DType::kF32, {4, 6}), random_numbers({4, 3}, 2), rate(0.1)});
  EXPECT_TRUE(std::isfinite(results[0].get_double(0)));
  EXPECT_EQ(results[2].get_int(0), 0);
  EXPECT_EQ(session.states()[0].content_hash(), step.graph.states[0].initial->content_hash());
}

TEST(NotFinite, TheFirstOperatorIsNamed) {
  Model m;
  const ValueId hidden = m.op("log", {m.product(m.x(), "w1", {6, 8})});
  TrainingOptions options;
  options.loss = LossKind::kMeanSquaredError;
  const TrainingStep step = step_of(m.with_output(m.product(hidden, "w2", {8, 3})), options);
  const FiniteProbe probe = finite_probe(step.graph, standard_ops());
  EXPECT_THAT(verify(probe.graph), testing::IsEmpty());
  const auto cause = [&](const Tensor& x) {
    std::vector<Tensor> inputs = {x, random_numbers({4, 3}, 2), rate(0.1)};
    for (const State& state : step.graph.states) {
      const TensorType& type = step.graph.type(step.graph.inputs[inputs.size()]);
      inputs.push_back(state.initial ? *state.initial : Tensor(type.dtype, type.dims()));
    }
    GraphInterpreter interpreter;
    std::vector<int64_t> found;
    for (const Tensor& answer : interpreter.evaluate(probe.graph, inputs)) found.push_back(answer.get_int(0));
    return first_not_finite(step.graph, probe, found);
  };
  EXPECT_EQ(cause(Tensor(DType::kF32, {4, 6})), "log 'log' is the first operator whose result has infinite numbers");
  EXPECT_EQ(cause(random_numbers({4, 6}, 3)), "log 'log' is the first operator whose result has NaN");
  Tensor huge(DType::kF32, {4, 6});
  for (int64_t i = 0; i < 24; ++i) huge.set_double(i, 3e38);
  EXPECT_THAT(cause(huge), testing::StartsWith("matmul 'w1.product' is the first operator"));
}

TEST(TrainingStep, ClassesMayBeLast) {
  Model last(DType::kF64);
  const ValueId y = last.op("reshape", {last.product(last.x(), "w", {6, 6})}, {{"shape", make_shape({4, 2, 3})}});
  const Graph model = last.with_output(y);
  Model second(DType::kF64);
  const ValueId z = second.op("reshape", {second.product(second.x(), "w", {6, 6})}, {{"shape", make_shape({4, 2, 3})}});
  const Graph turned = second.with_output(second.op("transpose", {z}, {{"perm", Ints{0, 2, 1}}}));
  TrainingOptions options;
  options.label_smoothing = 0.1;
  const TrainingStep want = step_of(turned, options);
  options.classes_last = true;
  const TrainingStep got = step_of(model, options);
  GraphInterpreter interpreter;
  GraphSession a(want.graph, interpreter), b(got.graph, interpreter);
  const Tensor x = random_numbers({4, 6}, 3, DType::kF64);
  Tensor target(DType::kI64, {4, 2});
  for (int64_t i = 0; i < 8; ++i) target.set_int(i, i % 3);
  for (int t = 0; t < 3; ++t) {
    const auto expected = a.call({x, target, rate(0.1)}), found = b.call({x, target, rate(0.1)});
    EXPECT_NEAR(found[0].get_double(0), expected[0].get_double(0), 1e-12);
    EXPECT_EQ(found[1].get_int(0), expected[1].get_int(0));
  }
}

TEST(TrainingStep, SomeTargetsAreIgnored) {
  const Graph model = perceptron(DType::kF64);
  TrainingOptions options;
  options.ignored = -100;
  const TrainingStep step = step_of(model, options);
  GraphInterpreter interpreter;
  GraphSession some(step.graph, interpreter), other(step.graph, interpreter);
  Tensor x = random_numbers({4, 6}, 3, DType::kF64);
  const double loss = some.call({x, classes({0, -100, 2, -100}), rate(0.1)})[0].get_double(0);
  for (const int64_t row : {1, 3})
    for (int64_t i = 0; i < 6; ++i) x.set_double(6 * row + i, 7);  // counts nothing
  EXPECT_NEAR(other.call({x, classes({0, -100, 2, -100}), rate(0.1)})[0].get_double(0), loss, 1e-12);
  for (int64_t i = 0; i < 48; ++i) EXPECT_NEAR(some.states()[0].get_double(i), other.states()[0].get_double(i), 1e-12);
}

TEST(Dropout, ElementsFollowFromSeedStepAndPlace) {
  for (const double ratio : {0.0, 0.25, 0.5, 1.0}) {
    SCOPED_TRACE(ratio);
    Model m(DType::kF64);
    const ValueId first = m.composite("dropout", {m.x()}, {{"ratio", ratio}});
    const ValueId second = m.composite("dropout", {first}, {{"ratio", 0.5}});
    const Graph model = m.with_output(m.op("mul", {second, m.weights("w", {6})}));
    TrainingOptions options;
    options.loss = LossKind::kMeanSquaredError;
    options.optimizer.kind = OptimizerKind::kSgd;
    options.seed = 0x123456789abcdef;
    const TrainingStep step = step_of(model, options);
    EXPECT_EQ(step.graph.states.back().name, "training.step");
    GraphInterpreter interpreter;
    GraphSession session(step.graph, interpreter);
    const Tensor x = random_numbers({4, 6}, 3, DType::kF64), target(DType::kF64, {4, 6});
    for (int64_t t = 0; t < 4; ++t) {
      const Tensor w = session.states()[0];
      double loss = 0;
      for (uint32_t i = 0; i < 24; ++i) {
        const auto stays = [&](int64_t which, double part) {
          return random_bits(options.seed, t, which, i) >= std::min(std::ldexp(part, 32), 4294967295.0);
        };
        double y = x.get_double(i);
        if (ratio > 0) y = ratio < 1 && stays(0, ratio) ? y / (1 - ratio) : 0;
        y = stays(1, 0.5) ? y / 0.5 : 0;
        y *= w.get_double(i % 6);
        loss += y * y / 24;
      }
      EXPECT_NEAR(session.call({x, target, rate(0.1)})[0].get_double(0), loss, 1e-12) << "step " << t;
    }
  }
}

// Of a loop in which an `if` drops: other elements in each iteration and each step, the same ones forwards as
// backwards.
TEST(Dropout, RegionsDropInEachIteration) {
  const char* text = R"(
graph @main(%x: f32[2,64]) -> (%y: f32[2,64]) {
  %w = constant {value = splat<f32[64] 1>} : f32[64]
  %one = constant {value = splat<f32[2,64] 1>} : f32[2,64]
  %yes = constant {value = dense<bool[] true>} : bool[]
  %s, %p = loop(%one, %x, %w, %yes) {counted = false, max_trip = [3], num_carried = 1} ({
    graph @body(%i: i64[], %a: f32[2,64], %m: f32[2,64], %v: f32[64], %c: bool[]) -> (%b: f32[2,64], %q: f32[2,64]) {
      %q = if(%c, %m, %v) ({
        graph @then(%t: f32[2,64], %u: f32[64]) -> (%z: f32[2,64]) {
          %d = composite(%t) {name = "dropout", ratio = 0.5} ({
            graph @dropout(%k: f32[2,64]) -> (%l: f32[2,64]) {
              %l = reshape(%k) {shape = [2,64]} : f32[2,64]
            }
          }) : f32[2,64]
          %z = mul(%d, %u) : f32[2,64]
        }
        graph @else(%t: f32[2,64], %u: f32[64]) -> (%z: f32[2,64]) {
          %z = mul(%t, %u) : f32[2,64]
        }
      }) : f32[2,64]
      %b = mul(%a, %q) : f32[2,64]
    }
  }) : f32[2,64], f32[3,2,64]
  %y = reduce(%p) {axes = [0], keepdims = false, kind = "sum"} : f32[2,64]
}
)";
  const Graph model = parse_graph(text, standard_ops());
  EXPECT_TRUE(has_dropouts(model));
  EXPECT_FALSE(has_dropouts(without_dropouts(model)));
  TrainingOptions options;
  options.loss = LossKind::kMeanSquaredError;
  options.seed = 7;
  options.optimizer.kind = OptimizerKind::kSgd;
  options.frozen = {"one"};
  const TrainingStep made = step_of(model, options);
  // With x = 1 and w = 1, y is 2 times how many of 3 iterations kept the element; targets 0: the loss is the mean of
  // squares, and w's gradient the sum of 2 y / 128 times y over both rows.
  GraphInterpreter interpreter;
  GraphSession session(made.graph, interpreter);
  for (int64_t step = 0; step < 2; ++step) {
    const Tensor w = session.states()[0];
    Tensor x(DType::kF32, {2, 64});
    const Tensor target(DType::kF32, {2, 64});
    for (int64_t e = 0; e < 128; ++e) x.set_double(e, 1);
    const double loss = session.call({x, target, rate(0.25)})[0].get_double(0);
    double squares = 0;
    std::vector<double> gradient(64);
    int64_t differ = 0;
    for (int64_t e = 0; e < 128; ++e) {
      int64_t kept = 0;
      bool first = false;
      for (int64_t i = 0; i < 3; ++i) {
        const int64_t number = (step + 1) * 0x9e3779b1 + i;
        const bool stays = random_bits(7, number, 0, static_cast<uint32_t>(e)) >= (1u << 31);
        if (i == 0) first = stays;
        differ += stays != first;
        kept += stays;
      }
      const double weight = w.get_double(e % 64), y = 2.0 * static_cast<double>(kept) * weight;
      squares += y * y / 128;
      gradient[static_cast<size_t>(e % 64)] += 2 * y / 128 * 2.0 * static_cast<double>(kept);
    }
    EXPECT_GT(differ, 50);
    EXPECT_NEAR(loss, squares, 1e-5);
    const Tensor next = session.states()[0];
    for (int64_t c = 0; c < 64; ++c)
      EXPECT_NEAR(next.get_double(c), w.get_double(c) - 0.25 * gradient[static_cast<size_t>(c)], 1e-5) << c;
  }
}

TEST(Dropout, AsManyAreDroppedAsIsAsked) {
  for (const double ratio : {0.1, 0.5, 0.9}) {
    int64_t dropped = 0, pairs = 0;
    constexpr int64_t kCount = 200'000;
    bool last = false;
    for (int64_t i = 0; i < kCount; ++i) {
      const bool is_dropped = random_bits(7, i / 1000, 2, static_cast<uint32_t>(i % 1000)) < std::ldexp(ratio, 32);
      dropped += is_dropped;
      pairs += is_dropped && last;
      last = is_dropped;
    }
    const double deviation = std::sqrt(ratio * (1 - ratio) / kCount);
    EXPECT_NEAR(static_cast<double>(dropped) / kCount, ratio, 5 * deviation);
    EXPECT_NEAR(static_cast<double>(pairs) / kCount, ratio * ratio, 8 * deviation);  // neighbours do not matter
  }
}

// Against the formula, and its gradient by differences.
// What the state of importance is: a moving average of the square of the sum of weights times gradients.
TEST(Pruning, ImportanceIsTheChangeOfTheLoss) {
  const Graph model = perceptron(DType::kF64);
  TrainingOptions options;
  options.optimizer.kind = OptimizerKind::kSgd;
  options.clip_norm = 1e-3;  // has no say
  const std::string weight = parameter_names(model, standard_ops())[0];
  for (const size_t dim : {0, 1}) {
    options.weighed = {{weight, dim}};
    const TrainingStep step = step_of(model, options);
    const size_t at = state_named(step.graph, weight + ".importance");
    GraphInterpreter interpreter;
    const Tensor x = random_numbers({4, 6}, 3, DType::kF64), y = classes({0, 1, 2, 1});
    // The gradients, by a step of plain descent whose rate is 1.
    TrainingOptions plain;
    plain.optimizer.kind = OptimizerKind::kSgd;
    const TrainingStep plain_step = step_of(model, plain);
    GraphSession descent(plain_step.graph, interpreter);
    const Tensor before = descent.states()[0];
    descent.call({x, y, rate(1)});
    const Tensor after = descent.states()[0];
    GraphSession session(step.graph, interpreter);
    session.call({x, y, rate(0.1)});
    const Tensor found = session.states()[at];
    const int64_t rows = before.dims()[0], columns = before.dims()[1];
    ASSERT_EQ(found.dims(), (Ints{dim == 0 ? rows : columns}));
    for (int64_t i = 0; i < found.num_elements(); ++i) {
      double sum = 0;
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c)
          if ((dim == 0 ? r : c) == i) {
            const int64_t e = r * columns + c;
            sum += before.get_double(e) * (before.get_double(e) - after.get_double(e));
          }
      EXPECT_NEAR(found.get_double(i), (1 - kImportanceMomentum) * sum * sum, 1e-5 * sum * sum + 1e-12);
    }
  }
}

// Features are pulled towards the teacher's: their distance falls, through a map that is learnt where widths differ.
TEST(Distillation, FeaturesFollowTheTeachers) {
  const auto network = [](int64_t width, uint64_t seed) {
    Model m(DType::kF32, seed);
    const ValueId h = m.product(m.x(), "first", {6, width});
    m.rename(h, "hidden");
    return m.with_output(m.product(m.composite("relu", {h}), "second", {width, 3}));
  };
  for (const int64_t width : {8, 5}) {
    SCOPED_TRACE(width);
    const Graph teacher = network(8, 9), model = network(width, 2);
    TrainingOptions options;
    options.optimizer.kind = OptimizerKind::kAdam;
    options.distillation.teacher = &teacher;
    options.distillation.weight = 0;
    options.distillation.features = {{"hidden", "hidden"}};
    options.distillation.feature_weight = 10;
    const TrainingStep step = step_of(model, options);
    const auto has = [&](const std::string& name) {
      return std::any_of(step.graph.states.begin(), step.graph.states.end(),
                         [&](const State& state) { return state.name == name; });
    };
    EXPECT_EQ(has("distill.hidden.weight"), width != 8);
    EXPECT_EQ(has("distill.hidden.bias.squares"), width != 8);
    EXPECT_EQ(std::count(step.parameters.begin(), step.parameters.end(), "distill.hidden.weight"), 0);
    GraphInterpreter interpreter;
    GraphSession session(step.graph, interpreter);
    const Tensor x = random_numbers({4, 6}, 3), y = classes({0, 1, 2, 1});
    const double first = session.call({x, y, rate(0.05)})[0].get_double(0);
    double last = first;
    for (int i = 0; i < 60; ++i) last = session.call({x, y, rate(0.05)})[0].get_double(0);
    EXPECT_LT(last, 0.15 * first);
  }
  const Graph teacher = network(8, 9), model = network(5, 2);
  TrainingOptions options;
  options.distillation.teacher = &teacher;
  options.distillation.features = {{"hidden", "nowhere"}};
  EXPECT_EQ(refusal(options, model), "TSR-2082: the model has no value 'nowhere' to distill");
  options.distillation.features = {{"nowhere", "hidden"}};
  EXPECT_EQ(refusal(options, model), "TSR-2082: the teacher has no value 'nowhere' to distill");
  options.distillation.feature_weight = -1;
  EXPECT_EQ(refusal(options, model), "TSR-2081: feature_weight = -1");
}

TEST(Distillation, ScoresFollowTheTeachers) {
  const Graph student = perceptron(DType::kF64, 1), teacher = perceptron(DType::kF64, 50);
  TrainingOptions options;
  options.optimizer.kind = OptimizerKind::kSgd;
  options.distillation = {&teacher, 0.75, 2};
  const TrainingStep step = step_of(student, options);
  EXPECT_THAT(step.parameters, testing::ElementsAre("w1", "b1", "w2", "b2"));
  GraphInterpreter interpreter;
  const Tensor x = random_numbers({4, 6}, 9, DType::kF64);
  const std::vector<int64_t> targets = {0, 2, 1, 1};
  const Tensor wanted = interpreter.evaluate(teacher, {x})[0];
  const auto probabilities = [](const Tensor& scores, int64_t row, double temperature) {
    std::vector<double> p(3);
    double sum = 0;
    for (int64_t c = 0; c < 3; ++c)
      sum += p[static_cast<size_t>(c)] = std::exp(scores.get_double(3 * row + c) / temperature);
    for (double& v : p) v /= sum;
    return p;
  };
  const auto loss_with = [&](const Tensor& b2) {
    const Graph changed = with_constants(student, {"b2"}, {std::make_shared<const Tensor>(b2)});
    const Tensor scores = interpreter.evaluate(changed, {x})[0];
    double loss = 0;
    for (int64_t n = 0; n < 4; ++n) {
      loss -= 0.25 * std::log(probabilities(scores, n, 1)[static_cast<size_t>(targets[static_cast<size_t>(n)])]) / 4;
      const auto p = probabilities(wanted, n, 2), q = probabilities(scores, n, 2);
      for (size_t c = 0; c < 3; ++c) loss += 0.75 * 4 * p[c] * std::log(p[c] / q[c]) / 4;
    }
    return loss;
  };
  GraphSession session(step.graph, interpreter);
  const Tensor b2 = *step.graph.states[3].initial;
  EXPECT_NEAR(session.call({x, classes(targets), rate(1)})[0].get_double(0), loss_with(b2), 1e-12);
  for (int64_t i = 0; i < 3; ++i) {
    Tensor up(DType::kF64, {3}), down(DType::kF64, {3});
    for (int64_t k = 0; k < 3; ++k) {
      up.set_double(k, b2.get_double(k) + (k == i ? 1e-5 : 0));
      down.set_double(k, b2.get_double(k) - (k == i ? 1e-5 : 0));
    }
    EXPECT_NEAR(b2.get_double(i) - session.states()[3].get_double(i), (loss_with(up) - loss_with(down)) / 2e-5, 1e-8);
  }
}

TEST(MixedPrecision, MastersKeepWhatSixteenBitsLose) {
  const Graph model = perceptron(DType::kF16);
  TrainingOptions options;
  options.optimizer.kind = OptimizerKind::kSgd;
  options.master_weights = true;
  const TrainingStep step = step_of(model, options);
  GraphInterpreter interpreter;
  GraphSession session(step.graph, interpreter);
  const Tensor before = *step.graph.states[0].initial;
  EXPECT_EQ(before.dtype(), DType::kF32);
  const Tensor x = random_numbers({4, 6}, 5, DType::kF16);
  for (int t = 0; t < 8; ++t) session.call({x, classes({0, 1, 2, 1}), rate(1e-5)});  // below half a digit of f16
  double moved = 0;
  for (int64_t i = 0; i < before.num_elements(); ++i)
    moved = std::max(moved, std::abs(session.states()[0].get_double(i) - before.get_double(i)));
  EXPECT_GT(moved, 0);
  EXPECT_LT(moved, 1e-3);
  // What was learnt goes back into the model in its own type.
  const Graph filled = with_constants(model, {"w1"}, {std::make_shared<const Tensor>(session.states()[0])});
  EXPECT_THAT(verify(filled), testing::IsEmpty());
}

TEST(MixedPrecision, ProductsOfSixteenBits) {
  const Graph model = perceptron();
  TrainingOptions options;
  options.optimizer.kind = OptimizerKind::kSgd;
  const TrainingStep exact = step_of(model, options);
  for (const DType products : {DType::kBF16, DType::kF16}) {
    options.products = products;
    const TrainingStep step = step_of(model, options);
    GraphInterpreter interpreter;
    GraphSession a(exact.graph, interpreter), b(step.graph, interpreter);
    const Tensor x = random_numbers({4, 6}, 5), target = classes({0, 1, 2, 1});
    for (int t = 0; t < 3; ++t) {
      const double want = a.call({x, target, rate(0.1)})[0].get_double(0);
      EXPECT_NEAR(b.call({x, target, rate(0.1)})[0].get_double(0), want, products == DType::kF16 ? 2e-3 : 2e-2);
    }
    EXPECT_EQ(b.states()[0].dtype(), DType::kF32);
    EXPECT_NE(a.states()[0].content_hash(), b.states()[0].content_hash());
  }
}

TEST(MixedPrecision, TheScaleOfALossFollowsItsGradients) {
  const Graph model = perceptron(DType::kF16);
  TrainingOptions options;
  options.optimizer.kind = OptimizerKind::kSgd;
  options.master_weights = true;
  options.loss_scale = std::ldexp(1, 20);  // more than f16 holds
  const TrainingStep step = step_of(model, options);
  EXPECT_EQ(step.graph.states.back().name, "training.step");
  const size_t scale = state_named(step.graph, "training.loss_scale"), done = step.graph.states.size() - 1,
               updates = state_named(step.graph, "training.updates");
  GraphInterpreter interpreter;
  GraphSession session(step.graph, interpreter);
  const Tensor x = random_numbers({4, 6}, 5, DType::kF16), target = classes({0, 1, 2, 1});
  double last = session.states()[scale].get_double(0);
  int skipped = 0;
  for (int t = 1; t <= 30; ++t) {
    const Tensor before = session.states()[0];
    const bool was_done = session.call({x, target, rate(0.01)})[2].get_int(0) != 0;
    const double now = session.states()[scale].get_double(0);
    EXPECT_EQ(now, was_done ? last : last / 2);
    EXPECT_EQ(session.states()[0].content_hash() == before.content_hash(), !was_done);
    last = now;
    skipped += !was_done;
    EXPECT_EQ(session.states()[done].get_int(0), t);
    EXPECT_EQ(session.states()[updates].get_int(0), t - skipped);
  }
  EXPECT_GT(skipped, 0);
  EXPECT_LT(skipped, 15);
  // Doubled after enough steps that were done.
  const size_t grown = state_named(step.graph, "training.scaled_steps");
  Tensor almost(DType::kI64, {});
  almost.set_int(0, kScaleGrowth - 1);
  session.set_state(grown, almost);
  if (session.call({x, target, rate(0.01)})[2].get_int(0) != 0) {
    EXPECT_EQ(session.states()[scale].get_double(0), 2 * last);
    EXPECT_EQ(session.states()[grown].get_int(0), 0);
  }
}

// A scaled loss gives the gradients of the loss.
TEST(MixedPrecision, GradientsAreThoseOfTheLossAlone) {
  TrainingOptions options;
  options.optimizer.kind = OptimizerKind::kSgd;
  const Graph model = perceptron(DType::kF64);
  const TrainingStep plain = step_of(model, options);
  options.loss_scale = 4096;
  options.clip_norm = 0.1;
  TrainingOptions clipped = options;
  clipped.loss_scale = 0;
  const TrainingStep scaled = step_of(model, options), alone = step_of(model, clipped);
  GraphInterpreter interpreter;
  GraphSession a(scaled.graph, interpreter), b(alone.graph, interpreter);
  const Tensor x = random_numbers({4, 6}, 5, DType::kF64);
  for (int t = 0; t < 3; ++t)
    EXPECT_NEAR(a.call({x, classes({0, 1, 2, 1}), rate(0.1)})[0].get_double(0),
                b.call({x, classes({0, 1, 2, 1}), rate(0.1)})[0].get_double(0), 1e-12);
  for (int64_t i = 0; i < 48; ++i) EXPECT_NEAR(a.states()[0].get_double(i), b.states()[0].get_double(i), 1e-12);
}

TEST(Pruning, MaskedWeightsStayZero) {
  const Graph model = perceptron();
  TrainingOptions options;
  options.masked = {"w1", "b2"};
  const TrainingStep step = step_of(model, options);
  const size_t mask = state_named(step.graph, "w1.mask");
  GraphInterpreter interpreter;
  GraphSession session(step.graph, interpreter);
  for (int64_t i = 0; i < 48; ++i) EXPECT_EQ(session.states()[mask].get_double(i), 1);
  Tensor half(DType::kF32, {6, 8});
  for (int64_t i = 0; i < 48; ++i) half.set_double(i, i % 2);
  session.set_state(mask, half);
  for (int t = 0; t < 3; ++t) session.call({random_numbers({4, 6}, 5), classes({0, 1, 2, 1}), rate(0.1)});
  for (int64_t i = 0; i < 48; ++i) EXPECT_EQ(session.states()[0].get_double(i) == 0, i % 2 == 0);
}

// ---- few bits ----

Tensor bytes_of_learnt(const Graph& model, const std::vector<std::string>& names, const std::vector<TensorPtr>& values,
                       const QuantizeOptions& options, const Tensor& x, bool as_integers) {
  GraphInterpreter interpreter;
  std::vector<std::string> weights, ranges;
  std::vector<TensorPtr> of_weights, of_ranges;
  for (size_t i = 0; i < names.size(); ++i) {
    const bool is_range = values[i]->dims().empty();
    (is_range ? ranges : weights).push_back(names[i]);
    (is_range ? of_ranges : of_weights).push_back(values[i]);
  }
  if (!as_integers)
    return interpreter.evaluate(with_constants(with_fake_quantization(model, options, standard_ops()), names, values),
                                {x})[0];
  const Graph learnt = with_constants(model, weights, of_weights);
  const Graph integers = with_integers(learnt, ranges, of_ranges, options, standard_ops());
  EXPECT_THAT(verify(integers), testing::IsEmpty());
  return interpreter.evaluate(integers, {x})[0];
}

TEST(FakeQuantization, IntegersComputeTheSameBits) {
  const Graph model = perceptron();
  for (const DType activations : {DType::kU8, DType::kI8})
    for (const int bits : {8, 4, 2})
      for (const Granularity granularity : {Granularity::kChannel, Granularity::kTensor}) {
        SCOPED_TRACE(fmt::format("{}, {} bits, {}", dtype_name(activations), bits, static_cast<int>(granularity)));
        const QuantizeOptions form{activations, granularity, bits};
        TrainingOptions options;
        const TrainingStep step = step_of(with_fake_quantization(model, form, standard_ops()), options);
        EXPECT_THAT(step.parameters, testing::ElementsAre("w1", "b1", "w2", "b2"));
        EXPECT_THAT(step.statistics,
                    testing::ElementsAre("w1.product.low", "w1.product.high", "w2.product.low", "w2.product.high"));
        GraphInterpreter interpreter;
        GraphSession session(step.graph, interpreter);
        double first = 0, last = 0;
        for (int t = 0; t < 60; ++t) {
          const double loss =
              session.call({random_numbers({4, 6}, 5), classes({0, 1, 2, 1}), rate(0.05)})[0].get_double(0);
          (t == 0 ? first : last) = loss;
        }
        EXPECT_LT(last, first / 2);
        std::vector<std::string> names = step.parameters;
        names.insert(names.end(), step.statistics.begin(), step.statistics.end());
        std::vector<TensorPtr> values;
        for (size_t i = 0; i < names.size(); ++i) values.push_back(std::make_shared<const Tensor>(session.states()[i]));
        const Tensor x = random_numbers({4, 6}, 77);
        const Tensor faked = bytes_of_learnt(model, names, values, form, x, false),
                     integers = bytes_of_learnt(model, names, values, form, x, true);
        EXPECT_EQ(faked.content_hash(), integers.content_hash());
      }
}

TEST(FakeQuantization, RangesFollowWhatIsSeen) {
  const TrainingStep step = step_of(with_fake_quantization(perceptron(), {}, standard_ops()), {});
  const size_t low = state_named(step.graph, "w1.product.low"), high = low + 1;
  GraphInterpreter interpreter;
  GraphSession session(step.graph, interpreter);
  Tensor x = random_numbers({4, 6}, 5);
  x.set_double(3, -4), x.set_double(4, 6);
  session.call({x, classes({0, 1, 2, 1}), rate(0.01)});
  EXPECT_FLOAT_EQ(static_cast<float>(session.states()[low].get_double(0)), -4);
  EXPECT_FLOAT_EQ(static_cast<float>(session.states()[high].get_double(0)), 6);
  x.set_double(3, -5), x.set_double(4, 8);
  session.call({x, classes({0, 1, 2, 1}), rate(0.01)});
  EXPECT_NEAR(session.states()[low].get_double(0), -4.01, 1e-5);
  EXPECT_NEAR(session.states()[high].get_double(0), 6.02, 1e-5);
}

// ---- fewer channels ----

// Convolutions with a normalisation, a pool, a depthwise one, a sum of two branches, and a product behind a flattening.
Graph image_network() {
  Graph graph;
  graph.name = "net";
  GraphBuilder b(graph);
  uint64_t seed = 3;
  const auto weights = [&](const std::string& name, const Ints& dims) {
    return b.add(standard_ops().get("constant"), {},
                 {{"value", std::make_shared<const Tensor>(random_numbers(dims, seed++))}}, name);
  };
  const auto op = [&](const char* name, std::vector<ValueId> operands, Attrs attrs = {}) {
    return b.add(standard_ops().get(name), std::move(operands), std::move(attrs));
  };
  const auto conv = [&](ValueId x, const std::string& name, const Ints& dims, int64_t groups) {
    const Ints pads(2, dims[2] / 2), ones = {1, 1};
    return op("conv", {x, weights(name, dims)},
              {{"strides", ones},
               {"pads_begin", pads},
               {"pads_end", pads},
               {"dilations", ones},
               {"input_dilations", ones},
               {"groups", groups}});
  };
  const auto composite = [&](const char* name, std::vector<ValueId> operands, Attrs attrs = {}) {
    return add_composite(b, standard_ops(), name, std::move(operands), std::move(attrs))[0];
  };
  const ValueId x = graph.add_input("x", {DType::kF32, make_shape({2, 3, 4, 4}), {}});
  ValueId v = conv(x, "first", {8, 3, 3, 3}, 1);
  v = composite(
      "batch_norm",
      {v, weights("scale", {8}), weights("shift", {8}), weights("mean", {8}), op("abs", {weights("variance", {8})})},
      {{"epsilon", 0.1}});
  v = composite("relu", {v});
  v = conv(v, "depthwise", {8, 1, 3, 3}, 8);
  v = op("add", {v, weights("bias", {8, 1, 1})});
  v = composite("relu", {v});
  const ValueId branch = conv(v, "branch", {8, 8, 1, 1}, 1);
  v = composite("relu", {op("add", {v, branch})});
  v = composite("max_pool", {v},
                {{"window", Ints{2, 2}},
                 {"strides", Ints{2, 2}},
                 {"pads_begin", Ints{0, 0}},
                 {"pads_end", Ints{0, 0}},
                 {"dilations", Ints{1, 1}}});
  v = op("reshape", {v}, {{"shape", make_shape({2, 32})}});
  v = composite("gemm", {v, weights("fc1", {6, 32}), weights("fc1.bias", {6})}, {{"trans_b", true}});
  v = composite("relu", {v});
  v = op("matmul", {v, weights("fc2", {6, 5})});
  graph.outputs = {v};
  graph.rename(v, "y");
  return graph;
}

TEST(Channels, WhatBelongsTogether) {
  const Graph model = image_network();
  const std::vector<ChannelGroup> groups = channel_groups(model, standard_ops());
  std::vector<std::string> found;
  for (const ChannelGroup& group : groups) {
    std::string text = fmt::format("{}:", group.channels);
    for (const ChannelDim& dim : group.dims)
      text += fmt::format(" {}[{}]{}{}", dim.constant, dim.dim, dim.repeat > 1 ? fmt::format("*{}", dim.repeat) : "",
                          dim.produces ? "!" : "");
    found.push_back(text);
  }
  EXPECT_THAT(found, testing::ElementsAre("8: first[0]! scale[0] shift[0] mean[0] variance[0] depthwise[0]! bias[0] "
                                          "branch[0]! branch[1] fc1[1]*4",
                                          "6: fc1[0]! fc1.bias[0] fc2[0]"));
}

TEST(Channels, ZerosCanBeCutOut) {
  const Graph model = image_network();
  const std::vector<ChannelGroup> groups = channel_groups(model, standard_ops());
  ASSERT_EQ(groups.size(), 2u);
  const KeptChannels kept = {{true, false, true, true, false, false, true, true},
                             {false, true, true, true, false, true}};
  // The channels that go are made zeros first.
  std::vector<std::string> names;
  std::vector<TensorPtr> values;
  for (const Node& node : model.nodes()) {
    if (node.op->kind != OpKind::kConstant) continue;
    const std::string name = model.value(node.outputs[0]).name;
    Tensor value = *node.attrs.get<TensorPtr>("value");
    Tensor zeroed(value.dtype(), value.dims());
    for (int64_t i = 0; i < value.num_elements(); ++i) zeroed.set_double(i, value.get_double(i));
    bool is_there = false;
    for (size_t g = 0; g < groups.size(); ++g)
      for (const ChannelDim& dim : groups[g].dims) {
        if (dim.constant != name) continue;
        is_there = true;
        int64_t inner = dim.repeat;
        for (size_t d = dim.dim + 1; d < value.dims().size(); ++d) inner *= value.dims()[d];
        for (int64_t i = 0; i < value.num_elements(); ++i)
          if (!kept[g][static_cast<size_t>(i / inner % groups[g].channels)]) zeroed.set_double(i, 0);
      }
    if (!is_there) continue;
    names.push_back(name);
    values.push_back(std::make_shared<const Tensor>(std::move(zeroed)));
  }
  const Graph zeroed = with_constants(model, names, values);
  const Graph cut = with_channels(zeroed, groups, kept, standard_ops());
  EXPECT_THAT(verify(cut), testing::IsEmpty());
  std::map<std::string, Ints> dims;
  for (const Node& node : cut.nodes())
    if (node.op->kind == OpKind::kConstant)
      dims[cut.value(node.outputs[0]).name] = node.attrs.get<TensorPtr>("value")->dims();
  EXPECT_EQ(dims["first"], (Ints{5, 3, 3, 3}));
  EXPECT_EQ(dims["depthwise"], (Ints{5, 1, 3, 3}));
  EXPECT_EQ(dims["branch"], (Ints{5, 5, 1, 1}));
  EXPECT_EQ(dims["fc1"], (Ints{4, 20}));
  EXPECT_EQ(dims["fc2"], (Ints{4, 5}));
  GraphInterpreter interpreter;
  const Tensor x = random_numbers({2, 3, 4, 4}, 21);
  const Tensor want = interpreter.evaluate(zeroed, {x})[0], got = interpreter.evaluate(cut, {x})[0];
  ASSERT_EQ(got.dims(), want.dims());
  for (int64_t i = 0; i < want.num_elements(); ++i) EXPECT_NEAR(got.get_double(i), want.get_double(i), 1e-5);
  // The names of inputs and outputs are the model's.
  EXPECT_EQ(cut.value(cut.outputs[0]).name, "y");
}

TEST(Channels, MagnitudesOfChannels) {
  ChannelGroup group;
  group.channels = 2;
  group.dims = {{"w", 0, 1, true}, {"v", 1, 2, true}, {"u", 0, 1, false}};
  std::map<std::string, TensorPtr> values;
  values["w"] = std::make_shared<const Tensor>(numbers({2, 2}, {1, -1, 3, 3}));
  values["v"] = std::make_shared<const Tensor>(numbers({1, 4}, {1, 2, 3, 4}));
  values["u"] = std::make_shared<const Tensor>(numbers({2}, {100, 0}));
  const std::vector<double> found = channel_magnitudes(group, values);
  EXPECT_NEAR(found[0], 2.0 / 8 + 3.0 / 10, 1e-12);
  EXPECT_NEAR(found[1], 6.0 / 8 + 7.0 / 10, 1e-12);
}

TEST(TrainingOptions, WhatIsRefused) {
  const Graph model = perceptron(), other = perceptron(DType::kF64);
  TrainingOptions options;
  options.distillation.teacher = &other;
  EXPECT_EQ(refusal(options, model), "TSR-2082: the teacher is f64[4,6] -> f64[4,3]");
  options.distillation = {&model, 1.5, 4};
  EXPECT_EQ(refusal(options, model), "TSR-2081: distill_weight = 1.5");
  options.distillation = {&model, 0.5, 0};
  EXPECT_EQ(refusal(options, model), "TSR-2081: temperature = 0");
  options = {};
  options.loss_scale = -1;
  EXPECT_EQ(refusal(options, model), "TSR-2081: loss_scale = -1");
  options = {};
  options.ignored = -100, options.label_smoothing = 0.1;
  EXPECT_EQ(refusal(options, model), "TSR-2081: label_smoothing of targets some of which are ignored");
}

}  // namespace
}  // namespace tessera
