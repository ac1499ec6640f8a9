// How far away a run leaves what a call reads and writes: the cache holds it or not when the call begins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "program/program.h"

namespace tessera {

// For each argument of call number `call`: the bytes that the calls since the latest one that touched it, or a part of
// its memory, read and write, each piece of memory counted once; runs follow one another, so that the latest one may be
// this call in the run before. The caller's own work between two runs is not known, and counts as none.
// (Mattson et al., Evaluation techniques for storage hierarchies, 1970: the stack distance, in bytes of whole buffers.)
// REQUIRES: planned memory, static sizes and no flow.
std::vector<int64_t> reuse_distances(const Program& program, size_t call);

}  // namespace tessera
