// How far away a run leaves what a call reads and writes: which cache holds it when the call begins.
#pragma once

#include <cstdint>
#include <vector>

#include "program/program.h"

namespace tessera::inline program {

// An argument of a call.
struct CallTraffic {
  int64_t bytes = 0;
  // Bytes that the calls since the latest one that touched the argument, or a part of its memory, read and write, each
  // piece of memory counted once. (Mattson et al., Evaluation techniques for storage hierarchies, 1970: the stack
  // distance, in bytes of whole buffers.)
  int64_t distance = 0;
  int64_t calls = 0;  // from that call to this one: 1 for the call before
};

// Of each call, in order, one for each argument. Runs follow one another, so that the latest call that touched an
// argument may be the same call in the run before. The caller's own work between two runs is not known, and counts as
// none. Time: calls times the logarithm of calls.
// REQUIRES: planned memory, static sizes and no flow.
std::vector<std::vector<CallTraffic>> call_traffic(const Program& program);
// The same; nothing of every call where a run decides about sizes or which calls come before which.
std::vector<std::vector<CallTraffic>> known_traffic(const Program& program);

}  // namespace tessera::inline program
