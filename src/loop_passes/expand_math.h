// Mathematical functions as polynomials in the same IR, so that every back end computes them with its own vectors
// and needs no library.
#pragma once

#include "loop/stmt.h"

namespace tessera {

LoopProgram expand_math(const LoopProgram& program);

}  // namespace tessera
