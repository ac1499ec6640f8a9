// Schedules as text. A `.sched` file has one primitive a line, written like a call; what it makes stands before '='.
//
//   // 32 columns at a time, in vectors
//   j0, j1 = split(j, [_, 32])
//   reorder([i, j0, k, j1])
//   vectorize(j1)
//   A_local = cache_read(A, local)
//   transform_layout(B_local, (k, j) -> [floordiv(j, 16), k, floormod(j, 16)])
//   f0, f1 = sample_perfect_tile(i, 2, 16) decided [64, 16]
//   i0, i1 = split(i, [f0, f1])
//
// `//` begins a comment. Names before '=' may be left out, except those of sampled numbers; print() gives all of them.
// Printing and reading back gives the same text, and applying it the same program, byte for byte.
//
// Problems of the text are UserErrors TSR-3401 to TSR-3403 (and the reader's TSR-3001) at file:line:column; those of a
// primitive have the same place and the ids in docs/errors.md. Texts of more than 10,000 steps are refused.
#pragma once

#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "schedule/primitives/schedule.h"
#include "schedule/primitives/trace_step.h"
#include "support/error.h"

namespace tessera::inline schedule {

// What a schedule can do: the one table, in the order of docs/schedules.md.
struct SchedulePrimitive {
  std::string_view name;
  std::string_view usage;    // "i0, i1 = split(i, [factor|_, ...])"
  std::string_view summary;  // one sentence
  void (*apply)(Schedule& schedule, const TraceStep& step);
};
std::span<const SchedulePrimitive> schedule_primitives();
const SchedulePrimitive* find_schedule_primitive(std::string_view name);

std::vector<TraceStep> parse_trace(std::string_view text, std::string_view file = "<trace>");
std::string print_trace(std::span<const TraceStep> steps);

// Applies steps one after another. Names of sampled numbers and places stand for their values from their step on.
class Replayer {
 public:
  // Without `random` every sampling step must be decided. With it an open decision is drawn, and one that is not legal
  // (any more) is drawn anew. REQUIRES: both outlive this object.
  explicit Replayer(Schedule& schedule, std::mt19937_64* random = nullptr) : schedule_(schedule), random_(random) {}
  // UserError with the step's place; the schedule is then as it was before the step.
  void apply(const TraceStep& step);

 private:
  void draw(const TraceStep& step);

  Schedule& schedule_;
  std::mt19937_64* random_;
  std::unordered_map<std::string, int64_t> numbers_;
  std::unordered_map<std::string, std::string> places_;
};

// Whether the step decides something.
bool is_sampling(const TraceStep& step);

// All of them; UserError with the step's place.
void replay(Schedule& schedule, std::span<const TraceStep> steps);

// The scheduled program, or the first thing that is wrong with the text or a step. Throws InternalError only.
// Thread safety: several calls may run at once.
std::variant<LoopProgram, Diagnostic> apply_trace(const LoopProgram& program, std::string_view text,
                                                  const std::optional<Target>& target = std::nullopt,
                                                  std::string_view file = "<trace>");

}  // namespace tessera::inline schedule
