// The descriptor of a module, checked before anything in it is believed.
#pragma once

#include <stdint.h>

#include "tessera/tessera.h"

namespace tessera {

// Checks the descriptor at [bytes, bytes + size): interface version, bounds and alignment of every table and string,
// dtypes, ranks, dims, symbols, sizes. `bytes` is 8-byte aligned. Afterwards:
//   - every tensor, at the upper end of its symbols' ranges, has at most INT64_MAX bytes;
//   - every symbol used is a dim of an input, so that a run can bind it;
//   - every state has fixed dimensions, and its initial value lies inside the weights, which have `weights_size` bytes;
//   - the code and the weights of every device lie inside the images, which have `images_size` bytes, and every
//     operation is of one of the devices;
//   - every string is NUL-terminated UTF-8 inside the descriptor.
// `module_name` is for messages.
tessera_status check_descriptor(const uint8_t* bytes, uint64_t size, uint64_t weights_size, uint64_t images_size,
                                const char* module_name, tessera_error* error);

}  // namespace tessera
