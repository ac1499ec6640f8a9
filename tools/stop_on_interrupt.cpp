#include "stop_on_interrupt.h"

#include <unistd.h>

#include <csignal>

#include "commands.h"
#include "package/atomic_file.h"

namespace tessera {

namespace {

std::atomic<bool> g_asked = false;

void on_interrupt(int) {
  if (!g_asked.exchange(true)) return;
  remove_unfinished_files();
  _exit(kExitInterrupted);
}

}  // namespace

StopOnInterrupt::StopOnInterrupt() {
  g_asked = false;
  previous_ = std::signal(SIGINT, on_interrupt);
}

StopOnInterrupt::~StopOnInterrupt() { std::signal(SIGINT, previous_); }

std::atomic<bool>& StopOnInterrupt::asked() { return g_asked; }

}  // namespace tessera
