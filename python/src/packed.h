// Elements of 4 and 2 bits: Python's arrays (ml_dtypes) keep each in a byte, modules pack them lowest bits first.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/tessera.h"

namespace tessera::python {

inline bool is_packed(tessera_dtype dtype) {
  const int32_t bits = tessera_dtype_bits(dtype);
  return bits > 0 && bits < 8;
}

inline bool is_packed_signed(tessera_dtype dtype) { return dtype == TESSERA_I4 || dtype == TESSERA_I2; }

// Bytes of `count` packed elements of `bits` bits.
inline size_t packed_bytes(size_t count, int bits) { return (count * static_cast<size_t>(bits) + 7) / 8; }

// `packed` has packed_bytes(count, bits) bytes; each is written.
void pack(const uint8_t* elements, size_t count, int bits, uint8_t* packed);
// The other way; upper bits of an element repeat its sign when it has one.
void unpack(const uint8_t* packed, size_t count, int bits, bool is_signed, uint8_t* elements);

}  // namespace tessera::python
