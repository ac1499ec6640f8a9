#include "tune/task_scheduler.h"

#include <algorithm>

namespace tessera::inline tune {

double expected_gain(const std::vector<TaskState>& tasks, size_t i) {
  constexpr double kBackward = 0.2, kLikeness = 2;
  constexpr size_t kWindow = 3;
  const TaskState& task = tasks[i];
  if (task.exhausted) return 0;
  const size_t rounds = task.history.size();
  double past = 0;
  if (rounds > 1) {
    const size_t window = std::min(kWindow, rounds - 1);
    past = (task.history[rounds - 1 - window] - task.best_us) / static_cast<double>(window);
  }
  double ahead = task.best_us / static_cast<double>(std::max<size_t>(1, rounds));
  double fastest = 0;  // FLOP per microsecond
  for (const TaskState& other : tasks)
    if (other.likeness == task.likeness && other.best_us > 0) fastest = std::max(fastest, other.flops / other.best_us);
  // Slower than twice the time that the speed of tasks alike would give: that much can be expected.
  if (fastest > 0 && task.flops > 0) ahead = std::max(ahead, task.best_us - kLikeness * task.flops / fastest);
  double gain = kBackward * past + (1 - kBackward) * ahead;
  if (task.bound_us > 0) gain = std::min(gain, std::max(0.02 * task.best_us, task.best_us - task.bound_us));
  return task.calls * gain;
}

int next_task(const std::vector<TaskState>& tasks) {
  int best = -1;
  double best_gain = -1;
  bool best_is_first = false;
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (tasks[i].exhausted) continue;
    const bool first = tasks[i].history.empty();
    const double gain = first ? tasks[i].calls * tasks[i].best_us : expected_gain(tasks, i);
    if (best < 0 || (first && !best_is_first) || (first == best_is_first && gain > best_gain)) {
      best = static_cast<int>(i);
      best_gain = gain;
      best_is_first = first;
    }
  }
  return best;
}

}  // namespace tessera::inline tune
