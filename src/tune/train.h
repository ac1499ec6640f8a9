// A cost model from tuning records: what ships with the compiler, and how well it orders schedules of kernels that it
// was not trained on.
#pragma once

#include <string>
#include <vector>

#include "tune/cost_model.h"

namespace tessera::inline tune {

struct TestedKernel {
  std::string hash, name;  // nodes, for people
  size_t trials = 0;
  double spearman = 0;  // of scores and measured speeds: 1 is the same order, 0 none
};

struct Training {
  size_t trials = 0, kernels = 0;
  // Records that teach nothing: texts or points that this version cannot use, times without the default's beside them.
  size_t skipped = 0;
  std::vector<TestedKernel> test;
  // Kernels of the test's files that are no test: trained on, or with too few trials.
  size_t trained_on = 0, too_few = 0;
  // Of one program, features included: many at a time, as the search asks, and one at a time.
  double prediction_us = 0, single_prediction_us = 0;
};

// Spearman's rank correlation; ties share their ranks. 0 when either side is constant. REQUIRES: the same sizes.
double spearman(const std::vector<double>& a, const std::vector<double>& b);

// Fits `model` to the trials of `files`, then asks it about those of `tests`: of each kernel with at least 16 trials
// that is not in `files`. Programs are made for the machine of each record, whatever this one is; what is learned is
// the order on those machines. UserError as RecordFile, and TSR-6411 when there is nothing to learn from.
Training train_cost_model(const std::vector<std::string>& files, const std::vector<std::string>& tests,
                          CostModel& model);

}  // namespace tessera::inline tune
