#include "driver/training/training_report.h"

#include <nlohmann/json.hpp>

namespace tessera::inline driver {

nlohmann::json training_json(const std::string& model, const std::string& output, const TrainingOutcome& outcome) {
  const EpochReport& last = outcome.last;
  nlohmann::json report = {{"model", model},
                           {"parameters", outcome.plan.num_numbers},
                           {"parameter_bytes", outcome.plan.parameter_bytes},
                           {"optimizer_bytes", outcome.plan.optimizer_bytes},
                           {"memory_bytes", outcome.plan.memory_bytes},
                           {"steps", outcome.steps_done},
                           {"losses", outcome.loop.losses},
                           {"compile_seconds", outcome.plan.compile_seconds},
                           {"steps_per_second", last.steps_per_second},
                           {"step_seconds", outcome.loop.seconds}};
  if (last.test_total > 0) report["test_right"] = last.test_right, report["test_total"] = last.test_total;
  else if (outcome.plan.test > 0) report["test_loss"] = last.test_loss;
  if (outcome.sparsity) report["sparsity"] = *outcome.sparsity;
  if (!output.empty()) report["output"] = output;
  return report;
}

}  // namespace tessera::inline driver
