// Along which axes a chain goes block by block, and how many rows a block has.
#pragma once

#include "schedule/chain.h"
#include "types/target.h"

namespace tessera {

// Sets `rows`, `block` and `pieces`; of a chain that `may_be_long` the rows alone. False when there are no rows, or
// what a block needs does not fit.
bool find_rows(Chain& chain, const Target& target);

}  // namespace tessera
