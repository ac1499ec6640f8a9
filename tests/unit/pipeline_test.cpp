// Pipelines: schedules, where models are cut, and training steps of all stages by the interpreter of several ranks,
// whose states are those of one process to the last bit.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "graph/parser.h"
#include "graph/verify.h"
#include "interp/graph_interp.h"
#include "interp/ranks.h"
#include "ops/composites/composites.h"
#include "ops/op_table.h"
#include "support/error.h"
#include "train/pipeline.h"
#include "train/training_step.h"

namespace tessera {
namespace {

using testing::HasSubstr;

PipelineShape shape(int64_t stages, int64_t micro_batches, PipelineKind kind, int64_t chunks = 1) {
  PipelineShape result;
  result.stages = stages;
  result.micro_batches = micro_batches;
  result.kind = kind;
  result.chunks = chunks;
  return result;
}

std::vector<PipelineShape> many_shapes() {
  std::vector<PipelineShape> shapes;
  for (int64_t p = 1; p <= 5; ++p)
    for (int64_t m = 1; m <= 12; ++m) {
      shapes.push_back(shape(p, m, PipelineKind::kGPipe));
      shapes.push_back(shape(p, m, PipelineKind::kOneForwardOneBackward));
      for (int64_t v = 1; v <= 3 && m % p == 0; ++v) shapes.push_back(shape(p, m, PipelineKind::kInterleaved, v));
    }
  return shapes;
}

TEST(PipelineSchedule, EachChunkSeesEachMicroBatchOnce) {
  for (const PipelineShape& how : many_shapes()) {
    std::set<std::tuple<int64_t, int64_t, bool>> seen;
    for (int64_t stage = 0; stage < how.stages; ++stage)
      for (const PipelineSlot& slot : pipeline_slots(how, stage)) {
        EXPECT_EQ(how.stage_of(slot.chunk), stage);
        EXPECT_TRUE(seen.emplace(slot.chunk, slot.micro_batch, slot.forward).second);
      }
    EXPECT_EQ(std::ssize(seen), 2 * how.num_chunks() * how.micro_batches);
  }
}

TEST(PipelineSchedule, BubblesAreThoseOfTheFormulas) {
  for (const PipelineShape& how : many_shapes()) {
    SCOPED_TRACE(fmt::format("{} stages, {} micro-batches, kind {}, {} chunks", how.stages, how.micro_batches,
                             static_cast<int>(how.kind), how.chunks));
    const std::vector<ChunkTime> times(static_cast<size_t>(how.num_chunks()), ChunkTime{1, 2});
    const PipelineTime time = simulate_pipeline(how, times);  // ends: nobody waits forever
    const auto p = static_cast<double>(how.stages), m = static_cast<double>(how.micro_batches),
               v = static_cast<double>(how.chunks);
    EXPECT_NEAR(time.bubble(), (p - 1) / (v * m + p - 1), 1e-12);
    for (int64_t stage = 0; stage < how.stages; ++stage) {
      const int64_t alive = time.most_alive[static_cast<size_t>(stage)];
      if (how.kind == PipelineKind::kGPipe) EXPECT_EQ(alive, how.micro_batches);
      if (how.kind == PipelineKind::kOneForwardOneBackward)
        EXPECT_EQ(alive, std::min(how.micro_batches, how.stages - stage));
    }
  }
}

TEST(PipelineSchedule, MessagesTakeTime) {
  const PipelineShape naive = shape(2, 1, PipelineKind::kGPipe);
  EXPECT_DOUBLE_EQ(simulate_pipeline(naive, {{1, 2}, {3, 4}}, 0.5).seconds, 1 + 2 + 3 + 4 + 2 * 0.5);
  EXPECT_THROW(check_pipeline(shape(3, 4, PipelineKind::kInterleaved, 2)), UserError);
  EXPECT_THROW(check_pipeline(shape(2, 4, PipelineKind::kGPipe, 2)), UserError);
}

// All ways to cut.
double brute_force(size_t begin, size_t segments, size_t part, size_t parts,
                   const std::vector<std::vector<std::vector<double>>>& cost) {
  if (part + 1 == parts)
    return begin < segments ? cost[part][begin][segments] : std::numeric_limits<double>::infinity();
  double best = std::numeric_limits<double>::infinity();
  for (size_t end = begin + 1; end < segments; ++end)
    best = std::min(best, std::max(cost[part][begin][end], brute_force(end, segments, part + 1, parts, cost)));
  return best;
}

TEST(PipelineCuts, AreTheBestOfAll) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    const size_t segments = 1 + random() % 8, parts = 1 + random() % 4;
    std::vector<std::vector<std::vector<double>>> cost(
        parts, std::vector<std::vector<double>>(segments + 1, std::vector<double>(segments + 1)));
    for (auto& of_part : cost)
      for (auto& row : of_part)
        for (double& one : row)
          one = random() % 5 == 0 ? std::numeric_limits<double>::infinity() : static_cast<double>(random() % 100);
    const double want =
        segments < parts ? std::numeric_limits<double>::infinity() : brute_force(0, segments, 0, parts, cost);
    const std::vector<double> tie(segments + 1, 1);
    std::vector<size_t> cuts = best_cuts(segments, parts, cost, tie);
    if (want == std::numeric_limits<double>::infinity()) {
      EXPECT_TRUE(cuts.empty());
      continue;
    }
    ASSERT_EQ(cuts.size(), parts - 1);
    cuts.push_back(segments);
    double got = 0;
    for (size_t part = 0, begin = 0; part < parts; begin = cuts[part++])
      got = std::max(got, cost[part][begin][cuts[part]]);
    EXPECT_EQ(got, want);
  }
}

// A chain of layers with a value that skips one of them, and one that skips all.
Graph network(int64_t batch, int layers, std::mt19937& random) {
  const auto weights = [&](const char* dims, int64_t count) {
    std::string text = fmt::format("dense<f32{}", dims);
    for (int64_t i = 0; i < count; ++i) text += fmt::format(" {:.3f}", std::uniform_real_distribution<>(-1, 1)(random));
    return text + ">";
  };
  std::string text = fmt::format("graph @net(%x: f32[{0},6]) -> (%y: f32[{0},6]) {{\n", batch);
  std::string h = "x", first;
  for (int i = 0; i < layers; ++i) {
    text += fmt::format("  %w{0} = constant {{value = {1}}} : f32[6,6]\n  %b{0} = constant {{value = {2}}} : f32[6]\n",
                        i, weights("[6,6]", 36), weights("[6]", 6));
    text += fmt::format("  %p{0} = matmul(%{1}, %w{0}) {{transpose_a = false, transpose_b = false}} : f32[{2},6]\n", i,
                        h, batch);
    text += fmt::format("  %q{0} = add(%p{0}, %b{0}) : f32[{1},6]\n  %t{0} = tanh(%q{0}) : f32[{1},6]\n", i, batch);
    text += fmt::format("  %h{0} = add(%t{0}, %{1}) : f32[{2},6]\n", i, h, batch);
    h = fmt::format("h{}", i);
    if (i == 0) first = h;
  }
  text += fmt::format("  %y = mul(%{}, %{}) : f32[{},6]\n}}", h, first, batch);
  return parse_graph(text, standard_ops(), "net");
}

// Layers with what follows the batch, or is shared: the weight of the first is that of the last, transposed.
struct Features {
  bool tied = false, drops = false, normalised = false;
};
Graph network_with(const Features& features, int64_t batch, int layers, std::mt19937& random) {
  Graph graph;
  graph.name = "net";
  GraphBuilder builder(graph);
  const auto constant = [&](const std::string& name, std::vector<int64_t> dims, double low, double high) {
    Tensor tensor(DType::kF32, std::move(dims));
    for (int64_t i = 0; i < tensor.num_elements(); ++i)
      tensor.set_double(i, std::uniform_real_distribution<>(low, high)(random));
    return builder.add(standard_ops().get("constant"), {},
                       {{"value", std::make_shared<const Tensor>(std::move(tensor))}}, name);
  };
  ValueId h = graph.add_input("x", {DType::kF32, make_shape({batch, 6}), {}}), first = -1;
  for (int i = 0; i < layers; ++i) {
    builder.set_loc(fmt::format("layer{}", i));
    const auto own = [&](const char* what) { return fmt::format("{}{}", what, i); };
    const bool last = features.tied && i + 1 == layers;
    const ValueId w = last ? first : constant(own("w"), {6, 6}, -1, 1);
    if (i == 0) first = w;
    ValueId t = builder.add(standard_ops().get("matmul"), {h, w}, {{"transpose_a", false}, {"transpose_b", last}});
    t = builder.add(standard_ops().get("add"), {t, constant(own("b"), {6}, -1, 1)}, {});
    if (features.normalised)
      t = add_composite(builder, standard_ops(), "batch_norm",
                        {t, constant(own("scale"), {6}, 0.5, 1.5), constant(own("shift"), {6}, -1, 1),
                         constant(own("mean"), {6}, -1, 1), constant(own("variance"), {6}, 0.5, 1.5)},
                        {{"epsilon", 1e-3}})[0];
    t = builder.add(standard_ops().get("tanh"), {t}, {});
    if (features.drops) t = add_composite(builder, standard_ops(), "dropout", {t}, {{"ratio", 0.3}})[0];
    h = builder.add(standard_ops().get("add"), {t, h}, {});
  }
  graph.outputs = {h};
  graph.rename(h, "y");
  return graph;
}

struct Outcome {
  std::vector<double> losses;
  std::map<std::string, Tensor> states;
};

bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.dims() == b.dims() &&
         std::memcmp(a.bytes(), b.bytes(), static_cast<size_t>(a.num_bytes())) == 0;
}

Tensor samples(int64_t first, int64_t rows, int step) {
  Tensor x(DType::kF32, {rows, 6});
  for (int64_t r = 0; r < rows; ++r) {
    std::mt19937 random(static_cast<unsigned>(1000 * step + first + r));
    for (int64_t i = 0; i < 6; ++i) x.set_double(r * 6 + i, std::uniform_real_distribution<>(-2, 2)(random));
  }
  return x;
}
Tensor targets(int64_t first, int64_t rows, int step) {
  Tensor y(DType::kI64, {rows});
  for (int64_t r = 0; r < rows; ++r) y.set_int(r, (first + r + step) % 6);
  return y;
}

// Two steps of all ranks: `rows` rows of stages, each with its part of the batch.
Outcome train(TrainingOptions options, const Graph& part, int64_t rows) {
  const PipelineShape how = options.parallel.pipeline;
  const int64_t batch = *as_int(part.type(part.inputs[0]).shape[0]) * options.parallel.parts_of_rank();
  std::vector<Graph> graphs;
  std::vector<std::vector<Tensor>> states;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t stage = 0; stage < how.stages; ++stage) {
      options.parallel.rank = row;
      options.parallel.pipeline.stage = stage;
      graphs.push_back(training_step(part, options, standard_ops()).graph);
      EXPECT_THAT(verify(graphs.back()), testing::IsEmpty());
      const Graph& graph = graphs.back();
      states.emplace_back();
      for (size_t i = 0; i < graph.states.size(); ++i) {
        const TensorType& type = graph.type(graph.state_input(i));
        states.back().push_back(graph.states[i].initial ? *graph.states[i].initial : Tensor(type.dtype, type.dims()));
      }
    }
  Outcome outcome;
  for (int step = 0; step < 2; ++step) {
    std::vector<std::vector<Tensor>> inputs;
    for (size_t r = 0; r < graphs.size(); ++r) {
      const int64_t first = static_cast<int64_t>(r) / how.stages * batch;
      Tensor rate(DType::kF64, {});
      rate.set_double(0, 0.1);
      inputs.push_back({samples(first, batch, step), targets(first, batch, step), rate});
      inputs.back().insert(inputs.back().end(), states[r].begin(), states[r].end());
    }
    const std::vector<std::vector<Tensor>> outputs =
        graphs.size() == 1 ? std::vector<std::vector<Tensor>>(1, GraphInterpreter().evaluate(graphs[0], inputs[0]))
                           : evaluate_ranks(graphs, inputs);
    for (size_t r = 0; r < graphs.size(); ++r) {
      EXPECT_EQ(outputs[r][0].get_double(0), outputs[0][0].get_double(0));
      states[r].assign(outputs[r].end() - std::ssize(states[r]), outputs[r].end());
    }
    outcome.losses.push_back(outputs[0][0].get_double(0));
    outcome.losses.push_back(outputs[0][1].get_double(0));
  }
  for (size_t r = 0; r < graphs.size() && options.parallel.zero == 0; ++r)  // else ranks have parts
    for (size_t i = 0; i < states[r].size(); ++i) {
      const auto [known, is_new] = outcome.states.try_emplace(graphs[r].states[i].name, states[r][i]);
      EXPECT_TRUE(is_new || same_bytes(known->second, states[r][i])) << graphs[r].states[i].name;
    }
  return outcome;
}

void expect_same(const Outcome& got, const Outcome& want) {
  EXPECT_EQ(got.losses, want.losses);
  ASSERT_EQ(got.states.size(), want.states.size());
  for (const auto& [name, tensor] : want.states) {
    ASSERT_TRUE(got.states.contains(name)) << name;
    EXPECT_TRUE(same_bytes(got.states.at(name), tensor)) << name;
  }
}

TEST(PipelineStep, HasTheBitsOfOneProcess) {
  std::mt19937 random(5);
  constexpr int kLayers = 5;
  const Graph part = network(2, kLayers, random);
  for (const PipelineShape& how : {shape(2, 4, PipelineKind::kGPipe), shape(2, 4, PipelineKind::kOneForwardOneBackward),
                                   shape(3, 3, PipelineKind::kOneForwardOneBackward), shape(1, 4, PipelineKind::kGPipe),
                                   shape(2, 1, PipelineKind::kGPipe), shape(2, 4, PipelineKind::kInterleaved, 2),
                                   shape(4, 7, PipelineKind::kOneForwardOneBackward)})
    for (const int64_t rows : {1, 2}) {
      if (rows > 1 && (how.micro_batches & (how.micro_batches - 1)) != 0) continue;
      SCOPED_TRACE(fmt::format("{} stages, {} micro-batches, kind {}, {} chunks, {} rows", how.stages,
                               how.micro_batches, static_cast<int>(how.kind), how.chunks, rows));
      TrainingOptions options;
      options.guarded = true;
      options.parallel.leaves = rows * how.micro_batches;
      const Outcome alone = train(options, part, 1);
      options.parallel.ranks = rows;
      options.parallel.pipeline = how;
      const ModelWithLoss forward = model_with_loss(part, options, standard_ops());
      const std::vector<CutPlace> places = cut_places(forward.graph, forward.num_batched, 1000);
      for (int round = 0; round < 3; ++round) {
        std::set<int64_t> cuts;
        while (std::ssize(cuts) + 1 < how.num_chunks()) cuts.insert(places[random() % places.size()].node);
        options.parallel.pipeline.cuts.assign(cuts.begin(), cuts.end());
        expect_same(train(options, part, rows), alone);
      }
    }
}

// Dropouts drop what one process drops, statistics are the mean of the parts', a weight of two stages follows both
// gradients; with ZeRO each row of stages has a part of the moments.
TEST(PipelineStep, HasTheBitsOfOneProcessWithWhatFollowsTheBatch) {
  std::mt19937 random(8);
  for (const Features& features : {Features{.tied = true}, Features{.drops = true}, Features{.normalised = true},
                                   Features{.tied = true, .drops = true, .normalised = true}})
    for (const PipelineShape& how :
         {shape(2, 4, PipelineKind::kGPipe), shape(3, 4, PipelineKind::kOneForwardOneBackward),
          shape(2, 2, PipelineKind::kInterleaved, 2), shape(1, 4, PipelineKind::kGPipe)})
      for (const int64_t rows : {1, 2})
        for (const int64_t zero : {0, 1, 2}) {
          const bool is_first = how.kind == PipelineKind::kGPipe && how.stages == 2;
          const bool has_all = features.tied && features.drops;
          // One feature alone in one shape, all of them in every one.
          const bool is_wanted =
              has_all ? (rows == 2 && (is_first || zero == 0)) : (is_first && rows == 1 && zero == 0);
          if (!is_wanted) continue;
          SCOPED_TRACE(fmt::format(
              "tied {} drops {} normalised {}: {} stages, {} micro-batches, {} chunks, {} rows, zero {}", features.tied,
              features.drops, features.normalised, how.stages, how.micro_batches, how.chunks, rows, zero));
          const Graph part = network_with(features, 2, 3 + (how.chunks - 1), random);
          TrainingOptions options;
          options.guarded = true;
          options.optimizer.kind = OptimizerKind::kAdam;
          options.parallel.leaves = rows * how.micro_batches;
          const Outcome alone = train(options, part, 1);
          options.parallel.ranks = rows;
          options.parallel.zero = zero;
          options.parallel.pipeline = how;
          const ModelWithLoss forward = model_with_loss(part, options, standard_ops());
          const std::vector<CutPlace> places = cut_places(forward.graph, forward.num_batched, 1000);
          std::set<int64_t> cuts;
          while (std::ssize(cuts) + 1 < how.num_chunks()) cuts.insert(places[random() % places.size()].node);
          options.parallel.pipeline.cuts.assign(cuts.begin(), cuts.end());
          const Outcome got = train(options, part, rows);
          if (zero == 0) expect_same(got, alone);
          EXPECT_EQ(got.losses, alone.losses);
          if (zero != 0 || !is_first) continue;
          // Without leaves each stage sends a sum: the same but for rounding.
          options.parallel.leaves = 0;
          const Outcome sums = train(options, part, rows);
          for (size_t i = 0; i < alone.losses.size(); ++i)
            EXPECT_NEAR(sums.losses[i], alone.losses[i], 1e-5 * std::max(1.0, std::abs(alone.losses[i])));
        }
}

// Data parallel without leaves drops what one process drops of the whole batch.
TEST(PipelineStep, RanksDropWhatOneProcessDrops) {
  std::mt19937 random(9);
  const Graph half = network_with({.drops = true}, 4, 2, random);
  std::mt19937 again(9);
  const Graph whole = network_with({.drops = true}, 8, 2, again);
  TrainingOptions options;
  const Outcome alone = train(options, whole, 1);
  options.parallel.ranks = 2;
  const Outcome shared = train(options, half, 2);
  for (size_t i = 0; i < alone.losses.size(); ++i) EXPECT_NEAR(shared.losses[i], alone.losses[i], 1e-5);
}

TEST(PipelineStep, ClipsByTheNormOfAllStages) {
  std::mt19937 random(6);
  const Graph part = network_with({.tied = true}, 2, 3, random);
  TrainingOptions options;
  options.clip_norm = 0.1;
  options.parallel.leaves = 2;
  const Outcome alone = train(options, part, 1);
  options.parallel.pipeline = shape(2, 2, PipelineKind::kGPipe);
  const ModelWithLoss forward = model_with_loss(part, options, standard_ops());
  const std::vector<CutPlace> places = cut_places(forward.graph, forward.num_batched, 1000);
  options.parallel.pipeline.cuts = {places[places.size() / 2].node};
  const Outcome got = train(options, part, 1);
  for (size_t i = 0; i < alone.losses.size(); ++i) EXPECT_NEAR(got.losses[i], alone.losses[i], 1e-5);
}

TEST(PipelineStep, RefusesWhatItCannotDo) {
  std::mt19937 random(7);
  TrainingOptions options;
  options.parallel.pipeline = shape(2, 2, PipelineKind::kGPipe);
  const auto refused = [&](const Graph& model) -> std::string {
    try {
      training_step(model, options, standard_ops());
    } catch (const UserError& error) {
      return error.diagnostic().id + " " + error.diagnostic().message;
    }
    return "";
  };
  const Graph part = network(2, 2, random);
  EXPECT_THAT(refused(part), HasSubstr("TSR-2086 0 cuts for 2 chunks"));
  options.parallel.pipeline.cuts = {100000};
  EXPECT_THAT(refused(part), HasSubstr("TSR-2086 a cut before node 100000"));
  options.parallel.pipeline.cuts = {1};
  options.parallel.zero = 3;
  EXPECT_THAT(refused(part), HasSubstr("TSR-2085 zero = 3 of a pipeline"));
  options.parallel.zero = 0;
  options.weighed = {{"w0", 0}};
  EXPECT_THAT(refused(part), HasSubstr("TSR-2086 importance of weights in a pipeline"));
}

}  // namespace
}  // namespace tessera
