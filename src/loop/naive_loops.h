// A kernel's definition as plain nested serial loops over logical indices: the meaning of the kernel, and what
// schedules of primitives begin from.
#pragma once

#include "loop/stmt.h"
#include "te/joined_program.h"
#include "te/tensor_program.h"

namespace tessera::inline loop {

// The loops over the output's axes, then those over what is reduced; an accumulator "acc" ("acc1", ...) per reduction
// and output element. Of several results all values are computed before the first one is stored. Parameters have their
// physical shapes.
LoopProgram naive_loops(const TensorProgram& program);
// The members' loops one after the other; what lies between them is local.
LoopProgram naive_loops(const JoinedProgram& program);

}  // namespace tessera::inline loop
