// --max-compile-time: ends the process when compiling takes longer, in whatever step it is.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace tessera {

// While it lives, a thread waits for `seconds` to pass (0: for ever); then it prints error TSR-5110 with the step,
// removes files that are half written, and ends the process with kExitUserError. One at a time.
class CompileWatch {
 public:
  explicit CompileWatch(double seconds);
  ~CompileWatch();
  CompileWatch(const CompileWatch&) = delete;
  CompileWatch& operator=(const CompileWatch&) = delete;

  // Thread safety: may be called from any thread.
  void step(std::string name);

 private:
  void watch(double seconds);

  std::mutex mutex_;
  std::condition_variable wake_;
  std::string step_;   // guarded by mutex_
  bool done_ = false;  // guarded by mutex_
  std::thread watcher_;
};

}  // namespace tessera
