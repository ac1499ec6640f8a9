// Scheduled loops as a stream of instructions of an accelerator: what `tessera schedule --accel` does.
#pragma once

#include <string>

#include "accel/simulate.h"
#include "accel/stream.h"
#include "driver/text/schedule_tool.h"

namespace tessera::inline driver {

// The stream of the scheduled program: expanded, ordered by need, with tokens, and proven to end and to keep the order
// of everything that touches one place (accel/tokens.h). UserErrors TSR-3502 to TSR-3506.
InstructionStream make_stream(const ScheduledLoops& loops, const Accelerator& unit);

// The stream's bits, decoded and run by the functional simulator, beside the original program on random inputs.
// REQUIRES: integers, or small sums: results are compared as check_schedule compares them.
std::vector<ScheduleCheck> check_stream_of(const ScheduledLoops& loops, const Accelerator& unit,
                                           const InstructionStream& stream);

// "vdla at 200 MHz: 123,456 cycles, ..": cycles, the share of the most that could be, and what each queue did.
std::string simulation_text(const Accelerator& unit, const InstructionStream& stream, const SimulatedRun& run);

// The same as a picture (SVG): what each queue runs over time. Cycles `begin` to `end` of the run; 0 and 0: all.
std::string timeline_picture(const Accelerator& unit, const InstructionStream& stream, const SimulatedRun& run,
                             int64_t begin = 0, int64_t end = 0);

}  // namespace tessera::inline driver
