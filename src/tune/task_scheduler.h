// Which kernel gets the next trials: the one from which most of the model's time is expected to go (the gradient of
// Ansor: Zheng et al., "Ansor: generating high-performance tensor programs for deep learning", 2020, section 6).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::inline tune {

// What the scheduler knows of a task. Times are of one call, in microseconds.
struct TaskState {
  double calls = 1;             // weight: how often one run of the model calls it
  double best_us = 0;           // g(t)
  std::vector<double> history;  // best after each round of trials
  double flops = 0;             // 0 when it computes nothing that counts
  double bound_us = 0;          // what the machine's roofline allows; 0: not known
  std::string likeness;         // tasks with the same text can be expected to reach about the same speed
  int64_t trials = 0;
  bool exhausted = false;  // nothing is left to try
};

// Expected microseconds of the model that one more round of trials on task `i` takes away: between what its last rounds
// gave (weight 0.2, over 3 rounds) and the optimistic guess (its time falls as 1 / rounds, or to what tasks alike have
// reached within a factor of 2), and never more than what is left above its roofline.
double expected_gain(const std::vector<TaskState>& tasks, size_t i);

// The task with the largest gain; each gets a first round before any gets a second, in order of their time. -1 when all
// are exhausted.
int next_task(const std::vector<TaskState>& tasks);

}  // namespace tessera::inline tune
