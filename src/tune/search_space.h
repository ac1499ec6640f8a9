// All ways in which rules can run one kernel: the union of the spaces of the rules that take it. The search sees
// points, neighbours and descendants; what a point means is the rules' business.
#pragma once

#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "expr/tensor_program.h"
#include "loop/stmt.h"
#include "schedule/knobs.h"
#include "types/target.h"

namespace tessera {

class SearchSpace {
 public:
  SearchSpace(const TensorProgram& kernel, const Target& target);

  // What the rules choose by themselves; empty when none takes the kernel.
  const std::optional<KnobPoint>& preferred() const { return preferred_; }
  const std::vector<KnobSpace>& spaces() const { return spaces_; }
  // "rule: reason" of the rules that have nothing for the kernel.
  const std::vector<std::string>& declined() const { return declined_; }
  // Points of all rules, declined ones included.
  int64_t size() const;

  KnobPoint random_point(std::mt19937_64& random) const;
  // Another value for one to three knobs; seldom another rule. REQUIRES: a point of the space.
  KnobPoint mutated(const KnobPoint& point, std::mt19937_64& random) const;
  // Each knob from one of the two. REQUIRES: points of the same rule.
  KnobPoint crossed(const KnobPoint& a, const KnobPoint& b, std::mt19937_64& random) const;

  // The loops at a point; null with a reason when it is declined.
  struct Loops {
    LoopProgram program;
    uint64_t hash = 0;  // what tells two points apart
  };
  std::optional<Loops> loops_at(const KnobPoint& point, std::string& why) const;

 private:
  const KnobSpace* space_of(const std::string& rule) const;

  const TensorProgram& kernel_;
  const Target& target_;
  std::vector<KnobSpace> spaces_;
  std::vector<std::string> declined_;
  std::optional<KnobPoint> preferred_;
};

}  // namespace tessera
