// AMX on processors that lack it: its instructions raise SIGILL there, and a handler does what they say (Intel 64 and
// IA-32 Architectures Software Developer's Manual, volume 2; fixed palette 1) to tiles of the thread, then steps over
// them. So the very machine code that the back end emits for AMX runs in tests. A trap takes a microsecond or two.
//
// It is strict: what raises #UD or #GP on a processor (no configuration, a bad one, shapes that do not fit, the same
// tile twice) ends the process with a sentence. Where the processor has AMX nothing is installed: there the hardware
// runs, by the right that the runtime asks the kernel for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

// Installs the handler for this process; true where instructions are emulated, false where the processor has AMX or is
// no x86-64. May be called more than once. Thread-safe after the first call returned.
bool emulate_amx();

// What was emulated since the process began, by all threads.
struct AmxCounts {
  uint64_t configures = 0, releases = 0, zeros = 0, loads = 0, stores = 0;
  uint64_t bf16_products = 0, int8_products = 0;
  int64_t configured_threads = 0;  // that have configured tiles and not released them
};
AmxCounts amx_counts();

// Takes AMX's names out of the features that a module asks for, which this processor could not satisfy.
void forget_amx(std::vector<std::string>& features);

}  // namespace tessera
