// Calls whose results count only in one branch of a selection get a condition, so that the other branch is not
// computed.
#pragma once

#include "program/program.h"

namespace tessera::inline program {

// A value that every reader reads only in the arm of a select over one bool, `select(c, value, other)`, is not needed
// when that bool chooses the other arm: the call that computes it gets the condition, and so do the calls that compute
// what only that call reads. This makes an If of a model lazy without blocks in the graph: "gated single assignment"
// run backwards (Ottenstein, Ballance, MacCabe: The program dependence web, PLDI 1990). Calls are moved behind those
// that compute their conditions. A program with steps says itself what is
// computed when, and stays as it is. REQUIRES: kernels with naive loops.
void predicate_calls(Program& program);

}  // namespace tessera::inline program
