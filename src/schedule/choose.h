// Choosing how each kernel runs. Rules are asked in order; the first that takes a kernel writes its loop program from
// a model of the machine, the others leave a reason why they declined. Every rule keeps what the kernel computes.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "loop/stmt.h"
#include "program/program.h"
#include "schedule/kernel/knobs.h"
#include "schedule/kernel/pack.h"
#include "support/remarks.h"
#include "target/target.h"
#include "te/joined_program.h"
#include "te/tensor_program.h"
#include "types/numerics.h"

namespace tessera::inline schedule {

// A rule's answer: the loop program, and which constants and weights it wants stored otherwise.
struct ScheduledKernel {
  LoopProgram program;
  std::vector<PackedParam> packed;
};

struct Declined {
  std::string reason;
};

struct ScheduleRule {
  std::string_view name;
  std::string_view summary;
  int min_level;  // the optimisation level from which it is asked
  Numerics numerics;
  std::variant<ScheduledKernel, Declined> (*apply)(const TensorProgram& kernel, const Target& target, Knobs& knobs);
  int version = 1;  // of the meaning of its knobs
  // Of a rule that a compile has to ask for: why this one does not, empty when it does. Null: every compile does.
  std::string (*not_wanted)(const TensorProgram& kernel, const Target& target, Fp32Products fp32) = nullptr;
};

struct RuleAnswer {
  std::string_view rule;
  ScheduledKernel scheduled;
};
// The first rule that takes the kernel, and its program; empty when none does.
using AskRules = std::function<std::optional<RuleAnswer>(const TensorProgram& kernel)>;

// What is known of a joined kernel's arguments and sizes beside what it computes.
struct JoinedContext {
  std::vector<TensorPtr> constants;  // by argument: of a row-major constant; null for others
  std::vector<SymbolRange> symbols;  // that members' sizes are made of
};

// What joins kernels into one before the rules are asked (schedule/fusion/join_plan.h), and writes its program from
// what it computes; `ask` answers for blocks of its members. A step has knobs as a rule has.
struct JoiningStep {
  std::string_view name;
  std::string_view summary;
  int min_level;  // the optimisation level from which it is asked
  Numerics numerics;
  std::variant<ScheduledKernel, Declined> (*apply)(const JoinedProgram& kernel, const JoinedContext& context,
                                                   const Target& target, const AskRules& ask, Knobs& knobs);
  int version = 1;  // of the meaning of its knobs
};
std::span<const JoiningStep> joining_steps();
// Null when there is none.
const JoiningStep* find_joining_step(std::string_view name);

// In the order in which they are asked.
std::span<const ScheduleRule> schedule_rules();

// What can be disabled by name: the joining steps and the rules.
std::vector<std::string_view> schedule_step_names();

// Null when there is none.
const ScheduleRule* find_schedule_rule(std::string_view name);

// The rule's knobs for a kernel; Declined when it has nothing for the kernel even when asked by name, or a run decides
// about sizes.
std::variant<KnobSpace, Declined> knob_space(const ScheduleRule& rule, const TensorProgram& kernel,
                                             const Target& target, Fp32Products fp32 = Fp32Products::kFma);
// The point's rule at that point; Declined with a reason when the point is not in its space, or its values do not go
// together. Whatever is answered computes what the kernel says.
std::variant<ScheduledKernel, Declined> apply_point(const KnobPoint& point, const TensorProgram& kernel,
                                                    const Target& target, Fp32Products fp32 = Fp32Products::kFma);

// The same for a joined kernel, at a point of a joining step.
std::variant<KnobSpace, Declined> joined_knob_space(const JoiningStep& step, const JoinedProgram& kernel,
                                                    const JoinedContext& context, const Target& target,
                                                    const AskRules& ask);
std::variant<ScheduledKernel, Declined> apply_joined_point(const KnobPoint& point, const JoinedProgram& kernel,
                                                           const JoinedContext& context, const Target& target,
                                                           const AskRules& ask);

// The same point without the knobs whose value is the rule's own choice. REQUIRES: a point of the kernel's space.
KnobPoint essential(const KnobPoint& point, const TensorProgram& kernel, const Target& target);

// What the rule may change in this kernel's results: sums of integers, minima and maxima do not depend on their order.
Numerics numerics_of(const ScheduleRule& rule, const TensorProgram& kernel);

// The first rule's answer to kernels of fixed sizes, of those that are asked.
AskRules first_answer_of(const Target& target, int opt_level, const std::set<std::string>& disabled = {},
                         const RuleNumerics& numerics = {});

// What one rule says to a kernel: the program that it would run, or why it declines. For `explain`.
struct RuleOffer {
  std::string_view rule;
  std::string declined;  // the reason; empty when `program` is set
  LoopProgram program;
};
// Of all rules, in their order, those included that the level or `disabled` leaves out. `symbols` are the kernel's.
std::vector<RuleOffer> ask_all_rules(const TensorProgram& kernel, const std::vector<SymbolRange>& symbols,
                                     const Target& target, int opt_level, const std::set<std::string>& disabled = {},
                                     const RuleNumerics& numerics = {});

// Those of the program that the kernel uses.
std::vector<SymbolRange> symbols_of(const Program& program, const Kernel& kernel);

// Joins chains of kernels (fusion/join_plan.h), replaces the loop programs of all kernels that have a definition, or a
// joined one and no loops of their own yet (rule "naive"), packs weights as the rules want them, and drops weight
// buffers nobody reads any more. At level 0 kernels stay naive. Rules in `disabled` are not asked. A kernel for whose
// rule `allow` (may be null) says no stays naive, too. Nothing is done that `numerics` does not let it. `remarks` (may
// be null) are told which kernels were not joined, and why.
using AllowRule = std::function<bool(std::string_view rule, const Kernel& kernel)>;
// Points that were found better than the rules' own choice for some kernels (may be null): such a kernel's `rule` is
// the point's text, the knobs left out that have the rule's own choice. A point that is refused leaves a reason in
// `refused`, and the rules decide.
struct TunedChoice {
  std::optional<KnobPoint> point;
  std::string refused;  // why something that is known of the kernel is not used; may be empty
};
using ChoosePoint = std::function<TunedChoice(const Kernel& kernel)>;
void schedule_program(Program& program, const Target& target, int opt_level, const std::set<std::string>& disabled = {},
                      const AllowRule& allow = {}, const ChoosePoint& choose = {}, const RuleNumerics& numerics = {},
                      Remarks* remarks = nullptr);

}  // namespace tessera::inline schedule
