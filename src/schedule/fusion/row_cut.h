// How a joined program of rows (fuse_rows.h) is gone through: which axes are rows, how many of them a block has,
// whether there are blocks of columns, and what a mask leaves out. It follows from what the program computes and the
// machine; a point of a search may say otherwise.
#pragma once

#include <variant>

#include "schedule/choose.h"
#include "schedule/fusion/chain.h"
#include "schedule/kernel/knobs.h"
#include "target/target.h"
#include "te/joined_program.h"

namespace tessera::inline schedule {

// Blocks of columns where these pay, else whole rows. Knobs: `block`, of rows, and `columns`, of a block of columns.
// REQUIRES: `joined` outlives the chain.
std::variant<Chain, Declined> cut_into_rows(const JoinedProgram& joined, const JoinedContext& context,
                                            const Target& target, Knobs& knobs);

// JoiningStep::apply of fuse_rows.
std::variant<ScheduledKernel, Declined> fuse_rows(const JoinedProgram& joined, const JoinedContext& context,
                                                  const Target& target, const AskRules& ask, Knobs& knobs);

}  // namespace tessera::inline schedule
