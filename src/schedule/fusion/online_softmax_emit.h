// The code of a chain with blocks of columns (column_blocks.h says what it computes).
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "schedule/fusion/chain.h"
#include "schedule/fusion/chain_block.h"
#include "target/target.h"

namespace tessera::inline schedule {

// `outside` are the places of what the chain reads and writes. Empty when the rules have no programs that go together.
std::optional<ChainCode> emit_column_blocks(const Chain& chain, const std::vector<Block>& blocks,
                                            const std::map<BufferId, Place>& outside, const Target& target,
                                            const AskRules& ask);

}  // namespace tessera::inline schedule
