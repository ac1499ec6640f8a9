// Names in Target::features that no processor has and LLVM does not know: switches of ours that reach the schedule
// rules and the back end the way features do.
#pragma once

#include <string_view>

namespace tessera::inline types {

// Products of f32 may be made of pieces of bf16: `--fp32 pieces`, and `--fp32 auto` where the machine has AMX.
inline constexpr std::string_view kFp32Pieces = "fp32-pieces";
// ... and only where they are expected to be faster: `--fp32 auto`.
inline constexpr std::string_view kFp32IfFaster = "fp32-pieces-if-faster";
// Two-dimensional tiles in plain memory: what is made of AMX's tiles, on machines without them. For tests.
inline constexpr std::string_view kPortableTiles = "portable-tiles";

inline bool is_own_feature(std::string_view name) {
  return name == kFp32Pieces || name == kFp32IfFaster || name == kPortableTiles;
}

}  // namespace tessera::inline types
