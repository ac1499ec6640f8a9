// A plan for training a model in stages: where it is cut, what each stage costs, and what a step takes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dist/propagate.h"
#include "dist/simulate.h"
#include "driver/options.h"
#include "graph/graph.h"
#include "train/pipeline.h"
#include "train/training_step.h"

namespace tessera::inline driver {

struct PipelineOptions {
  RankSpeed speed;
  int64_t most_memory = 0;  // bytes of each stage's session: states and arena, as planned; 0: any
  bool measured = false;    // pieces of the model are run on this machine, else predicted by the roofline of `speed`
};

struct StageCost {
  int64_t parameter_bytes = 0;
  int64_t memory_bytes = 0;  // of its session
  int64_t sent_bytes = 0;    // in a step
};

struct PipelinePlan {
  PipelineShape pipeline;           // with its cuts
  std::vector<CutPlace> places;     // these
  std::vector<std::string> begins;  // by chunk: the node that it begins with
  std::vector<ChunkTime> times;     // by chunk
  std::vector<StageCost> stages;
  PipelineTime time;         // of a step
  double alone_seconds = 0;  // of all chunks and micro-batches, one after the other
};

// Where to cut: the least time of the slowest stage, by dynamic programming over the places where little goes across;
// of equal ones the one that sends least. Every rank finds the same, unless it measures. `training.parallel` says how
// many stages, chunks and micro-batches there are.
// UserError TSR-2086 where there are too few places, or too little memory.
std::vector<int64_t> choose_cuts(const Graph& model, const TrainingOptions& training, const PipelineOptions& options,
                                 const DriverOptions& compile);
// With the cuts of `training.parallel.pipeline`, or those that choose_cuts finds.
PipelinePlan make_pipeline_plan(const Graph& model, const TrainingOptions& training, const PipelineOptions& options,
                                const DriverOptions& compile);

std::string to_text(const PipelinePlan& plan);

// What each stage does in a step, for a simulation (dist/simulate.h): its slots, messages between stages, and the sums
// of gradients over `rows` rows of stages.
std::vector<RankSteps> stage_steps(const PipelinePlan& plan, int64_t rows);

}  // namespace tessera::inline driver
