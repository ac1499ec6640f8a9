// The kernel that a chain becomes.
#pragma once

#include <optional>

#include "schedule/fusion/chain.h"
#include "schedule/fusion/join_plan.h"
#include "target/target.h"
#include "te/joined_program.h"

namespace tessera::inline schedule {

// Sets `masked` where some rows see fewer columns. `constants` by value; those behind its end are none.
void find_masked(const std::vector<TensorPtr>& constants, Chain& chain);

// The code of `joined`, whose members and values the chain names. Empty when the rules have no programs that go
// together.
std::optional<LoopProgram> make_chain_kernel(const JoinedProgram& joined, const JoinedContext& context,
                                             const Chain& chain, const Target& target, const AskRules& ask);

}  // namespace tessera::inline schedule
