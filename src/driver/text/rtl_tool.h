// The hardware of an accelerator beside its simulators: what `tessera accel`, and --rtl of schedule and bench, do.
#pragma once

#include <string>
#include <vector>

#include "accel/rtl/rtl_run.h"
#include "driver/text/schedule_tool.h"
#include "program/program.h"

namespace tessera::inline driver {

// A stream's run on the hardware and in the simulators.
struct RtlCheck {
  std::string kernel;
  int64_t cycles = 0, instructions = 0;  // simulated
  std::vector<std::string> differences;  // as of differences_of_rtl
};
std::string rtl_check_text(const Accelerator& unit, const RtlCheck& check);

// Builds the unit's hardware in `folder` with Verilator and runs the stream of scheduled loops on random inputs.
// UserErrors TSR-3509 to TSR-3511.
RtlCheck check_rtl(const Accelerator& unit, const LoopProgram& program, const InstructionStream& stream,
                   const std::string& folder);

// The same for each kernel of a program that runs on an accelerator; folders of their own for each unit.
std::vector<RtlCheck> check_rtl_of(const Program& program, const std::string& folder);

}  // namespace tessera::inline driver
