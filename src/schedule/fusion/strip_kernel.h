// The kernel that a chain of kernels of images becomes (overlapped_tiles.h).
#pragma once

#include <optional>

#include "schedule/choose.h"
#include "schedule/fusion/strip_cut.h"
#include "te/joined_program.h"

namespace tessera::inline schedule {

// The code of `joined`, whose members the chain has. Empty when the rules have no programs that go together.
std::optional<ScheduledKernel> make_strip_kernel(const JoinedProgram& joined, const TiledChain& chain,
                                                 const AskRules& ask);

}  // namespace tessera::inline schedule
