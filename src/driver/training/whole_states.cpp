#include "driver/training/whole_states.h"

#include <algorithm>
#include <cstring>

#include "support/error.h"
#include "train/shards.h"

namespace tessera::inline driver {

int64_t elements_of(const TensorInfo& info) {
  int64_t count = 1;
  for (const int64_t d : info.dims) count *= d;
  return count;
}

int64_t gathered_bytes(const TrainingStep& step, const DataParallel& parallel) {
  constexpr int64_t kMost = 4 << 20;
  int64_t most = 1;
  for (const CutState& state : step.cut)
    most = std::max(most, dtype_bytes(state.whole.dtype, shard_size(state.whole.num_elements(), parallel.ranks)));
  for (const PlacedState& state : step.placed)
    most = std::max(most, dtype_bytes(state.type.dtype, state.type.num_elements()));
  return std::min(most, kMost);
}

bool WholeStates::has_everything(const TrainingStep& made, const DataParallel& parallel) {
  return made.cut.empty() && parallel.pipeline.stages == 1;
}

WholeStates::WholeStates(Model& step, const TrainingStep& made, const DataParallel& parallel,
                         std::unique_ptr<Model> gather)
    : step_(step), parallel_(parallel), gather_(std::move(gather)), infos_(step.states()) {
  for (size_t i = 0; i < infos_.size(); ++i) {
    homes_.push_back({i});
    for (const CutState& state : made.cut)
      if (state.name == infos_[i].name) homes_[i].is_cut = true, infos_[i].dims = state.whole.dims();
  }
  if (parallel.pipeline.stages > 1) {
    infos_.clear();
    homes_.clear();
    for (const PlacedState& state : made.placed) {
      const auto& own = step.states();
      const auto found =
          std::find_if(own.begin(), own.end(), [&](const TensorInfo& info) { return info.name == state.name; });
      homes_.push_back({static_cast<size_t>(found - own.begin()), state.is_cut, state.stages});
      check(!is_here(homes_.back()) || found != own.end(), "a stage has no state " + state.name);
      infos_.push_back({state.name, state.type.dtype, state.type.dims()});
    }
  }
  if (!gather_) return;
  const TensorInfo& input = gather_->inputs()[0];
  part_ = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(input.dims[0]));
  gather_->bind({Tensor(input.dtype, input.dims, part_, part_->data())});
}

bool WholeStates::is_here(const Home& home) const {
  return home.stages.empty() ||
         std::find(home.stages.begin(), home.stages.end(), parallel_.pipeline.stage) != home.stages.end();
}

size_t WholeStates::find(const std::string& name) const {
  for (size_t i = 0; i < infos_.size(); ++i)
    if (infos_[i].name == name) return i;
  throw InternalError("no state " + name);
}

Tensor WholeStates::get(size_t state) const {
  const Home& home = homes_[state];
  if (!is_shared(state)) return step_.state(home.number);
  const Tensor own = is_here(home) ? step_.state(home.number) : Tensor();
  Tensor whole(infos_[state].dtype, infos_[state].dims);
  // Rows of what is gathered: every rank's part, or that of the stage which has it.
  const int64_t all = whole.num_bytes(), chunk = std::ssize(*part_);
  const int64_t part =
      home.is_cut ? dtype_bytes(whole.dtype(), shard_size(whole.num_elements(), parallel_.ranks)) : all;
  const int64_t rows = home.is_cut ? parallel_.ranks : 1;
  // Ranks stand row by row of stages, where parts of all rows are gathered.
  const int64_t stages = parallel_.is_cut() ? parallel_.pipeline.stages : 1;
  const int64_t first_row = home.stages.empty() ? 0 : home.stages.front();
  for (int64_t begin = 0; begin < part; begin += chunk) {
    const int64_t size = std::min(chunk, part - begin);
    if (is_here(home)) std::memcpy(part_->data(), own.bytes() + begin, static_cast<size_t>(size));
    gather_->run();
    const std::byte* from = gather_->results()[0].bytes();
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t to = row * part + begin, count = std::min(size, all - to);
      if (count > 0)
        std::memcpy(whole.mutable_bytes() + to, from + (first_row + row * stages) * chunk, static_cast<size_t>(count));
    }
  }
  return whole;
}

void WholeStates::set(size_t state, const Tensor& whole) {
  const Home& home = homes_[state];
  if (is_here(home)) step_.set_state(home.number, home.is_cut ? own_shard(whole, parallel_) : whole);
}

}  // namespace tessera::inline driver
