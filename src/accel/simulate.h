// What a stream computes, and how long it takes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "accel/stream.h"
#include "types/tensor.h"

namespace tessera::inline accel {

// What an instruction computes, on whole memories: the kernel within the hardware's loops. Symbols are the fields of an
// instruction in their order, addresses and strides in elements of the parameter; before an operand's address stands
// how many elements its memory has.
LoopProgram instruction_loops(const UnitInstruction& kind);

// Runs the instructions in the order of the list on memories that begin with arbitrary contents: each is its kernel
// within its loops, in the loop interpreter. `segments`: the program's parameters; those of outputs are written.
// REQUIRES: check_stream found nothing. The result: what the unit's memories then hold.
std::vector<std::vector<std::byte>> run_stream(const Accelerator& unit,
                                               const std::vector<StreamInstruction>& instructions,
                                               std::span<Tensor* const> segments);

// Cycles by its formula, besides what DRAM takes: at least one.
int64_t instruction_cycles(const UnitInstruction& kind, const std::vector<int64_t>& extents);

// One instruction of a simulated run, in cycles from the beginning.
struct SimulatedStep {
  int64_t begin = 0, end = 0;
};

struct SimulatedQueue {
  int64_t busy = 0;                    // cycles
  std::vector<int64_t> waits_for;      // cycles for tokens of each queue
  int64_t waits_for_instructions = 0;  // cycles with none at hand
};

struct SimulatedRun {
  int64_t cycles = 0;
  int64_t multiply_adds = 0, peak_per_cycle = 0;  // of the widest instruction
  int64_t dram_bytes = 0, dram_busy = 0;
  std::vector<SimulatedQueue> queues;
  std::vector<SimulatedStep> steps;  // of each instruction
  std::string problem;               // why it never ends; empty when it does
  double utilisation() const;        // multiply-adds of the most that could be
};

// The timing that docs/accelerator.md lays down: instructions are fetched in order, each `fetch_cycles`, into queues of
// limited depth; each queue runs one at a time, for as many cycles as its formula says; data come through one port of
// DRAM, whose latency each transfer waits out and whose bytes pass one transfer at a time, in whole bursts.
SimulatedRun simulate(const Accelerator& unit, const InstructionStream& stream);

}  // namespace tessera::inline accel
