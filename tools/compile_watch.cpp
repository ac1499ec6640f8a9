#include "compile_watch.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>

#include <fmt/format.h>

#include "commands.h"
#include "package/atomic_file.h"
#include "support/error.h"
#include "terminal.h"

namespace tessera {

CompileWatch::CompileWatch(double seconds) {
  if (seconds > 0) watcher_ = std::thread([this, seconds] { watch(seconds); });
}

CompileWatch::~CompileWatch() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  wake_.notify_all();
  if (watcher_.joinable()) watcher_.join();
}

void CompileWatch::step(std::string name) {
  const std::lock_guard lock(mutex_);
  step_ = std::move(name);
}

void CompileWatch::watch(double seconds) {
  std::unique_lock lock(mutex_);
  if (wake_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return done_; })) return;
  const Diagnostic diagnostic{
      .id = "TSR-5110",
      .message = fmt::format("compiling takes longer than {} s; it was at '{}'", seconds, step_),
      .node = {},
      .legal = "a compile within --max-compile-time",
      .hint = "give it more time, or less to do: a lower level (-O1), smaller shapes"};
  remove_unfinished_files();
  // Code generation cannot be interrupted from within, so the process ends here, without tearing down what works.
  fmt::print(stderr, "{}{}\n", stderr_is_terminal() ? "\r\x1b[K" : "", diagnostic.to_string());
  std::fflush(stderr);
  _exit(kExitUserError);
}

}  // namespace tessera
