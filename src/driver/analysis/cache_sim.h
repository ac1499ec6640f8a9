// A small simulation of two data caches under a loop program: what a schedule does to memory traffic, on machines whose
// hardware counters are closed.
//
// Each level is set-associative with lines of 64 bytes, least recently used goes first, and writes allocate like reads.
// Buffers in registers cause no traffic. Every access of a scalar loop counts; a vectorized loop's access counts once
// for each line that it touches, a tensorized nest's loads once for each line, as its code keeps them in registers.
// Local allocations have places of their own beside the parameters. Conditions and selects on loop variables are
// followed; of those on data both arms count. No prefetching, one thread.
#pragma once

#include <cstdint>
#include <string>

#include "loop/stmt.h"

namespace tessera::inline driver {

struct CacheShape {
  int64_t bytes = 32 << 10;
  int ways = 8;
};

struct CacheCounts {
  int64_t accesses = 0, l1_misses = 0, l2_misses = 0;
  int64_t stores = 0;     // statements executed
  bool complete = false;  // false: the simulation ended at its limit of accesses
};

// UserError TSR-3425 for a program whose sizes are not constant, or a cache that is none (ways, or less than a set).
CacheCounts simulate_caches(const LoopProgram& program, const CacheShape& l1, const CacheShape& l2,
                            int64_t max_accesses);

// "L1 32 kB 8-way: ...": the text of `--emit cache`.
std::string cache_text(const CacheCounts& counts, const CacheShape& l1, const CacheShape& l2);

// "32K/8": bytes with K or M, and ways. TSR-3425 when it cannot be read.
CacheShape parse_cache(const std::string& text);

}  // namespace tessera::inline driver
