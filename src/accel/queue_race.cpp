#include "accel/queue_race.h"

namespace tessera::inline accel {

QueueRace::QueueRace(const Accelerator& unit, const InstructionStream& stream)
    : unit_(unit),
      stream_(stream),
      of_queue_(unit.queues.size()),
      signals_(unit.queues.size() * unit.queues.size()),
      rank_(stream.instructions.size()),
      next_(unit.queues.size(), 0),
      taken_(signals_.size(), 0),
      has_run_(stream.instructions.size(), false) {
  for (size_t i = 0; i < rank_.size(); ++i) {
    const size_t own = queue_of(i);
    rank_[i] = of_queue_[own].size();
    of_queue_[own].push_back(i);
    for (size_t other = 0; other < of_queue_.size(); ++other)
      if (stream.instructions[i].signals >> other & 1) signals_[pair(own, other)].push_back(i);
  }
}

std::optional<size_t> QueueRace::head(size_t queue) const {
  if (next_[queue] == of_queue_[queue].size()) return std::nullopt;
  return of_queue_[queue][next_[queue]];
}

std::optional<size_t> QueueRace::before(size_t i) const {
  if (rank_[i] == 0) return std::nullopt;
  return of_queue_[queue_of(i)][rank_[i] - 1];
}

std::optional<size_t> QueueRace::fetch(std::optional<size_t>& room_by) {
  room_by = std::nullopt;
  if (fetched_ == rank_.size()) return std::nullopt;
  const auto depth = static_cast<size_t>(unit_.queue_depth);
  if (rank_[fetched_] >= depth) {
    room_by = of_queue_[queue_of(fetched_)][rank_[fetched_] - depth];
    if (!has_run_[*room_by]) return std::nullopt;
  }
  return fetched_++;
}

std::optional<std::vector<size_t>> QueueRace::givers(size_t i) const {
  std::vector<size_t> result;
  for (size_t other = 0; other < of_queue_.size(); ++other) {
    if (!(stream_.instructions[i].waits >> other & 1)) continue;
    const size_t tokens = pair(other, queue_of(i));
    if (taken_[tokens] >= signals_[tokens].size() || !has_run_[signals_[tokens][taken_[tokens]]]) return std::nullopt;
    result.push_back(signals_[tokens][taken_[tokens]]);
  }
  return result;
}

void QueueRace::run(size_t i) {
  for (size_t other = 0; other < of_queue_.size(); ++other)
    if (stream_.instructions[i].waits >> other & 1) ++taken_[pair(other, queue_of(i))];
  has_run_[i] = true;
  ++next_[queue_of(i)];
}

}  // namespace tessera::inline accel
