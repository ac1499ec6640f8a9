// Places the buffers of a program: arena buffers whose lifetimes do not meet share bytes, weights of equal contents are
// stored once.
//
// A buffer lives from the first to the last moment that uses it or one of its views, both included: a call's inputs and
// outputs share no bytes, unless the output is `over` the input; then the two are one piece of memory that lives as
// long as both. Moments are those of program/steps.h: what a loop's block shares with the steps around it lives all
// through the loop, what it uses alone shares bytes with the rest of the block, and the blocks of a branch share bytes.
// Inputs and outputs of the program are the caller's memory and not in the arena.
#pragma once

#include <cstdint>
#include <vector>

#include "program/program.h"

namespace tessera::inline program {

inline constexpr int64_t kBufferAlign = 64;  // bytes; TSR_BUFFER_ALIGN of abi/module_abi.h

// Sets the offsets of arena buffers and weights (aliases get their root's), arena_bytes and weight_bytes, for each
// device by itself. The placement is greedy best fit, largest first, by interval conflicts; a few orders are tried and
// the smallest arena is kept, improved step by step while it is above the lower bound. Deterministic. REQUIRES: a
// verified program.
void plan_memory(Program& program);

struct Lifetime {
  BufferId buffer = -1;         // as storage_buffer gives it
  int32_t first = 0, last = 0;  // moments (program/steps.h); of a program without steps, calls
  int64_t bytes = 0;            // rounded up to kBufferAlign
};

// Of every piece of arena memory that some call uses, in order of `buffer`.
std::vector<Lifetime> arena_lifetimes(const Program& program);

// The largest number of bytes that live at one call: no plan can be smaller.
int64_t arena_lower_bound(const Program& program);

// The buffer of which `id` is a view, itself when it is none: follows alias_of. -1 when the chain leaves the program or
// has a cycle.
BufferId root_buffer(const Program& program, BufferId id);

// The same with the begin of `id` in its root, in bytes.
struct RootPlace {
  BufferId root = -1;
  int64_t begin = 0;
};
RootPlace place_in_root(const Program& program, BufferId id);

// The first of the buffers that take over each other's bytes, down from the root of `id`: follows `over` as well.
BufferId storage_buffer(const Program& program, BufferId id);

// Offsets for `lifetimes` (in their order) such that buffers alive at the same call do not overlap; `total` receives
// the end of the last one.
std::vector<int64_t> place_buffers(const std::vector<Lifetime>& lifetimes, int64_t& total);

}  // namespace tessera::inline program
