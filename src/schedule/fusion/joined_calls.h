// What joining kernels (fuse_rows.h, overlapped_tiles.h) asks of a program's calls, and what is left of it when other
// kernels do the work of some.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "program/program.h"

namespace tessera::inline schedule {

// Who writes and reads each buffer, by number of the call.
struct BufferUses {
  std::vector<size_t> writer;                // SIZE_MAX: none
  std::vector<std::vector<size_t>> readers;  // each call once
  // In the arena, no view and without any, with a place of its own, written once, and no condition of a call.
  std::vector<bool> plain;
};
BufferUses uses_of_buffers(const Program& program);

// The piece of a flow that has the call; 0 without a flow.
size_t piece_of(const Program& program, size_t call);

// Removes the calls of these numbers, and kernels that none is left of. The kernels' new numbers by their old ones, -1
// for those that are gone. Buffers stay.
std::vector<int32_t> remove_calls(Program& program, const std::set<size_t>& gone);

}  // namespace tessera::inline schedule
