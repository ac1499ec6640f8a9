// The hardware of an accelerator, built by Verilator and run beside the simulators.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "accel/rtl/unit_rtl.h"
#include "accel/simulate.h"

namespace tessera::inline rtl {

// Into a folder, which is made. UserError TSR-6102 for one that cannot be written to. Files that are the same stay as
// they are.
void write_rtl(const RtlFiles& files, const std::string& folder);

// What the hardware did.
struct RtlRun {
  int64_t cycles = 0, dram_bytes = 0, dram_busy = 0;
  std::vector<SimulatedStep> steps;              // of each instruction
  std::vector<std::vector<std::byte>> segments;  // what DRAM holds at the end
  std::vector<std::vector<std::byte>> memories;  // and the unit's memories
  std::string problem;                           // why it did not end; empty when it did
};

class RtlSimulator {
 public:
  // Writes the files and has Verilator build a program of them, in `folder`. UserError TSR-3511 where there is no
  // Verilator, or it fails, with what it said.
  RtlSimulator(const Accelerator& unit, const RtlFiles& files, std::string folder);
  RtlSimulator(const Accelerator& unit, std::string folder) : RtlSimulator(unit, rtl_files(unit), std::move(folder)) {}
  // Runs a stream on segments with these contents. `limit`: cycles after which it is given up. Not thread-safe: files
  // of the folder are written.
  RtlRun run(const InstructionStream& stream, std::span<Tensor* const> segments, int64_t limit);

 private:
  const Accelerator& unit_;
  std::string folder_;
};

// Whether `verilator` is in PATH.
bool has_verilator();

// How the hardware's run of a stream differs from what the simulators say, a line each: cycles, in all and of each
// instruction, contents of segments and of memories. Empty: nothing differs. REQUIRES: check_stream found nothing.
std::vector<std::string> differences_of_rtl(RtlSimulator& rtl, const Accelerator& unit, const InstructionStream& stream,
                                            std::span<Tensor* const> segments);

}  // namespace tessera::inline rtl
