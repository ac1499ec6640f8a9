// Timed runs of a model: one session after another, or several at once.
#pragma once

#include <memory>
#include <vector>

#include "driver/engine/model.h"

namespace tessera {

struct TimedRuns {
  std::vector<double> samples_ms;  // of each run, sorted
  double wall_ms = 0;              // from the first run's begin to the last one's end

  double runs_per_second() const { return 1e3 * static_cast<double>(samples_ms.size()) / wall_ms; }
};

// How long to run: `runs` of them (of all sessions together), or (< 0) until `budget_ms` are over, and at least
// `at_least`.
struct RunBudget {
  int runs = -1;
  double budget_ms = 0;
  int at_least = 1;
};

// Each session on a thread of its own, on what it is bound to. What one throws is thrown when all have ended.
TimedRuns time_runs(const std::vector<Model*>& sessions, const RunBudget& budget);

}  // namespace tessera
