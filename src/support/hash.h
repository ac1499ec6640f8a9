// A 64-bit hash that is the same on every machine and in every run: for structural comparison, cache keys and names
// of elided constants. Not cryptographic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera::inline support {

class Hasher {
 public:
  void add(uint64_t value);
  // Order and grouping matter: add("ab") differs from add("a"), add("b").
  void add(std::string_view text);
  void add_bytes(const void* data, size_t size);
  uint64_t value() const;

 private:
  uint64_t state_ = 0x6a09e667f3bcc908;  // the fractional bits of sqrt(2): nothing special about them
};

}  // namespace tessera::inline support
