// Several modules in one file.
#pragma once

#include <stdint.h>

#include "abi/module_abi.h"
#include "tessera/tessera.h"

namespace tessera {

// Where a module stands in a file.
struct BundlePlace {
  uint64_t offset = 0, size = 0;
};

// The place of the entry called `entry` in a file of `size` bytes, at least a module's footer; null: of the first one.
// A file that is no bundle is one module, which has no name. `footer` gets that of a bundle. `name` is for messages.
tessera_status find_entry(const uint8_t* data, uint64_t size, const char* entry, const char* name,
                          tsr_bundle_footer* footer, BundlePlace* place, tessera_error* error);

}  // namespace tessera
