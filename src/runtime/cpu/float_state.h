// Floating-point modes: compiled code computes in the default ones (round to nearest, denormals kept, no traps), on
// every thread, whatever the calling program has set for itself.
#pragma once

#include <stdint.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace tessera {

// Sets the default modes on this thread for its lifetime, then puts the former ones back.
class DefaultFloatState {
 public:
#if defined(__x86_64__)
  DefaultFloatState() : before_(_mm_getcsr()) { _mm_setcsr(kDefault); }
  ~DefaultFloatState() { _mm_setcsr(before_); }

 private:
  static constexpr uint32_t kDefault = 0x1f80;  // all exceptions masked, nothing else
  uint32_t before_;
#elif defined(__aarch64__)
  DefaultFloatState() {
    __asm__ volatile("mrs %0, fpcr" : "=r"(before_));
    __asm__ volatile("msr fpcr, %0" : : "r"(uint64_t{0}));
  }
  ~DefaultFloatState() { __asm__ volatile("msr fpcr, %0" : : "r"(before_)); }

 private:
  uint64_t before_;
#else
  DefaultFloatState() {}
#endif

 public:
  DefaultFloatState(const DefaultFloatState&) = delete;
  DefaultFloatState& operator=(const DefaultFloatState&) = delete;
};

}  // namespace tessera
