#include "runtime/core/digest.h"

// Header-only: the runtime must not depend on libxxhash at run time.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tessera {

uint64_t module_digest(const void* bytes, size_t size) { return XXH3_64bits(bytes, size); }

}  // namespace tessera
