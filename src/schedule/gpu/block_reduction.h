// Reductions by the threads of a block: each takes its turn with the steps, then pairs of partial results are put
// together, half as many threads at each level, and the first thread finishes.
#pragma once

#include <functional>

#include "schedule/gpu/gpu_loops.h"
#include "schedule/kernel/partial_results.h"

namespace tessera::inline schedule {

struct BlockReduction {
  const Reductions& reductions;
  const FlatAxes& steps;
  int64_t threads = 1;  // a power of two
  VarMap at;            // the output's place
  Expr inside;          // whether there is anything at it

  // Bytes of shared memory, as the thread form counts them.
  int64_t shared_bytes() const;
  // `finish` gets the place and what stands for the results. `bounds` knows the variables of `at`.
  Stmt build(Bounds& bounds, const std::function<Stmt(const VarMap&)>& finish) const;
};

// What a thread does in `rounds` turns: written out where they are few.
Stmt in_turns(const Expr& rounds, const std::function<Stmt(const Expr&)>& body, Bounds& bounds);

}  // namespace tessera::inline schedule
