// How much memory a process takes.
#pragma once

namespace tessera::inline support {

// The most resident memory, in bytes, that this process has had since it began, or since reset_peak_memory(); 0 where
// the system does not say. Thread-safe.
double peak_memory();
// Without effect where the system does not let it.
void reset_peak_memory();
// The resident memory, in bytes, that is no file's and shared with nobody; 0 where the system does not say.
// Thread-safe.
double own_memory();

}  // namespace tessera::inline support
