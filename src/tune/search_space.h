// All ways in which one kernel can run: the union of the spaces of the rules that take it (templates) and of its
// sketches. The search sees points, neighbours and descendants; what a point means is the rules' and sketches'
// business.
#pragma once

#include <functional>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "loop/stmt.h"
#include "schedule/choose.h"
#include "schedule/kernel/knobs.h"
#include "schedule/sketches/sketch.h"
#include "target/target.h"
#include "te/tensor_program.h"
#include "tune/task_kernel.h"

namespace tessera::inline tune {

enum class SpaceKind : uint8_t { kTemplates, kSketches, kAll };
const char* space_kind_name(SpaceKind kind);  // "templates", "sketches", "all"

class SearchSpace {
 public:
  struct Loops {
    LoopProgram program;
    uint64_t hash = 0;  // what tells two points apart
  };

  // REQUIRES: kernel and target outlive this object.
  SearchSpace(const TensorProgram& kernel, const Target& target, SpaceKind kind = SpaceKind::kTemplates,
              Fp32Products fp32 = Fp32Products::kFma);
  // One family of points whose loops somebody else makes: nothing, with a reason, at points that are declined.
  using LoopsAt = std::function<std::optional<Loops>(const KnobPoint& point, std::string& why)>;
  SearchSpace(KnobSpace space, LoopsAt loops_at, const Target& target)
      : target_(target),
        spaces_{std::move(space)},
        made_loops_(std::move(loops_at)),
        preferred_(spaces_[0].preferred()) {}
  // Of a joined kernel: the space of the step that joins it; there are no sketches of one. REQUIRES: a kernel that may
  // be measured.
  SearchSpace(const TaskKernel& kernel, const Target& target, SpaceKind kind, Fp32Products fp32)
      : SearchSpace(kernel.joined() ? of_joined(kernel, target, kind, fp32)
                                    : SearchSpace(*kernel.single(), target, kind, fp32)) {}

  // What the rules choose by themselves, whatever the space; empty when none takes the kernel.
  const std::optional<KnobPoint>& preferred() const { return preferred_; }
  const std::vector<KnobSpace>& spaces() const { return spaces_; }
  const std::vector<Sketch>& sketches() const { return sketches_; }
  // "rule: reason" of the rules, and of the sketches, that have nothing for the kernel.
  const std::vector<std::string>& declined_rules() const { return declined_rules_; }
  const std::vector<std::string>& declined_sketches() const { return declined_sketches_; }
  // Points of all rules and sketches, declined ones included.
  int64_t size() const;
  // Where rules and sketches themselves would begin, one for each family.
  std::vector<KnobPoint> first_points() const;

  // A family is the space of one rule, or one sketch; those of templates are the first ones.
  size_t families() const { return spaces_.size() + sketches_.size(); }
  // Which family a point is of; nothing when it is of another space.
  std::optional<size_t> family_of(const KnobPoint& point) const;

  // Points may be declined, and a sketch that draws nothing legal answers one without a rule.
  KnobPoint random_point(std::mt19937_64& random) const;  // of any family, each as often
  KnobPoint random_point_of(size_t family, std::mt19937_64& random) const;
  // Another value for one to three knobs or decisions. REQUIRES: a point of the space.
  KnobPoint mutated(const KnobPoint& point, std::mt19937_64& random) const;
  // Each knob or decision from one of the two. REQUIRES: points of the same rule or sketch.
  KnobPoint crossed(const KnobPoint& a, const KnobPoint& b, std::mt19937_64& random) const;

  // The loops at a point; null with a reason when it is declined.
  std::optional<Loops> loops_at(const KnobPoint& point, std::string& why) const;

 private:
  explicit SearchSpace(const Target& target) : target_(target) {}
  static SearchSpace of_joined(const TaskKernel& kernel, const Target& target, SpaceKind kind, Fp32Products fp32);

  const TensorProgram* kernel_ = nullptr;
  TaskKernel joined_;      // instead
  JoinedContext context_;  // of a joined kernel
  const Target& target_;
  AskRules ask_;  // of a joined kernel
  std::vector<KnobSpace> spaces_;
  LoopsAt made_loops_;  // instead of rules
  std::vector<Sketch> sketches_;
  std::vector<std::string> declined_rules_, declined_sketches_;
  std::optional<KnobPoint> preferred_;
};

}  // namespace tessera::inline tune
