// Memory whose borders are watched, for code that no sanitizer has looked at: compiled modules.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "fuzz_target.h"
#include "tessera/tessera.h"

namespace tessera::fuzz {

// Rooms of one size, each with a page behind it that nothing may touch. Memory is given from the end of a room, so that
// reading or writing behind it stops the process; what is written before it shows in check().
class GuardedRooms {
 public:
  static constexpr size_t kRoomBytes = 64 << 10, kFrontBytes = 512;

  explicit GuardedRooms(size_t count) : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))), count_(count) {
    const size_t bytes = count * (kRoomBytes + page_);
    void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(mapped != MAP_FAILED, "no memory for tensors");
    memory_ = static_cast<uint8_t*>(mapped);
    for (size_t i = 0; i < count; ++i) mprotect(memory_ + i * (kRoomBytes + page_) + kRoomBytes, page_, PROT_NONE);
  }
  GuardedRooms(const GuardedRooms&) = delete;
  ~GuardedRooms() { munmap(memory_, count_ * (kRoomBytes + page_)); }

  void clear() { used_ = 0; }
  bool fits(size_t bytes) const { return used_ < count_ && bytes + kFrontBytes <= kRoomBytes; }
  // REQUIRES: fits(bytes).
  uint8_t* take(size_t bytes) {
    uint8_t* const end = memory_ + used_++ * (kRoomBytes + page_) + kRoomBytes;
    std::memset(end - bytes - kFrontBytes, kFront, kFrontBytes);
    return end - bytes;
  }
  static void check(const uint8_t* memory) {
    for (size_t i = 1; i <= kFrontBytes; ++i) require(*(memory - i) == kFront, "a run wrote before a tensor");
  }

 private:
  static constexpr uint8_t kFront = 0xa5;
  size_t page_, count_, used_ = 0;
  uint8_t* memory_;
};

// malloc that counts, fails when told to, and sees what is written behind a piece.
class WatchedAllocator {
 public:
  // From the call number `fail_from` on there is no memory; negative: there is, up to kMostBytes.
  explicit WatchedAllocator(int64_t fail_from) : fail_from_(fail_from) {}
  tessera_allocator allocator() { return {this, allocate, release}; }
  void forget_failure() { fail_from_ = -1; }
  int64_t live() const { return live_; }

 private:
  static constexpr size_t kHead = 64, kTail = 64, kMostBytes = 4 << 20;
  static constexpr uint8_t kMark = 0x5a;

  static void* allocate(void* user, size_t size) {
    auto& self = *static_cast<WatchedAllocator*>(user);
    if (self.fail_from_ >= 0 && self.calls_ >= self.fail_from_) return nullptr;
    ++self.calls_;
    if (size > kMostBytes || self.bytes_ + size > kMostBytes) return nullptr;
    auto* piece = static_cast<uint8_t*>(std::malloc(kHead + size + kTail));
    require(piece != nullptr, "malloc has no memory");
    std::memcpy(piece, &size, sizeof(size));
    std::memset(piece + kHead, 0xcd, size);  // nobody may rely on zeros
    std::memset(piece + kHead + size, kMark, kTail);
    ++self.live_;
    self.bytes_ += size;
    return piece + kHead;
  }

  static void release(void* user, void* memory) {
    auto& self = *static_cast<WatchedAllocator*>(user);
    require(memory != nullptr, "null is released");
    uint8_t* piece = static_cast<uint8_t*>(memory) - kHead;
    size_t size;
    std::memcpy(&size, piece, sizeof(size));
    for (size_t i = 0; i < kTail; ++i) require(piece[kHead + size + i] == kMark, "a run wrote behind its memory");
    --self.live_;
    self.bytes_ -= size;
    std::free(piece);
  }

  int64_t fail_from_, calls_ = 0, live_ = 0;
  size_t bytes_ = 0;
};

}  // namespace tessera::fuzz
