// What is left of a program when other kernels do the work of some of its calls.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "program/program.h"

namespace tessera {

// Removes the calls of these numbers, and kernels that none is left of. The kernels' new numbers by their old ones, -1
// for those that are gone. Buffers stay.
std::vector<int32_t> remove_calls(Program& program, const std::set<size_t>& gone);

}  // namespace tessera
