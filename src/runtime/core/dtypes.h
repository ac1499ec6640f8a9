// Element types as the module format numbers them.
#pragma once

#include <stdint.h>

namespace tessera {

// Size of one element in bits; 0 for strings and for numbers that are no dtype.
int32_t module_dtype_bits(uint32_t dtype);
// "f32", "i64", ...; "?" for numbers that are no dtype.
const char* module_dtype_name(uint32_t dtype);

}  // namespace tessera
