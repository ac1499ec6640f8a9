// Two programs of one model, for the sizes below a value of a dimension and for the others, as one that looks which of
// them a run's sizes ask for.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "program/program.h"

namespace tessera::inline program {

// `below` is for sizes with `symbol` < `border`. It and `above` become the blocks of a branch over a bool that a kernel
// computes before it; inputs, outputs and equal weights are there once. The arena is laid out for both blocks whatever
// the sizes are, so that the buffers of each have the sizes of the nearest run that takes it. `symbols` are those of
// the whole range. REQUIRES: both are lowered and not scheduled, and have no loops; their symbols are among `symbols`.
// Why not, when the programs' signatures do not go together.
std::variant<Program, std::string> switch_by_size(Program below, Program above, const std::vector<SymbolRange>& symbols,
                                                  const Var& symbol, int64_t border,
                                                  const std::function<uint64_t(const TensorPtr&)>& hash);

}  // namespace tessera::inline program
