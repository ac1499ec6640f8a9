// Two sweeps over one buffer made one: what the first stores, the second reads while it is in a register.
//
//   for s { y[s*64 + l] = exp(x[s*64 + l]) }        for s { y[s*64 + l] = exp(x[s*64 + l])
//   t = 0; for s { t[l] += y[s*64 + l] }       ->           t[l] += y[s*64 + l] }
#pragma once

#include "loop/stmt.h"

namespace tessera::inline schedule {

// `first`, then `second`, as one statement where `second` goes through `between` as `first` does: the same loops, in
// each of whose innermost iterations the first stores an element that the second reads, and neither touches another
// one. The second writes to registers there. Null where they are not like that.
Stmt join_sweeps(const Stmt& first, const Stmt& second, const Buffer* between);

}  // namespace tessera::inline schedule
