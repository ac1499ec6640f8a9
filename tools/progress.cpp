#include "progress.h"

#include <chrono>
#include <cstdio>

#include <fmt/format.h>

#include "terminal.h"

namespace tessera {

Progress::Progress(std::string what) : what_(std::move(what)) {
  if (stderr_is_terminal()) shower_ = std::thread([this] { show(); });
}

Progress::~Progress() { finish(); }

void Progress::finish() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  wake_.notify_all();
  if (shower_.joinable()) shower_.join();
}

void Progress::update(std::string step) {
  const std::lock_guard lock(mutex_);
  step_ = std::move(step);
}

void Progress::show() {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kPatience(1000), kInterval(100);
  constexpr size_t kColumns = 79;
  const Clock::time_point begin = Clock::now();
  bool shown = false;
  std::unique_lock lock(mutex_);
  for (auto wait = kPatience; !wake_.wait_for(lock, wait, [this] { return done_; }); wait = kInterval) {
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    std::string line = fmt::format("{} {:.1f} s{}{}", what_, seconds, step_.empty() ? "" : ": ", step_);
    line.resize(kColumns, ' ');
    std::fprintf(stderr, "\r%s", line.c_str());
    std::fflush(stderr);
    shown = true;
  }
  if (!shown) return;
  std::fprintf(stderr, "\r%s\r", std::string(kColumns, ' ').c_str());
  std::fflush(stderr);
}

}  // namespace tessera
