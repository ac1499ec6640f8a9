// Which of several loop programs is faster, learned from trials: gradient-boosted trees over program_features with a
// pairwise ranking objective (XGBoost; Chen et al., "Learning to optimize tensor programs", 2018, section 3). It orders
// the programs of one kernel, and says nothing about microseconds.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "loop/stmt.h"

namespace tessera::inline tune {

// Thread safety: one thread at a time. The same trials in the same order give the same scores.
class CostModel {
 public:
  CostModel();
  ~CostModel();
  CostModel(const CostModel&) = delete;
  CostModel& operator=(const CostModel&) = delete;

  // A trial of kernel `group`: `gain` is the default's time over the program's; 0 for what failed.
  void add(const std::string& group, const LoopProgram& program, double gain);
  size_t num_trials() const { return features_.size(); }
  // Fits trees to all trials so far, anew. What was loaded stays below them: the new trees learn what it gets wrong. Of
  // little use below some tens of trials when nothing was loaded.
  void fit(int rounds = 60);
  // Whether predict() has something to say: fit() was called with trials, or a file was loaded.
  bool ready() const;
  // One score for each program, higher for what should be faster.
  std::vector<double> predict(const std::vector<const LoopProgram*>& programs) const;

  // The trees in XGBoost's own JSON form. UserError TSR-6405 when there is no such file, when it cannot be read, or
  // holds a model of other features.
  void save(const std::string& path) const;
  void load(const std::string& path);
  // The model that ships with the compiler (docs/tuning.md says what it was trained on).
  void load_pretrained();
  // Whether one of the two was called.
  bool has_base() const { return !base_.empty(); }

 private:
  struct Trees;
  bool load_base(std::string bytes);  // false: of another version, or none
  std::unique_ptr<Trees> trees_;
  std::string base_;  // what was loaded, in XGBoost's form
  std::vector<std::vector<float>> features_;
  std::vector<float> gains_;
  std::vector<size_t> group_of_;
  std::map<std::string, size_t> groups_;
};

}  // namespace tessera::inline tune
