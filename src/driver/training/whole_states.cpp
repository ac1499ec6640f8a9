#include "driver/training/whole_states.h"

#include <algorithm>
#include <cstring>

#include "train/shards.h"

namespace tessera::inline driver {

int64_t elements_of(const TensorInfo& info) {
  int64_t count = 1;
  for (const int64_t d : info.dims) count *= d;
  return count;
}

int64_t gathered_bytes(const std::vector<CutState>& cut, const DataParallel& parallel) {
  constexpr int64_t kMost = 4 << 20;
  int64_t most = 1;
  for (const CutState& state : cut)
    most = std::max(most, dtype_bytes(state.whole.dtype, shard_size(state.whole.num_elements(), parallel.ranks)));
  return std::min(most, kMost);
}

WholeStates::WholeStates(Model& step, const std::vector<CutState>& cut, const DataParallel& parallel,
                         std::unique_ptr<Model> gather)
    : step_(step), parallel_(parallel), gather_(std::move(gather)), infos_(step.states()) {
  is_cut_.assign(infos_.size(), false);
  for (size_t i = 0; i < infos_.size(); ++i)
    for (const CutState& state : cut)
      if (state.name == infos_[i].name) is_cut_[i] = true, infos_[i].dims = state.whole.dims();
  if (!gather_) return;
  const TensorInfo& input = gather_->inputs()[0];
  part_ = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(input.dims[0]));
  gather_->bind({Tensor(input.dtype, input.dims, part_, part_->data())});
}

Tensor WholeStates::get(size_t state) const {
  const Tensor own = step_.state(state);
  if (!is_cut_[state]) return own;
  Tensor whole(own.dtype(), infos_[state].dims);
  const int64_t part = own.num_bytes(), all = whole.num_bytes();
  const auto chunk = static_cast<int64_t>(part_->size());
  for (int64_t begin = 0; begin < part; begin += chunk) {
    const int64_t size = std::min(chunk, part - begin);
    std::memcpy(part_->data(), own.bytes() + begin, static_cast<size_t>(size));
    gather_->run();
    const std::byte* from = gather_->results()[0].bytes();
    for (int64_t rank = 0; rank < parallel_.ranks; ++rank) {
      const int64_t to = rank * part + begin, count = std::min(size, all - to);
      if (count > 0) std::memcpy(whole.mutable_bytes() + to, from + rank * chunk, static_cast<size_t>(count));
    }
  }
  return whole;
}

void WholeStates::set(size_t state, const Tensor& whole) {
  step_.set_state(state, is_cut_[state] ? own_shard(whole, parallel_) : whole);
}

}  // namespace tessera::inline driver
