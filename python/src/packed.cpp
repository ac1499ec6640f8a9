#include "packed.h"

#include <cstring>

namespace tessera::python {

void pack(const uint8_t* elements, size_t count, int bits, uint8_t* packed) {
  const size_t per_byte = 8 / static_cast<size_t>(bits);
  const unsigned mask = (1u << bits) - 1;
  std::memset(packed, 0, packed_bytes(count, bits));
  for (size_t i = 0; i < count; ++i) {
    const unsigned shift = static_cast<unsigned>(i % per_byte) * static_cast<unsigned>(bits);
    packed[i / per_byte] = static_cast<uint8_t>(packed[i / per_byte] | (elements[i] & mask) << shift);
  }
}

void unpack(const uint8_t* packed, size_t count, int bits, bool is_signed, uint8_t* elements) {
  const size_t per_byte = 8 / static_cast<size_t>(bits);
  const unsigned mask = (1u << bits) - 1, sign = is_signed ? 1u << (bits - 1) : 0;
  for (size_t i = 0; i < count; ++i) {
    const unsigned shift = static_cast<unsigned>(i % per_byte) * static_cast<unsigned>(bits);
    const unsigned value = packed[i / per_byte] >> shift & mask;
    elements[i] = static_cast<uint8_t>((value ^ sign) - sign);
  }
}

}  // namespace tessera::python
