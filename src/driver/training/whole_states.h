// The states of a training step as a whole, where ranks have parts of them (TrainingStep::cut, TrainingStep::sharded),
// or stages of a pipeline have some each (TrainingStep::placed).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
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
  // All ranks make theirs at the same time. `made` is what `step` was compiled of. `gather` is train::gathering() of
  // gathered_bytes(), compiled; null where this rank has everything (has_everything()).
  WholeStates(Model& step, const TrainingStep& made, const DataParallel& parallel, std::unique_ptr<Model> gather);
  static bool has_everything(const TrainingStep& made, const DataParallel& parallel);

  size_t size() const { return infos_.size(); }
  const TensorInfo& info(size_t state) const { return infos_[state]; }
  size_t find(const std::string& name) const;  // REQUIRES: there is a state of this name
  // Others have it, or parts of it.
  bool is_shared(size_t state) const {
    return homes_[state].is_cut || homes_[state].dim || !homes_[state].stages.empty();
  }
  bool any_is_shared() const;
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
    bool is_cut = false;               // each rank of a batch has a part
    std::optional<size_t> dim = {};    // along which ranks that share layers have a part each
    std::vector<int64_t> stages = {};  // that have it; none: every one
  };
  bool is_here(const Home& home) const;
  int64_t part_bytes(size_t state) const;
  // The place of a rank among those whose parts are gathered.
  int64_t row_of(int64_t rank, int64_t stage, int64_t tensor_rank) const;
  // Runs for each piece of `bytes` bytes of what every rank has in `own` (null: nothing that counts).
  void gather(const std::byte* own, int64_t bytes,
              const std::function<void(int64_t begin, int64_t count, const std::byte* rows)>& take) const;
  void exchange_dims(const TrainingStep& made);
  std::vector<Home> homes_;
  std::shared_ptr<std::vector<std::byte>> part_;
};

}  // namespace tessera::inline driver
