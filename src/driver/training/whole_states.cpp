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
  for (const ShardedState& state : step.sharded)
    most = std::max(most, dtype_bytes(state.whole.dtype, state.whole.num_elements() / parallel.tensor));
  for (const PlacedState& state : step.placed)
    most = std::max(most, dtype_bytes(state.type.dtype, state.type.num_elements()));
  return std::min(most, kMost);
}

bool WholeStates::has_everything(const TrainingStep& made, const DataParallel& parallel) {
  return made.cut.empty() && made.sharded.empty() && parallel.pipeline.stages == 1;
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
      homes_.push_back({static_cast<size_t>(found - own.begin()), state.is_cut, std::nullopt, state.stages});
      check(!is_here(homes_.back()) || found != own.end(), "a stage has no state " + state.name);
      infos_.push_back({state.name, state.type.dtype, state.type.dims()});
    }
  }
  if (!gather_) return;
  const TensorInfo& input = gather_->inputs()[0];
  part_ = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(input.dims[0]));
  gather_->bind({Tensor(input.dtype, input.dims, part_, part_->data())});
  if (parallel.tensor > 1) exchange_dims(made);
}

// Every rank of a stage knows how its states lie, and tells the others.
void WholeStates::exchange_dims(const TrainingStep& made) {
  std::vector<std::byte> own(homes_.size(), std::byte{0});  // 0: all have copies; else a dimension, from 1
  for (size_t i = 0; i < homes_.size(); ++i)
    for (const ShardedState& state : made.sharded)
      if (state.name == infos_[i].name)
        own[i] = static_cast<std::byte>(state.dim + 1), infos_[i].dims = state.whole.dims();
  gather(own.data(), std::ssize(own), [&](int64_t begin, int64_t count, const std::byte* rows) {
    for (int64_t i = 0; i < count; ++i) {
      Home& home = homes_[static_cast<size_t>(begin + i)];
      const int64_t stage = home.stages.empty() ? parallel_.pipeline.stage : home.stages.front();
      const auto dim = static_cast<size_t>(rows[row_of(0, stage, 0) * std::ssize(*part_) + i]);
      if (dim > 0) home.dim = dim - 1;
    }
  });
}

bool WholeStates::is_here(const Home& home) const {
  return home.stages.empty() ||
         std::find(home.stages.begin(), home.stages.end(), parallel_.pipeline.stage) != home.stages.end();
}

bool WholeStates::any_is_shared() const {
  for (size_t i = 0; i < size(); ++i)
    if (is_shared(i)) return true;
  return false;
}

size_t WholeStates::find(const std::string& name) const {
  for (size_t i = 0; i < infos_.size(); ++i)
    if (infos_[i].name == name) return i;
  throw InternalError("no state " + name);
}

int64_t WholeStates::part_bytes(size_t state) const {
  const Home& home = homes_[state];
  const int64_t elements = elements_of(infos_[state]);
  return dtype_bytes(infos_[state].dtype, home.is_cut ? shard_size(elements, parallel_.ranks)
                                          : home.dim  ? elements / parallel_.tensor
                                                      : elements);
}

// Ranks that share layers stand side by side, those of a row of stages behind each other: gathering() gathers along
// all axes that parts lie along.
int64_t WholeStates::row_of(int64_t rank, int64_t stage, int64_t tensor_rank) const {
  const bool has_rows = parallel_.is_cut() || parallel_.tensor > 1;
  return ((has_rows ? rank : 0) * parallel_.pipeline.stages + stage) * parallel_.tensor + tensor_rank;
}

void WholeStates::gather(const std::byte* own, int64_t bytes,
                         const std::function<void(int64_t, int64_t, const std::byte*)>& take) const {
  const int64_t chunk = std::ssize(*part_);
  for (int64_t begin = 0; begin < bytes; begin += chunk) {
    const int64_t count = std::min(chunk, bytes - begin);
    if (own) std::memcpy(part_->data(), own + begin, static_cast<size_t>(count));
    gather_->run();
    take(begin, count, gather_->results()[0].bytes());
  }
}

namespace {

// Bytes of a tensor that lie side by side in a part of it along `dim`, of so many parts.
int64_t run_bytes(const TensorInfo& whole, size_t dim, int64_t parts) {
  int64_t elements = whole.dims[dim] / parts;
  for (size_t d = dim + 1; d < whole.dims.size(); ++d) elements *= whole.dims[d];
  return dtype_bytes(whole.dtype, elements);
}

// For bytes begin .. begin + count of part `number`: copy(place in the whole, place behind `begin`, bytes).
template <typename Copy>
void for_each_run(int64_t run, int64_t parts, int64_t number, int64_t begin, int64_t count, const Copy& copy) {
  for (int64_t at = 0; at < count;) {
    const int64_t place = begin + at, size = std::min(run - place % run, count - at);
    copy((place / run * parts + number) * run + place % run, at, static_cast<size_t>(size));
    at += size;
  }
}

}  // namespace

Tensor WholeStates::get(size_t state) const {
  const Home& home = homes_[state];
  if (!is_shared(state)) return step_.state(home.number);
  const Tensor own = is_here(home) ? step_.state(home.number) : Tensor();
  Tensor whole(infos_[state].dtype, infos_[state].dims);
  const int64_t all = whole.num_bytes(), part = part_bytes(state);
  const int64_t stage = home.stages.empty() ? parallel_.pipeline.stage : home.stages.front();
  const int64_t run = home.dim ? run_bytes(infos_[state], *home.dim, parallel_.tensor) : 0;
  gather(is_here(home) ? own.bytes() : nullptr, part, [&](int64_t begin, int64_t count, const std::byte* rows) {
    const auto row = [&](int64_t rank, int64_t tensor_rank) {
      return rows + row_of(rank, stage, tensor_rank) * std::ssize(*part_);
    };
    if (home.dim) {
      for (int64_t r = 0; r < parallel_.tensor; ++r)
        for_each_run(run, parallel_.tensor, r, begin, count, [&](int64_t to, int64_t from, size_t size) {
          std::memcpy(whole.mutable_bytes() + to, row(0, r) + from, size);
        });
      return;
    }
    for (int64_t r = 0; r < (home.is_cut ? parallel_.ranks : 1); ++r) {
      const int64_t to = r * part + begin, size = std::min(count, all - to);
      if (size > 0) std::memcpy(whole.mutable_bytes() + to, row(r, 0), static_cast<size_t>(size));
    }
  });
  return whole;
}

void WholeStates::set(size_t state, const Tensor& whole) {
  const Home& home = homes_[state];
  if (!is_here(home)) return;
  if (!home.dim) return step_.set_state(home.number, home.is_cut ? own_shard(whole, parallel_) : whole);
  Tensor part(whole.dtype(), step_.states()[home.number].dims);
  for_each_run(run_bytes(infos_[state], *home.dim, parallel_.tensor), parallel_.tensor, parallel_.tensor_rank, 0,
               part.num_bytes(), [&](int64_t from, int64_t to, size_t size) {
                 std::memcpy(part.mutable_bytes() + to, whole.bytes() + from, size);
               });
  step_.set_state(home.number, part);
}

}  // namespace tessera::inline driver
