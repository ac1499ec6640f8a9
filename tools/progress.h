// A line on the terminal that says what is going on, for work that takes longer than a second.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace tessera {

// Shows nothing when standard error is not a terminal. The line is removed by finish(), or when the object goes away.
// Thread safety: update() may be called from any thread.
class Progress {
 public:
  explicit Progress(std::string what);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(std::string step);
  // Removes the line; nothing is shown any more. Before anything else is printed.
  void finish();

 private:
  void show();

  std::string what_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::string step_;    // guarded by mutex_
  bool done_ = false;   // guarded by mutex_
  std::thread shower_;  // only on a terminal
};

}  // namespace tessera
