#pragma once

#include <cstdint>

namespace tessera::inline support {

// Bytes of the data (or unified) cache of that level, 1 to 3, of this machine's first CPU; 0 where that is not known.
// Linux's own description is asked first: the C library multiplies the last level by the groups of cores on some
// machines (320 MiB for 32). Thread safe.
int64_t machine_cache_bytes(int level);

}  // namespace tessera::inline support
