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
  // In the arena, no view and without any, with a place of its own, written once, and nothing that a condition of a
  // call or a step reads or carries.
  std::vector<bool> plain;
  std::vector<int32_t> run;  // by call: those of one run have no branch and no loop between them
};
BufferUses uses_of_buffers(const Program& program);

// Whether calls `a` and `b` are in one run, and in one piece of a flow.
bool may_join(const Program& program, const BufferUses& uses, size_t a, size_t b);

// Removes the calls of these numbers, and kernels that none is left of. The kernels' new numbers by their old ones, -1
// for those that are gone. Buffers stay.
std::vector<int32_t> remove_joined(Program& program, const std::set<size_t>& gone);

}  // namespace tessera::inline schedule
