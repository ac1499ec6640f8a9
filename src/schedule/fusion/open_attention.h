// The code of a chain with blocks of columns whose sizes a run decides: the attention of a model of open length.
//
// Blocks of rows and of columns have fixed sizes, so that the rules write their kernels as for fixed sizes; where a
// block begins is a formula. What a block reads lies in memory as it does in a kernel of fixed sizes, but for an offset
// (schedule/dynamic/dynamic_tiles.h has the same idea for one kernel); an operand whose rows are an open size apart (a
// mask for each row and column) is copied first, block by block.
//
// Rows are covered with blocks of several sizes, some of them twice (schedule/dynamic/cover.h). Columns are summed, so
// none may count twice: what whole blocks leave is done in small blocks of which the last has columns behind the end.
// Operands of such a block are copied, with zeros there, and its scores are -inf there before they are compared, so
// that these columns weigh nothing. Keys and values that are copied for all rows of a head lie in memory for the
// largest number of columns, of which a run touches what it needs.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "schedule/fusion/chain.h"
#include "schedule/fusion/chain_block.h"
#include "target/target.h"

namespace tessera::inline schedule {

// The kernel's body on `outside`, the flat memory of what the chain reads and writes. `symbols` are those that sizes
// are made of. Empty when some member reads in another way, or the rules have no programs that go together.
std::optional<Stmt> emit_open_attention(const Chain& chain, const std::map<BufferId, Place>& outside,
                                        const std::vector<SymbolRange>& symbols, const Target& target,
                                        const AskRules& ask);

}  // namespace tessera::inline schedule
