#include "support/cache_size.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace tessera::inline support {

namespace {

// "32K", "1M", "512"
int64_t parse_size(const std::string& text) {
  char* unit = nullptr;
  const int64_t number = std::strtoll(text.c_str(), &unit, 10);
  return *unit == 'K' ? number << 10 : *unit == 'M' ? number << 20 : number;
}

}  // namespace

int64_t machine_cache_bytes(int level) {
  for (int index = 0; index < 10; ++index) {
    const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    const auto read = [&](const char* name) {
      std::ifstream file(folder + name);
      std::string word;
      file >> word;
      return word;
    };
    if (read("level") == std::to_string(level) && read("type") != "Instruction") return parse_size(read("size"));
  }
  const int name = level == 1 ? _SC_LEVEL1_DCACHE_SIZE : level == 2 ? _SC_LEVEL2_CACHE_SIZE : _SC_LEVEL3_CACHE_SIZE;
  const long bytes = sysconf(name);
  return bytes > 0 ? bytes : 0;
}

}  // namespace tessera::inline support
