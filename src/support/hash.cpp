#include "support/hash.h"

#include <cstring>

namespace tessera::inline support {
namespace {

// A bijection that spreads every input bit over the word: odd multiplications between xor-shifts.
uint64_t spread(uint64_t x) {
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93;
  x ^= x >> 29;
  x *= 0xcaf649a9f3a1b27d;
  return x ^ (x >> 32);
}

}  // namespace

void Hasher::add(uint64_t value) { state_ = spread((state_ + 0x9e3779b97f4a7c15) ^ value) * 5 + value; }

void Hasher::add(std::string_view text) { add_bytes(text.data(), text.size()); }

void Hasher::add_bytes(const void* data, size_t size) {
  add(static_cast<uint64_t>(size));
  const auto* bytes = static_cast<const unsigned char*>(data);
  // Four independent lanes, so that hashing hundreds of megabytes of weights is not one long dependency chain.
  uint64_t lanes[4] = {state_, ~state_, state_ * 3, state_ ^ 0x55555555};
  size_t i = 0;
  for (; i + 32 <= size; i += 32)
    for (int lane = 0; lane < 4; ++lane) {
      uint64_t word = 0;
      std::memcpy(&word, bytes + i + 8 * lane, 8);
      lanes[lane] = (lanes[lane] ^ word) * 0xd6e8feb86659fd93;
      lanes[lane] ^= lanes[lane] >> 31;
    }
  for (const uint64_t lane : lanes) add(lane);
  for (; i < size; i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + i, size - i < 8 ? size - i : 8);
    add(word);
  }
}

uint64_t Hasher::value() const { return spread(state_); }

}  // namespace tessera::inline support
