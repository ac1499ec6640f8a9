// From a scheduled loop program to instructions. Nests that are tensorized with the accelerator's intrinsics become
// instructions; the loops that stand directly around one become the instruction's own, as many as it has, the innermost
// first; all other loops are expanded, so that every address is a number.
//
// Copies of virtual threads (unrolled loops around a nest) become instructions of their own, where what they store to
// is apart. Allocations lie in the memory that the instructions which touch them say, one behind the other.
#pragma once

#include "accel/stream.h"
#include "loop/stmt.h"

namespace tessera::inline accel {

// Without tokens, in the order of the program. UserError TSR-3502 for a statement that is no instruction, TSR-3503 for
// a buffer that instructions want in different memories, TSR-3504 when a memory is too small, with numbers, TSR-3505
// for loops and addresses that only a run knows, streams beyond a million instructions, and instructions of more than
// kMostSteps, TSR-3506 for addresses between the elements of a memory.
InstructionStream expand(const Accelerator& unit, const LoopProgram& program);

}  // namespace tessera::inline accel
