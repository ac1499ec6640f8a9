// Places the buffers of a program: arena buffers whose lifetimes do not meet share bytes, weights of equal contents are
// stored once.
//
// A buffer lives from the first to the last call that uses it or one of its aliases, both included: a call's inputs and
// outputs never share bytes. Inputs and outputs of the program are the caller's memory and not in the arena.
#pragma once

#include <cstdint>
#include <vector>

#include "program/program.h"

namespace tessera {

inline constexpr int64_t kBufferAlign = 64;  // bytes; TSR_BUFFER_ALIGN of abi/module_abi.h

// Sets the offsets of arena buffers and weights (aliases get their root's), arena_bytes and weight_bytes. The placement
// is greedy best fit, largest first, by interval conflicts; a few orders are tried and the smallest arena is kept.
// Deterministic. REQUIRES: a verified program.
void plan_memory(Program& program);

struct Lifetime {
  BufferId buffer = -1;         // a root in the arena
  int32_t first = 0, last = 0;  // calls
  int64_t bytes = 0;            // rounded up to kBufferAlign
};

// Of every root in the arena that some call uses, in order of `buffer`.
std::vector<Lifetime> arena_lifetimes(const Program& program);

// The largest number of bytes that live at one call: no plan can be smaller.
int64_t arena_lower_bound(const Program& program);

// The buffer whose bytes `id` shares: follows alias_of. -1 when the chain leaves the program or has a cycle.
BufferId root_buffer(const Program& program, BufferId id);

// Offsets for `lifetimes` (in their order) such that buffers alive at the same call do not overlap; `total` receives
// the end of the last one.
std::vector<int64_t> place_buffers(const std::vector<Lifetime>& lifetimes, int64_t& total);

}  // namespace tessera
