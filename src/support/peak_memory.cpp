#include "support/peak_memory.h"

#include <fstream>
#include <string>

namespace tessera::inline support {

namespace {

double status_bytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (double kilobytes = 0; word == name && status >> kilobytes) return kilobytes * 1024;
  return 0;
}

}  // namespace

double peak_memory() { return status_bytes("VmHWM:"); }

double own_memory() { return status_bytes("RssAnon:"); }

void reset_peak_memory() { std::ofstream("/proc/self/clear_refs") << "5"; }

}  // namespace tessera::inline support
