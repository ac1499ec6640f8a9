// Runs test cases in processes of their own, so that a crash or a hang is that case's failure and nobody else's.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "test_case.h"

namespace tessera {

struct RunnerSettings {
  int jobs = 1;                 // cases at once
  double timeout_seconds = 60;  // for one case
};

using CaseBody = std::function<CaseResult(const std::string& folder)>;
using CaseReport = std::function<void(const std::string& folder, const CaseResult& result, double seconds)>;

// Calls `report` for every case, in the order of `cases`, in this process. REQUIRES: this process has one thread, since
// it forks.
void run_isolated(const std::vector<std::string>& cases, const RunnerSettings& settings, const CaseBody& body,
                  const CaseReport& report);

}  // namespace tessera
