// Sleeping on a 32-bit word, within the process.
#pragma once

#include <limits.h>
#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <atomic>

namespace tessera {

inline constexpr uint32_t kAllSleepers = FUTEX_BITSET_MATCH_ANY;

// Sleeps while *word == expected, until a wake whose mask meets `mask`. May return for no reason.
template <typename T>
void futex_wait(std::atomic<T>& word, T expected, uint32_t mask) {
  static_assert(sizeof(std::atomic<T>) == 4);
  syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, expected, nullptr, nullptr, mask);
}

// Wakes everyone who sleeps on the word with a mask that meets `mask`.
template <typename T>
void futex_wake(std::atomic<T>& word, uint32_t mask) {
  static_assert(sizeof(std::atomic<T>) == 4);
  syscall(SYS_futex, &word, FUTEX_WAKE_BITSET_PRIVATE, INT_MAX, nullptr, nullptr, mask);
}

}  // namespace tessera
