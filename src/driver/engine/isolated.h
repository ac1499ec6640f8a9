// Work in a process of its own, so that a crash or a hang there is an answer and not the end. Thread-safe, as long as
// the other threads hold no locks that the work needs (they only wait for processes, say).
#pragma once

#include <functional>
#include <string>

namespace tessera::inline driver {

// What `work` returns, "crash: <signal>" when it ends otherwise, "timeout" when it takes longer. What it prints is
// lost. REQUIRES: `work` throws nothing.
std::string run_isolated(const std::function<std::string()>& work, double timeout_seconds);

// "exit N" or "crash: <signal>" or "timeout" of a command for the shell; what it prints is lost.
std::string run_shell(const std::string& command, double timeout_seconds);

}  // namespace tessera::inline driver
