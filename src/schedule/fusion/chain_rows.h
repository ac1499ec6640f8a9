// Along which axes a chain goes block by block, and how many rows a block has.
#pragma once

#include <string_view>

#include "schedule/fusion/chain.h"
#include "target/target.h"

namespace tessera::inline schedule {

// Register tiles have 4, 6, 8 or 12 rows: blocks of a multiple leave no rest.
inline constexpr int64_t kTileRows = 24;

// Into how many pieces the last axis of rows is cut where threads have no row of the other axes of their own.
int64_t pieces_for_threads(const Chain& chain, const Target& target);
// Whether it does not count what each piece takes for kernels that its rows share.
bool may_cut_into(const Chain& chain, int64_t pieces);

// Sets `rows`, `block` and `pieces`; of a chain that `may_be_long` the rows alone. Why there are none, or no blocks of
// them; empty when there are.
std::string_view find_rows(Chain& chain, const Target& target);

}  // namespace tessera::inline schedule
