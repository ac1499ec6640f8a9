#include "accel/rtl/step_timing.h"

#include <random>

#include <fmt/format.h>

#include "accel/simulate.h"
#include "support/error.h"

namespace tessera::inline rtl {

namespace {

// after[0] + n0 * (after[1] + n1 * (.. n * per_step)).
int64_t cycles_of(const StepTiming& timing, const std::vector<int64_t>& extents) {
  int64_t cycles = timing.per_step;
  for (size_t l = extents.size(); l-- > 0;) cycles = cycles * extents[l] + timing.after[l];
  return cycles;
}

}  // namespace

StepTiming step_timing(const Accelerator& unit, const UnitInstruction& kind) {
  const auto loops = static_cast<size_t>(kind.loops);
  // A second iteration of one loop, where all others have one, costs what is within it.
  std::vector<int64_t> extents(loops, 1);
  StepTiming timing;
  timing.after.assign(loops, 0);
  const int64_t ones = instruction_cycles(kind, extents);
  int64_t whole = ones;  // what is within the loops before this one
  for (size_t l = 0; l < loops; ++l) {
    extents[l] = 2;
    const int64_t iteration = instruction_cycles(kind, extents) - ones;
    extents[l] = 1;
    timing.after[l] = whole - iteration;
    whole = iteration;
  }
  timing.per_step = whole;
  bool is_nest = timing.per_step >= 1;
  for (const int64_t after : timing.after) is_nest = is_nest && after >= 0;
  // Polynomials of so low a degree that are equal at so many random places are equal.
  std::mt19937_64 random(1);
  for (int round = 0; round < 256 && is_nest; ++round) {
    for (int64_t& extent : extents) extent = 1 + static_cast<int64_t>(random() % (round % 2 ? 1000 : 8));
    is_nest = instruction_cycles(kind, extents) == cycles_of(timing, extents);
  }
  if (!is_nest)
    throw UserError({.id = "TSR-3509",
                     .message = fmt::format("no hardware is made of {}: the cycles of '{}' are {}", unit.name,
                                            kind.name, to_string(kind.cycles)),
                     .node = kind.name,
                     .legal = "cycles for each step, and cycles more when a loop is through: n0 * (n1 * 2 + 3) + 4",
                     .hint = {}});
  return timing;
}

}  // namespace tessera::inline rtl
