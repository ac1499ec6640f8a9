// The ranges of loops, which are read once, before the first iteration.
#pragma once

#include "loop/stmt.h"

namespace tessera {

// Whether `begin` or `extent` of a loop is loaded from a buffer that the loop stores to: what would evaluate them
// again, in an iteration or after it, may find another range.
bool changes_own_range(const Stmt& loop);

}  // namespace tessera
