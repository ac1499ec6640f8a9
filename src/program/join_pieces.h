// The programs of a flow's pieces as one: kernels, calls, buffers, weights and symbols one behind the other. Only one
// piece runs at a time, so that all of them use the same arena, but for those with symbols, which get one in each run.
#pragma once

#include <memory>
#include <vector>

#include "program/program.h"

namespace tessera::inline program {

// REQUIRES: planned programs, one for each piece of the flow.
Program join_pieces(std::shared_ptr<const Flow> flow, std::vector<Program> pieces);

}  // namespace tessera::inline program
