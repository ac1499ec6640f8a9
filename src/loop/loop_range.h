// The ranges of loops, which are read once, before the first iteration.
#pragma once

#include "loop/stmt.h"

namespace tessera::inline loop {

// Whether `begin` or `extent` of a loop is loaded from a buffer that `by` stores to: what would evaluate them again,
// behind one of these stores, may find another range.
bool changes_range(const Stmt& loop, const Stmt& by);
inline bool changes_own_range(const Stmt& loop) { return changes_range(loop, loop->stmts[0]); }

}  // namespace tessera::inline loop
