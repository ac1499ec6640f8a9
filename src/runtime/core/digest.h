// XXH3 64-bit, the digest of the module format.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace tessera {

uint64_t module_digest(const void* bytes, size_t size);

}  // namespace tessera
