// How long a statement runs, roughly: enough to decide whether splitting it over threads pays.
#pragma once

#include "loop/stmt.h"
#include "target/target.h"

namespace tessera::inline codegen {

// Nanoseconds of one thread for one execution of `s`. Loops of unknown extent count as 64 iterations.
double estimate_ns(const Stmt& s, const Target& target);

// Waking and joining threads costs this much; work below it stays on the calling thread.
inline constexpr double kSerialBelowNs = 3e3;
// A piece of parallel work is at least this long.
inline constexpr double kGrainNs = 2e3;

}  // namespace tessera::inline codegen
