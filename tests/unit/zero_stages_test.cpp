// Training steps of ranks that keep parts of moments, gradients and parameters (ZeRO), by the interpreter of several
// ranks: the states, put together, are those of ranks that keep all.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "graph/parser.h"
#include "graph/verify.h"
#include "interp/ranks.h"
#include "ops/op_table.h"
#include "support/error.h"
#include "train/shards.h"
#include "train/training_step.h"

namespace tessera {
namespace {

using testing::HasSubstr;

// Numbers of weights and biases that 2, 3 and 4 ranks divide, or do not, and one that has fewer than ranks.
Graph network(int64_t batch, std::mt19937& random) {
  const auto weights = [&](const char* shape, int64_t count) {
    std::string text = fmt::format("dense<f32{}", shape);
    for (int64_t i = 0; i < count; ++i) text += fmt::format(" {:.3f}", std::uniform_real_distribution<>(-1, 1)(random));
    return text + ">";
  };
  Graph graph =
      parse_graph(fmt::format(R"(
graph @net(%x: f32[{0},6]) -> (%y: f32[{0},3]) {{
  %w1 = constant {{value = {1}}} : f32[6,5]
  %b1 = constant {{value = {2}}} : f32[5]
  %w2 = constant {{value = {3}}} : f32[5,3]
  %s = constant {{value = {4}}} : f32[1]
  %a = matmul(%x, %w1) {{transpose_a = false, transpose_b = false}} : f32[{0},5]
  %c = add(%a, %b1) : f32[{0},5]
  %d = tanh(%c) : f32[{0},5]
  %e = mul(%d, %s) : f32[{0},5]
  %y = matmul(%e, %w2) {{transpose_a = false, transpose_b = false}} : f32[{0},3]
}})",
                              batch, weights("[6,5]", 30), weights("[5]", 5), weights("[5,3]", 15), weights("[1]", 1)),
                  standard_ops(), "net");
  return graph;
}

Tensor batch_of(int64_t rows, int64_t rank, int step) {
  std::mt19937 random(static_cast<unsigned>(100 * step + rank));
  Tensor x(DType::kF32, {rows, 6});
  for (int64_t i = 0; i < x.num_elements(); ++i) x.set_double(i, std::uniform_real_distribution<>(-2, 2)(random));
  return x;
}
Tensor targets_of(int64_t rows, int64_t rank, int step) {
  Tensor y(DType::kI64, {rows});
  for (int64_t i = 0; i < rows; ++i) y.set_int(i, (i + rank + step) % 3);
  return y;
}

TrainingOptions options_of(int64_t ranks, int64_t zero, int64_t rank) {
  TrainingOptions options;
  options.parallel = {.ranks = ranks, .leaves = 0, .zero = zero, .rank = rank};
  return options;
}

struct Outcome {
  std::vector<std::vector<double>> results;  // of each step
  std::map<std::string, Tensor> states;      // as a whole
  std::map<std::string, int64_t> kept;       // elements of a rank
};

// Three steps of all ranks, each with its own samples.
Outcome train(TrainingOptions options, int64_t ranks, int64_t zero, bool breaks = false) {
  constexpr int64_t kRows = 4;
  std::mt19937 random(7);
  const Graph model = network(kRows, random);
  std::vector<TrainingStep> steps;
  std::vector<std::vector<Tensor>> states(static_cast<size_t>(ranks));
  for (int64_t rank = 0; rank < ranks; ++rank) {
    options.parallel = {.ranks = ranks, .leaves = 0, .zero = zero, .rank = rank};
    steps.push_back(training_step(model, options, standard_ops()));
    const Graph& graph = steps.back().graph;
    EXPECT_THAT(verify(graph), testing::IsEmpty());
    for (size_t i = 0; i < graph.states.size(); ++i) {
      const TensorType& type = graph.type(graph.inputs[graph.inputs.size() - graph.states.size() + i]);
      states[static_cast<size_t>(rank)].push_back(graph.states[i].initial ? *graph.states[i].initial
                                                                          : Tensor(type.dtype, type.dims()));
    }
  }
  std::vector<Graph> graphs;
  for (const TrainingStep& step : steps) graphs.push_back(step.graph);
  Outcome outcome;
  for (int step = 0; step < 3; ++step) {
    std::vector<std::vector<Tensor>> inputs;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      Tensor rate(DType::kF64, {});
      rate.set_double(0, 0.1);
      Tensor x = batch_of(kRows, rank, step);
      if (breaks && step == 1 && rank == ranks - 1) x.set_double(3, 1e38 * 10);
      inputs.push_back({x, targets_of(kRows, rank, step), rate});
      for (const Tensor& state : states[static_cast<size_t>(rank)]) inputs.back().push_back(state);
    }
    const auto outputs = evaluate_ranks(graphs, inputs);
    const size_t results = outputs[0].size() - graphs[0].states.size();
    std::vector<double> seen;
    for (size_t r = 0; r < results; ++r)
      for (int64_t rank = 0; rank < ranks; ++rank) seen.push_back(outputs[static_cast<size_t>(rank)][r].get_double(0));
    outcome.results.push_back(seen);
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const auto& after = outputs[static_cast<size_t>(rank)];
      states[static_cast<size_t>(rank)].assign(after.begin() + static_cast<std::ptrdiff_t>(results), after.end());
    }
  }
  for (size_t i = 0; i < graphs[0].states.size(); ++i) {
    const std::string& name = graphs[0].states[i].name;
    outcome.kept[name] = states[0][i].num_elements();
    const auto cut = std::find_if(steps[0].cut.begin(), steps[0].cut.end(),
                                  [&](const CutState& state) { return state.name == name; });
    if (cut == steps[0].cut.end()) {
      for (const auto& of_rank : states)
        for (int64_t e = 0; e < of_rank[i].num_elements(); ++e)
          EXPECT_EQ(of_rank[i].get_double(e), states[0][i].get_double(e)) << name << " differs between ranks";
      outcome.states.emplace(name, states[0][i]);
      continue;
    }
    Tensor whole(cut->whole.dtype, cut->whole.dims());
    const int64_t size = shard_size(whole.num_elements(), ranks);
    for (int64_t e = 0; e < whole.num_elements(); ++e)
      whole.set_double(e, states[static_cast<size_t>(e / size)][i].get_double(e % size));
    outcome.states.emplace(name, whole);
  }
  return outcome;
}

void expect_alike(const Outcome& a, const Outcome& b, double tolerance) {
  for (size_t s = 0; s < a.results.size(); ++s) {
    ASSERT_EQ(a.results[s].size(), b.results[s].size());
    for (size_t r = 0; r < a.results[s].size(); ++r)
      EXPECT_TRUE(a.results[s][r] == b.results[s][r] ||
                  std::abs(a.results[s][r] - b.results[s][r]) <= tolerance * std::abs(a.results[s][r]) ||
                  (std::isnan(a.results[s][r]) && std::isnan(b.results[s][r])))
          << "step " << s << " result " << r << ": " << a.results[s][r] << ", " << b.results[s][r];
  }
  ASSERT_EQ(a.states.size(), b.states.size());
  for (const auto& [name, state] : a.states) {
    const Tensor& other = b.states.at(name);
    ASSERT_EQ(state.dims(), other.dims()) << name;
    for (int64_t e = 0; e < state.num_elements(); ++e)
      EXPECT_NEAR(state.get_double(e), other.get_double(e), tolerance) << name << "[" << e << "]";
  }
}

TEST(Zero, StagesGiveTheSameStates) {
  for (const OptimizerKind kind : {OptimizerKind::kSgd, OptimizerKind::kAdam, OptimizerKind::kAdamW,
                                   OptimizerKind::kRmsProp, OptimizerKind::kAdagrad})
    for (const int64_t ranks : {2, 3, 4}) {
      TrainingOptions options;
      options.optimizer.kind = kind;
      if (kind == OptimizerKind::kSgd) options.optimizer.momentum = 0.9;
      options.guarded = true;
      const Outcome all = train(options, ranks, 0);
      for (const int64_t zero : {1, 2, 3}) {
        SCOPED_TRACE(fmt::format("optimizer {}, {} ranks, zero {}", static_cast<int>(kind), ranks, zero));
        expect_alike(all, train(options, ranks, zero), 0);
      }
    }
}

TEST(Zero, WithNormsMasksAndScaledLosses) {
  for (const int64_t ranks : {2, 3}) {
    TrainingOptions options;
    options.clip_norm = 0.1;
    options.loss_scale = 1024;
    options.guarded = true;
    options.masked = {"w1", "b1"};
    options.optimizer.weight_decay = 0.01;
    const Outcome all = train(options, ranks, 0);
    for (const int64_t zero : {1, 2, 3}) {
      SCOPED_TRACE(fmt::format("{} ranks, zero {}", ranks, zero));
      expect_alike(all, train(options, ranks, zero), 2e-5);
    }
    // One rank's gradients that are not finite leave out the step of all.
    const Outcome broken = train(options, ranks, 0, true);
    for (const int64_t zero : {1, 2, 3}) expect_alike(broken, train(options, ranks, zero, true), 2e-5);
    EXPECT_EQ(broken.states.at("training.updates").get_int(0), 2);
  }
}

TEST(Zero, RanksKeepTheirParts) {
  TrainingOptions options;
  const std::map<std::string, int64_t> whole = train(options, 4, 0).kept;
  for (const int64_t zero : {1, 2, 3}) {
    const std::map<std::string, int64_t> kept = train(options, 4, zero).kept;
    for (const auto& [name, elements] : whole) {
      const bool is_moment = name.ends_with(".mean") || name.ends_with(".squares");
      const bool is_cut = is_moment || (zero == 3 && !name.starts_with("training"));
      EXPECT_EQ(kept.at(name), is_cut ? shard_size(elements, 4) : elements) << name << " at stage " << zero;
    }
  }
}

TEST(Zero, PartsOfTensors) {
  Tensor whole(DType::kF32, {5});
  for (int64_t i = 0; i < 5; ++i) whole.set_double(i, static_cast<double>(i + 1));
  const auto part = [&](int64_t rank, int64_t ranks) {
    const Tensor shard = own_shard(whole, {.ranks = ranks, .leaves = 0, .zero = 1, .rank = rank});
    std::vector<double> numbers;
    for (int64_t i = 0; i < shard.num_elements(); ++i) numbers.push_back(shard.get_double(i));
    return numbers;
  };
  EXPECT_EQ(part(0, 2), (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(part(1, 2), (std::vector<double>{4, 5, 0}));
  EXPECT_EQ(part(2, 4), (std::vector<double>{5, 0}));
  EXPECT_EQ(part(3, 4), (std::vector<double>{0, 0}));
  EXPECT_EQ(part(6, 8), (std::vector<double>{0}));
}

TEST(Zero, Refusals) {
  std::mt19937 random(1);
  const Graph model = network(4, random);
  const auto refused = [&](TrainingOptions options) -> std::string {
    try {
      training_step(model, options, standard_ops());
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refused(options_of(2, 4, 0)), HasSubstr("TSR-2085"));
  TrainingOptions options = options_of(2, 1, 0);
  options.parallel.leaves = 4;
  options.clip_norm = 1;
  EXPECT_THAT(refused(options), HasSubstr("TSR-2085"));
}

}  // namespace
}  // namespace tessera
