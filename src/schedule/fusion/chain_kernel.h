// The kernel that a chain becomes.
#pragma once

#include <optional>
#include <vector>

#include "schedule/fusion/chain.h"
#include "target/target.h"

namespace tessera::inline schedule {

// Sets `masked` where some rows see fewer columns.
void find_masked(const Program& program, Chain& chain);

// The chain as one kernel with the parameters `outside`, the last of which it writes. Empty when the rules have no
// programs that go together.
std::optional<Kernel> make_chain_kernel(const Program& program, const Chain& chain,
                                        const std::vector<BufferId>& outside, const Target& target,
                                        const AskRules& ask);

}  // namespace tessera::inline schedule
