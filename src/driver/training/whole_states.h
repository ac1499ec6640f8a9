// The states of a training step as a whole, where ranks have parts of them (TrainingStep::cut), or stages of a pipeline
// have some each (TrainingStep::placed).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "driver/engine/model.h"
#include "train/data_parallel.h"
#include "train/training_step.h"

namespace tessera::inline driver {

// Of a tensor of known sizes.
int64_t elements_of(const TensorInfo& info);

// The most that is gathered of a rank at once.
int64_t gathered_bytes(const TrainingStep& step, const DataParallel& parallel);

class WholeStates {
 public:
  // `made` is what `step` was compiled of. `gather` is train::gathering() of gathered_bytes(), compiled; null where
  // this rank has everything (has_everything()).
  WholeStates(Model& step, const TrainingStep& made, const DataParallel& parallel, std::unique_ptr<Model> gather);
  static bool has_everything(const TrainingStep& made, const DataParallel& parallel);

  size_t size() const { return infos_.size(); }
  const TensorInfo& info(size_t state) const { return infos_[state]; }
  size_t find(const std::string& name) const;  // REQUIRES: there is a state of this name
  // Others have it, or parts of it.
  bool is_shared(size_t state) const { return homes_[state].is_cut || !homes_[state].stages.empty(); }
  // A copy. Of one that is shared, all ranks must ask at the same time.
  Tensor get(size_t state) const;
  void set(size_t state, const Tensor& whole);

 private:
  Model& step_;
  const DataParallel parallel_;
  std::unique_ptr<Model> gather_;
  std::vector<TensorInfo> infos_;
  struct Home {
    size_t number = 0;                 // of the step's states, where this rank has it
    bool is_cut = false;               // each rank has a part
    std::vector<int64_t> stages = {};  // that have it; none: every one
  };
  bool is_here(const Home& home) const;
  std::vector<Home> homes_;
  std::shared_ptr<std::vector<std::byte>> part_;
};

}  // namespace tessera::inline driver
