// Whether this process may use AMX's tiles: Linux gives a process their state, 8 KiB a thread, only when it asks.
#pragma once

namespace tessera::inline support {

// Asks for all threads of the process, those to come included; such a right cannot be given back. False where the
// processor has no tiles, the kernel is too old for them, a filter forbids the question, or a thread has a stack for
// signals that is too small to save tiles on. Thread-safe.
bool may_use_tiles();

}  // namespace tessera::inline support
