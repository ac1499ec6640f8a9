// How much code unrolled loops make of a program. Virtual threads are unrolled loops, too.
#pragma once

#include <string>

#include "loop/stmt.h"

namespace tessera::inline schedule {

// Copies of stores in one program. Those of a matrix product compile in 8 s for 4096 and in 38 s for 16384; a tuner
// stops at 3000 (sketch_program.cpp).
inline constexpr int64_t kMaxCopies = 4096;

// Why `after` has too many of them; empty when it has not, or has no more than `before` had.
std::string too_many_copies(const Stmt& before, const Stmt& after);
// What is legal instead.
std::string legal_copies();

}  // namespace tessera::inline schedule
