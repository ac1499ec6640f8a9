// The cycles of an instruction as its hardware spends them: so many a step, and so many more when a loop is through.
#pragma once

#include <cstdint>
#include <vector>

#include "accel/description.h"

namespace tessera::inline rtl {

// `per_step` cycles for each step, and `after[l]` when all iterations of loop l are done; loop 0 is the outermost.
struct StepTiming {
  int64_t per_step = 1;
  std::vector<int64_t> after;
};

// UserError TSR-3509 for a formula that says something else: n0 * n0, say.
StepTiming step_timing(const Accelerator& unit, const UnitInstruction& kind);

}  // namespace tessera::inline rtl
