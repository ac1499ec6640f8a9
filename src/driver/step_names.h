// The steps of a compile that are always there, by the names under which --print-ir-after and --time-passes know them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::inline driver {

inline constexpr std::string_view kImport = "import", kLower = "lower", kSchedule = "schedule",
                                  kPlanMemory = "plan_memory", kKernels = "kernels", kPlaceCalls = "place_calls",
                                  kJoinPieces = "join_pieces", kCodegen = "codegen", kLink = "link";

// A part of the import: without it ranges of sizes are read at samples of them.
inline constexpr std::string_view kSymbolicSizes = "symbolic_sizes";

}  // namespace tessera::inline driver
