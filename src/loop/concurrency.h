// Whether the loops of a body that run at the same time (stmt.h) stand where they may.
#pragma once

#include <string>

#include "loop/stmt.h"

namespace tessera::inline loop {

// Of the threads of one block; what all GPUs that CUDA knows have. On the z axis there are 64 at most, and of blocks
// 2^31 - 1 on the x axis and 65535 on the others.
constexpr int64_t kMostThreads = 1024;

struct ConcurrencyProblem {
  std::string text;     // names the offending loop; empty: there is none
  int64_t threads = 0;  // of a block that has too many
};

// The first problem: loops that may not stand in each other; axes that do not begin at 0, have an extent that threads
// choose or that is loaded, or too many iterations; registers that are used in a concurrent loop within their
// allocation, unless they are the threads' own: loops over threads whose variables are the first indices. Says nothing
// about dependences between iterations.
ConcurrencyProblem concurrency_problem(const Stmt& body);

}  // namespace tessera::inline loop
