// A loop program alone as a program: for kernels that are compiled, timed or tested by themselves.
#pragma once

#include "program/program.h"

namespace tessera::inline program {

// One kernel and one call of it, whose parameters are the program's inputs and outputs; memory is not planned. Sizes of
// buffers are those of constant shapes, else 0; symbols may have any value up to a million.
Program program_of(const LoopProgram& loops);

}  // namespace tessera::inline program
