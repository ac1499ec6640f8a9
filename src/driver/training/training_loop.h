// The loop around a compiled training step: batches in, losses out, tests and checkpoints in between.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "driver/engine/model.h"
#include "driver/training/training_data.h"
#include "driver/training/whole_states.h"
#include "train/data_parallel.h"

namespace tessera::inline driver {

// How the learning rate changes, step by step.
struct RateSchedule {
  enum class Kind : uint8_t { kConstant, kCosine, kLinear } kind = Kind::kConstant;
  double rate = 1e-3;
  int64_t warmup = 0;  // steps in which it grows from 0 to `rate`

  // Of step `step` (from 0) of `steps`; from `warmup` on it is `rate`, or falls to 0 at the end.
  double at(int64_t step, int64_t steps) const;
};

// The number of the state of this name, which the model has.
size_t state_named(const Model& model, const std::string& name);

struct LoopOptions {
  int64_t epochs = 20;
  uint64_t seed = 0;
  bool shuffled = true;  // else every epoch sees the samples in their order
  RateSchedule schedule;
  std::string checkpoint;            // written after each epoch and when interrupted; empty: none
  int64_t checkpoint_steps = 0;      // and after every so many steps; 0: not
  bool writes = true;                // it; false: other ranks only give their parts of states
  std::string model_hash, settings;  // what a checkpoint is of, and was made with
  int64_t classes = 0;               // that the model's scores are held against; 0: none
  std::optional<int64_t> ignored;    // the target of samples that count nothing
  bool classes_last = false;         // scores are [N, ..., classes]
  bool skips = false;                // steps that are not finite are left out, where the loss is scaled
  // Before the first step of an epoch (from 0).
  std::function<void(int64_t epoch)> at_epoch = nullptr;
  // What in a step, whose inputs and then states these are, first gave a number that is not finite: a sentence; empty:
  // not known.
  std::function<std::string(const std::vector<Tensor>& inputs)> find_not_finite = nullptr;
  DataParallel parallel = {};  // how the batch is shared, and which part is this process's
};

struct EpochReport {
  int64_t epoch = 0;  // from 1
  double loss = 0;    // the mean of its steps
  double train = 0;   // part of the samples seen that were right
  int64_t test_right = 0, test_total = 0;
  double test_loss = 0;  // without classes: the mean squared error
  double steps_per_second = 0;
};

struct LoopResult {
  std::vector<double> losses;   // of each step
  std::vector<double> seconds;  // that it took
  bool interrupted = false;
};

// The inputs of `step`, in order: the batch, its targets, the learning rate; results: loss, how many are right, and
// whether the step was done, as it is not where it has no finite loss (TrainingOptions::guarded).
// `inference` has a batch as its input, and the first of the step's states as its states; it may be null where nothing
// is tested. Of a batch that ranks share, a process reads its own parts; every one of them tests all samples.
class TrainingLoop {
 public:
  TrainingLoop(Model& step, WholeStates& states, Model* inference, const TrainingData& data,
               const LoopOptions& options);

  int64_t batch() const { return batch_ * options_.parallel.ranks; }  // of all ranks
  int64_t steps_per_epoch() const { return steps_per_epoch_; }
  int64_t steps_done() const;

  // States of a checkpoint. UserError TSR-6214 for the file, TSR-6234 for a checkpoint of something else.
  void resume(const std::string& path);
  void save(const std::string& path) const;

  // From where it stands to the end of the last epoch, or until `stop` is true. UserError TSR-5120 for a loss, or
  // gradients, that are no finite numbers; the states are those before the step then.
  LoopResult run(const std::atomic<bool>& stop, const std::function<void(const EpochReport&)>& on_epoch);
  // What a test of the parameters as they are gives.
  void test(EpochReport& report);

 private:
  // The samples of the parts of this rank, of the whole batch that begins at `begin`.
  void gather(const std::vector<int64_t>& rows, size_t begin);
  int64_t place_in_batch(int64_t sample) const;
  [[noreturn]] void refuse_step(int64_t number) const;

  Model& step_;
  WholeStates& states_;
  Model* inference_;
  const TrainingData& data_;
  const LoopOptions options_;
  Tensor samples_, targets_;                 // as rows of the model's types
  int64_t batch_ = 0, steps_per_epoch_ = 0;  // samples of this rank
  int64_t test_batch_ = 0;
  std::shared_ptr<std::vector<std::byte>> batch_bytes_, target_bytes_, test_bytes_;
  std::shared_ptr<double> rate_;
  std::vector<Tensor> inputs_;  // of the step
};

}  // namespace tessera::inline driver
