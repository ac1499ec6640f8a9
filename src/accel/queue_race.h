// Queues that run beside each other: which instruction may begin next. The checker and the simulator step through it.
#pragma once

#include <optional>
#include <vector>

#include "accel/stream.h"

namespace tessera::inline accel {

class QueueRace {
 public:
  QueueRace(const Accelerator& unit, const InstructionStream& stream);

  size_t queue_of(size_t i) const {
    return static_cast<size_t>(unit_.instructions[static_cast<size_t>(stream_.instructions[i].kind)].queue);
  }
  size_t rank(size_t i) const { return rank_[i]; }  // in its queue
  bool has_run(size_t i) const { return has_run_[i]; }
  // The instruction of the queue that has not run yet and is the first of such; none when all have.
  std::optional<size_t> head(size_t queue) const;
  // The instruction before it in its queue, or none.
  std::optional<size_t> before(size_t i) const;

  // Instructions are fetched in the order of the list, while their queue has room: the next one, or none. `room_by`:
  // the instruction that made room by beginning, where the queue was full.
  std::optional<size_t> fetch(std::optional<size_t>& room_by);
  bool is_fetched(size_t i) const { return i < fetched_; }

  // Who gives the tokens that the head of a queue waits for; nullopt when one of them has not run, or nobody does.
  std::optional<std::vector<size_t>> givers(size_t i) const;
  // REQUIRES: givers(i).
  void run(size_t i);
  // Tokens from one queue to another that were given, or will be, and that nobody took yet.
  size_t left_over(size_t from, size_t to) const { return signals_[pair(from, to)].size() - taken_[pair(from, to)]; }

 private:
  size_t pair(size_t from, size_t to) const { return from * of_queue_.size() + to; }

  const Accelerator& unit_;
  const InstructionStream& stream_;
  std::vector<std::vector<size_t>> of_queue_, signals_;
  std::vector<size_t> rank_, next_, taken_;
  std::vector<bool> has_run_;
  size_t fetched_ = 0;
};

}  // namespace tessera::inline accel
