// The states of a training step as a whole, where ranks have parts of them (TrainingStep::cut).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "driver/engine/model.h"
#include "train/data_parallel.h"
#include "train/training_step.h"

namespace tessera::inline driver {

// Of a tensor of known sizes.
int64_t elements_of(const TensorInfo& info);

// The most that is gathered of a rank at once.
int64_t gathered_bytes(const std::vector<CutState>& cut, const DataParallel& parallel);

class WholeStates {
 public:
  // `gather` is train::gathering() of gathered_bytes(), compiled; null where nothing is cut.
  WholeStates(Model& step, const std::vector<CutState>& cut, const DataParallel& parallel,
              std::unique_ptr<Model> gather);

  size_t size() const { return infos_.size(); }
  const TensorInfo& info(size_t state) const { return infos_[state]; }
  bool is_cut(size_t state) const { return is_cut_[state]; }
  // A copy. Of one that is cut, all ranks must ask at the same time.
  Tensor get(size_t state) const;
  void set(size_t state, const Tensor& whole);

 private:
  Model& step_;
  const DataParallel parallel_;
  std::unique_ptr<Model> gather_;
  std::vector<TensorInfo> infos_;
  std::vector<bool> is_cut_;
  std::shared_ptr<std::vector<std::byte>> part_;
};

}  // namespace tessera::inline driver
