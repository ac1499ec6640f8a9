// Ctrl-C as a request: what a search or a training does with it.
#pragma once

#include <atomic>

namespace tessera {

// While it lives, the first Ctrl-C sets asked() and the work ends at its next safe place; a second one removes files
// that are half written and ends the process with the exit code of interrupts. One at a time in a process.
class StopOnInterrupt {
 public:
  StopOnInterrupt();
  ~StopOnInterrupt();
  StopOnInterrupt(const StopOnInterrupt&) = delete;
  StopOnInterrupt& operator=(const StopOnInterrupt&) = delete;

  static std::atomic<bool>& asked();

 private:
  void (*previous_)(int) = nullptr;
};

}  // namespace tessera
