// The emulator for a program that knows nothing of it: LD_PRELOAD=libamx_emulator.so PROGRAM. Says at the end what was
// emulated, and ends a program with status 3 that leaves tiles configured.
#include <unistd.h>
#include <cstdio>

#include "amx/amx_emulator.h"

namespace {

[[gnu::constructor]] void begin() { tessera::emulate_amx(); }

[[gnu::destructor]] void end() {
  const tessera::AmxCounts n = tessera::amx_counts();
  if (n.configures == 0) return;
  fprintf(stderr,
          "AMX emulator: %llu configurations, %llu releases, %llu loads, %llu stores, %llu products of bf16, %llu of "
          "int8\n",
          static_cast<unsigned long long>(n.configures), static_cast<unsigned long long>(n.releases),
          static_cast<unsigned long long>(n.loads), static_cast<unsigned long long>(n.stores),
          static_cast<unsigned long long>(n.bf16_products), static_cast<unsigned long long>(n.int8_products));
  if (n.configured_threads == 0) return;
  fprintf(stderr, "AMX emulator: %lld threads left their tiles configured\n",
          static_cast<long long>(n.configured_threads));
  _exit(3);
}

}  // namespace
