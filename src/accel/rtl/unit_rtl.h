// The hardware of a described accelerator, in SystemVerilog: what follows from the description is written here, what
// all have (sequencers, tokens, memories, fetching) lies in sv/. How the two fit:
//
//   accelerator            instruction_fetch, an instruction_fifo for each queue, tokens for each pair of queues,
//                          a memory for each of the description's, and a queue_NAME for each queue
//   queue_NAME             fields of its kinds of instructions, a sequencer, an address_generator for each operand
//                          that a kind may have, and a kernel_KIND for what each kind computes in a step
//
// An instruction begins in the cycle in which it is at hand and its tokens are; each step reads memories, computes and
// writes within one cycle. It ends when its last cycle has passed and, if it moves data, DRAM says so. So a run takes
// the cycles that simulate() counts.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "accel/description.h"

namespace tessera::inline rtl {

// Names of files and their texts: the design (`accelerator.sv` and what it is made of), and the bench around it.
struct RtlFiles {
  std::vector<std::pair<std::string, std::string>> design, headers, bench;
};

// UserError TSR-3509 for cycles, TSR-3510 for kernels of which no hardware is made.
RtlFiles rtl_files(const Accelerator& unit);

}  // namespace tessera::inline rtl
