#include "driver/pipeline_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "diagnose/text_table.h"
#include "driver/compile_options.h"
#include "driver/engine/compiled_evaluator.h"
#include "driver/pass_runner.h"
#include "driver/pipeline.h"
#include "graph/subgraph.h"
#include "ops/op_table.h"
#include "ops/op_util.h"
#include "program/rematerialize.h"
#include "support/error.h"

namespace tessera::inline driver {
namespace {

constexpr size_t kMostPlaces = 48;       // that are looked at: pieces between them are lowered one by one
constexpr double kMeasureSeconds = 0.1;  // each piece
constexpr double kNever = std::numeric_limits<double>::infinity();

[[noreturn]] void refuse(const std::string& found, const std::string& legal, const std::string& hint = "") {
  throw UserError({.id = "TSR-2086", .message = found, .node = {}, .legal = legal, .hint = hint});
}

DriverOptions plain(const DriverOptions& compile) {
  DriverOptions options = compile;
  options.emit = Emit::kModule;
  return options;
}

// By the roofline, of kernels as they are lowered.
double predicted_seconds(Graph graph, const RankSpeed& speed, const DriverOptions& compile) {
  const DriverOptions options = plain(compile);
  PassRunner runner(options);
  int64_t applications = 0;
  const Target target = deciding_target(options.compile);  // it outlives the pipeline
  Pipeline pipeline(options, target, runner, applications);
  const Program program = pipeline.lower(pipeline.simplify(std::move(graph)));
  double seconds = 0;
  for (const KernelCall& call : program.calls) {
    const Kernel& kernel = program.kernels[static_cast<size_t>(call.kernel)];
    seconds += std::max(static_cast<double>(std::max<int64_t>(kernel.flops, 0)) / speed.operations_per_second,
                        static_cast<double>(std::max<int64_t>(kernel.bytes, 0)) / speed.memory_bytes_per_second);
  }
  return seconds;
}

double measured_seconds(const Graph& graph, CompiledEvaluator& evaluator) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal(0, 1);
  std::vector<Tensor> inputs;
  for (const ValueId input : graph.inputs) {
    Tensor tensor(graph.type(input).dtype, graph.type(input).dims());
    if (is_real(tensor.dtype()))
      for (int64_t i = 0; i < tensor.num_elements(); ++i) tensor.set_double(i, normal(random));
    inputs.push_back(std::move(tensor));
  }
  return evaluator.time(graph, inputs, kMeasureSeconds).median;
}

class Planner {
 public:
  Planner(const Graph& model, const TrainingOptions& training, const PipelineOptions& options,
          const DriverOptions& compile)
      : model_(model),
        training_(training),
        options_(options),
        compile_(compile),
        evaluator_(plain(compile), 1),
        forward_(model_with_loss(model, training, standard_ops())) {}

  std::vector<int64_t> cuts() {
    const PipelineShape& how = training_.parallel.pipeline;
    const auto chunks = static_cast<size_t>(how.num_chunks());
    if (chunks == 1) return {};
    const std::vector<CutPlace> places = cut_places(forward_.graph, forward_.num_batched, kMostPlaces);
    if (places.size() + 1 < chunks)
      refuse(fmt::format("the model can be cut at {} places, and there are {} chunks", places.size(), chunks),
             fmt::format("at most {} stages", places.size() + 1), "no parameter may be read on both sides of a cut");
    std::vector<int64_t> borders = {0};
    std::vector<double> tie = {0};
    for (const CutPlace& place : places) {
      borders.push_back(place.node);
      tie.push_back(static_cast<double>(place.bytes));
    }
    borders.push_back(std::ssize(forward_.graph.nodes()));
    const size_t segments = borders.size() - 1;
    std::vector<double> sums = {0};
    for (size_t i = 0; i < segments; ++i) {
      const ChunkTime time = time_of(borders[i], borders[i + 1]);
      sums.push_back(sums.back() + time.forward + time.backward);
    }
    std::vector<std::vector<std::vector<double>>> cost(
        chunks, std::vector<std::vector<double>>(segments + 1, std::vector<double>(segments + 1, kNever)));
    for (size_t c = 0; c < chunks; ++c)
      for (size_t begin = 0; begin < segments; ++begin)
        for (size_t end = begin + 1; end <= segments; ++end) cost[c][begin][end] = sums[end] - sums[begin];
    int64_t least = std::numeric_limits<int64_t>::max();  // of the largest stage's memory
    while (true) {
      const std::vector<size_t> best = best_cuts(segments, chunks, cost, tie);
      if (best.empty())
        refuse(fmt::format("{} of memory are too little for a stage",
                           bytes_text(static_cast<double>(options_.most_memory))),
               fmt::format("about {} a stage, or more stages", bytes_text(static_cast<double>(least))));
      std::vector<int64_t> cuts;
      for (const size_t cut : best) cuts.push_back(borders[cut]);
      if (options_.most_memory == 0) return cuts;
      std::vector<size_t> ends = best;
      ends.push_back(segments);
      bool fits = true;
      int64_t largest = 0;
      for (int64_t stage = 0; stage < how.stages; ++stage) {
        const int64_t bytes = stage_cost(cuts, stage).memory_bytes;
        largest = std::max(largest, bytes);
        if (bytes <= options_.most_memory) continue;
        fits = false;
        // What has these nodes and more needs as much and more.
        for (auto c = static_cast<size_t>(stage); c < chunks; c += static_cast<size_t>(how.stages))
          for (size_t begin = 0; begin <= (c == 0 ? 0 : best[c - 1]); ++begin)
            for (size_t end = ends[c]; end <= segments; ++end) cost[c][begin][end] = kNever;
      }
      least = std::min(least, largest);
      if (fits) return cuts;
    }
  }

  PipelinePlan plan() {
    PipelinePlan plan;
    plan.pipeline = training_.parallel.pipeline;
    if (plan.pipeline.cuts.empty()) plan.pipeline.cuts = cuts();
    const PipelineShape& how = plan.pipeline;
    stages_of_parameters(forward_.graph, forward_.num_batched, how);  // which checks them
    std::vector<int64_t> borders = {0};
    borders.insert(borders.end(), how.cuts.begin(), how.cuts.end());
    borders.push_back(std::ssize(forward_.graph.nodes()));
    int64_t over = 0;  // the cut that messages of a micro-batch go over
    for (size_t c = 0; c + 1 < borders.size(); ++c) {
      plan.times.push_back(time_of(borders[c], borders[c + 1]));
      plan.begins.push_back(forward_.graph.node(static_cast<NodeId>(borders[c])).loc);
      plan.alone_seconds += static_cast<double>(how.micro_batches) * (plan.times[c].forward + plan.times[c].backward);
    }
    for (const int64_t cut : how.cuts) {
      plan.places.push_back(place_at(cut));
      over = std::max(over, plan.places.back().bytes);
    }
    for (int64_t stage = 0; stage < how.stages; ++stage) {
      plan.stages.push_back(stage_cost(how.cuts, stage));
      for (int64_t c = stage; c < how.num_chunks(); c += how.stages)
        for (const int64_t cut : {c - 1, c})
          if (cut >= 0 && cut < std::ssize(how.cuts) && how.stages > 1)
            plan.stages.back().sent_bytes += how.micro_batches * plan.places[static_cast<size_t>(cut)].bytes;
    }
    plan.time = simulate_pipeline(
        how, plan.times, options_.speed.latency_seconds + static_cast<double>(over) / options_.speed.bytes_per_second);
    return plan;
  }

 private:
  ChunkTime time_of(int64_t begin, int64_t end) {
    const PipelineChunk chunk = pipeline_chunk(forward_.graph, forward_.num_batched, begin, end, standard_ops());
    const Graph& all = chunk.graph;
    const std::vector<ValueId> results(all.outputs.begin(),
                                       all.outputs.begin() + static_cast<std::ptrdiff_t>(chunk.results.size()));
    const Graph forward = needed_part(all, all.inputs, results);
    const auto seconds = [&](const Graph& graph) {
      return options_.measured ? measured_seconds(graph, evaluator_)
                               : predicted_seconds(graph, options_.speed, compile_);
    };
    ChunkTime time{seconds(forward), 0};
    time.backward = std::max(seconds(all) - time.forward, 0.0);
    return time;
  }

  CutPlace place_at(int64_t node) const {
    for (CutPlace& place : cut_places(forward_.graph, forward_.num_batched, forward_.graph.nodes().size()))
      if (place.node == node) return place;
    refuse(fmt::format("a cut before node {}, which divides nothing", node), "cuts of 'tessera parallelize'");
  }

  StageCost stage_cost(const std::vector<int64_t>& cuts, int64_t stage) const {
    TrainingOptions training = training_;
    training.parallel.pipeline.cuts = cuts;
    training.parallel.pipeline.stage = stage;
    TrainingStep made = training_step(model_, training, standard_ops());
    StageCost cost;
    for (const PlacedState& state : made.placed)
      if (std::find(state.stages.begin(), state.stages.end(), stage) != state.stages.end() &&
          std::find(made.parameters.begin(), made.parameters.end(), state.name) != made.parameters.end())
        cost.parameter_bytes += dtype_bytes(state.type.dtype, state.type.num_elements());
    const DriverOptions options = plain(compile_);
    PassRunner runner(options);
    int64_t applications = 0;
    const Target target = deciding_target(options.compile);
    Pipeline pipeline(options, target, runner, applications);
    const Program program = pipeline.schedule_and_plan(pipeline.lower(pipeline.simplify(std::move(made.graph))));
    cost.memory_bytes = session_bytes(program);
    return cost;
  }

  const Graph& model_;
  const TrainingOptions& training_;
  const PipelineOptions& options_;
  const DriverOptions& compile_;
  CompiledEvaluator evaluator_;
  const ModelWithLoss forward_;
};

}  // namespace

std::vector<int64_t> choose_cuts(const Graph& model, const TrainingOptions& training, const PipelineOptions& options,
                                 const DriverOptions& compile) {
  return Planner(model, training, options, compile).cuts();
}

PipelinePlan make_pipeline_plan(const Graph& model, const TrainingOptions& training, const PipelineOptions& options,
                                const DriverOptions& compile) {
  return Planner(model, training, options, compile).plan();
}

std::vector<RankSteps> stage_steps(const PipelinePlan& plan, int64_t rows) {
  const PipelineShape& how = plan.pipeline;
  std::vector<RankSteps> steps(static_cast<size_t>(how.stages));
  for (int64_t stage = 0; stage < how.stages; ++stage) {
    RankSteps& own = steps[static_cast<size_t>(stage)];
    for (const PipelineSlot& slot : pipeline_slots(how, stage)) {
      // Over the cut before `chunk`, or behind it; to or from the stage on its other side.
      const auto pass = [&](RankStep::Kind kind, bool before) {
        const int64_t cut = before ? slot.chunk - 1 : slot.chunk, other = before ? slot.chunk - 1 : slot.chunk + 1;
        if (other < 0 || other == how.num_chunks() || how.stage_of(other) == stage) return;
        own.push_back({.kind = kind,
                       .bytes = plan.places[static_cast<size_t>(cut)].bytes,
                       .peer = how.stage_of(other) - stage,
                       .message = 2 * (cut * how.micro_batches + slot.micro_batch) + (slot.forward ? 0 : 1)});
      };
      const ChunkTime& time = plan.times[static_cast<size_t>(slot.chunk)];
      pass(RankStep::Kind::kReceive, slot.forward);
      own.push_back({.kind = RankStep::Kind::kWork, .seconds = slot.forward ? time.forward : time.backward});
      pass(RankStep::Kind::kSend, !slot.forward);
    }
    if (rows > 1)
      own.push_back({.kind = RankStep::Kind::kCollective,
                     .collective = CollectiveKind::kAllReduce,
                     .axis = "data",
                     .bytes = plan.stages[static_cast<size_t>(stage)].parameter_bytes});
  }
  return steps;
}

std::string to_text(const PipelinePlan& plan) {
  const PipelineShape& how = plan.pipeline;
  const auto bytes = [](int64_t count) { return bytes_text(static_cast<double>(count)); };
  std::string text = fmt::format("{} stages, {} micro-batches, {}{}\n", how.stages, how.micro_batches,
                                 pipeline_kind_names()[static_cast<size_t>(how.kind)],
                                 how.chunks > 1 ? fmt::format(", {} chunks a stage", how.chunks) : "");
  for (size_t c = 0; c < plan.times.size(); ++c) {
    text += fmt::format("chunk {} on stage {}: from '{}', forward {:.3f} ms, backward {:.3f} ms", c,
                        how.stage_of(static_cast<int64_t>(c)), plan.begins[c], 1e3 * plan.times[c].forward,
                        1e3 * plan.times[c].backward);
    if (c < plan.places.size()) text += fmt::format("; gives {} on", bytes(plan.places[c].bytes));
    text += "\n";
  }
  for (size_t s = 0; s < plan.stages.size(); ++s)
    text +=
        fmt::format("stage {}: parameters {}, memory of a step {}, at most {} micro-batches alive, sends {} a step\n",
                    s, bytes(plan.stages[s].parameter_bytes), bytes(plan.stages[s].memory_bytes),
                    plan.time.most_alive[s], bytes(plan.stages[s].sent_bytes));
  text += fmt::format("predicted: {:.3f} ms a step without its update (alone {:.3f} ms), nothing to do for {:.1f} %\n",
                      1e3 * plan.time.seconds, 1e3 * plan.alone_seconds, 100 * plan.time.bubble());
  return text;
}

}  // namespace tessera::inline driver
