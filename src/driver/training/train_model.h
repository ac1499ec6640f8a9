// A training as it is asked for in words and numbers: what they mean, what is refused, the steps, and what is written.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>

#include "driver/engine/model.h"
#include "driver/options.h"
#include "driver/process_rank.h"
#include "driver/training/training_data.h"
#include "driver/training/training_loop.h"
#include "tessera/train.h"
#include "train/data_parallel.h"
#include "train/pipeline_schedule.h"

namespace tessera::inline driver {

// The processes that train together, this one among them.
struct TrainingGroup {
  ProcessRank process = {};
  PipelineShape pipeline = {};  // the stages that they are
  int64_t tensor = 1;           // so many share each layer
};

// What is known before the first step.
struct TrainingPlan {
  size_t num_parameters = 0;
  int64_t num_numbers = 0;                           // of all parameters
  int64_t parameter_bytes = 0, optimizer_bytes = 0;  // of states of this process
  int64_t memory_bytes = 0;                          // that its steps take, as planned: all states, and the arena
  size_t train = 0, test = 0;                        // samples
  int64_t steps_per_epoch = 0, batch = 0;
  int64_t steps_done = 0;  // of a checkpoint
  bool has_classes = false;
  DataParallel parallel;
  double compile_seconds = 0;
};

// Who listens, and what may end a training before its time. All may be null.
struct TrainingWatch {
  std::function<void()> compiles;  // the memory that compiling took is no part of the steps'
  std::function<void(const TrainingPlan&)> begins;
  std::function<void(const EpochReport&)> on_epoch;
  std::function<void(Model& step)> ends;  // the last one was done; it may run further ones
  const std::atomic<bool>* stop = nullptr;
};

struct TrainingOutcome {
  TrainingPlan plan;
  LoopResult loop;
  EpochReport last;
  int64_t steps_done = 0;
  std::optional<double> sparsity;  // of masked weights, where some are
};

// UserError TSR-4062 where a file would be written that is read, or written twice: the settings', the output and
// `more`. `data`: further files that are read.
void refuse_files_of_training(const std::string& model, const std::string& output, const TrainSettings& settings,
                              const std::vector<std::string>& data = {}, const std::vector<std::string>& more = {});

// Writes `output`, a module, FILE.onnx or FILE.graph, unless it is empty or the training was interrupted and not by
// its watch alone; `keep_interrupted` writes it all the same. Of several processes the first one writes. UserError
// TSR-4080 for words and numbers that make no sense, and what docs/errors.md has for models, data and steps.
TrainingOutcome train_model(const std::string& model, const std::string& output, const TrainSettings& settings,
                            const TrainingData& data, const DriverOptions& driver, const TrainingGroup& group,
                            const TrainingWatch& watch, bool keep_interrupted = false);

}  // namespace tessera::inline driver
