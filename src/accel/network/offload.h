// Moves kernels of a program to an accelerator: each becomes loops of the unit's instructions, with weights in its
// tiles, and copies to and from its layout where the program has another. What its instructions do not compute of a
// finished sum stays a kernel of the host, which reads the sums.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "accel/description.h"
#include "accel/network/unit_kernel.h"
#include "program/program.h"

namespace tessera::inline network {

struct OffloadOptions {
  int threads = 2;               // virtual threads of a tile's operands
  size_t candidates = 12;        // tilings of each form that are simulated; the one with the fewest cycles is taken
  bool only_full_lanes = false;  // kernels of which more than half of the lanes would be empty stay
  // A tiling that is known to be good for a kernel, as the unit takes it: in its layouts, and without what the host
  // does with sums. One that cycles_of declines counts as none. May be null.
  std::function<std::optional<UnitTiling>(const std::shared_ptr<const TensorProgram>& kernel)> known_tiling = nullptr;
};

// Of so many lanes, those that OffloadOptions::only_full_lanes asks for.
inline int64_t least_filled_lanes(int64_t lanes) { return (lanes + 1) / 2; }

// A call that `wanted` names and the unit does not take stays as it is, and `declined` is told why; also where a part
// of it stays. Answers the numbers of the unit's kernels, whose device is not set.
std::set<int32_t> offload_calls(Program& program, const Accelerator& unit, const OffloadOptions& options,
                                const std::function<bool(const KernelCall& call)>& wanted,
                                const std::function<void(const KernelCall& call, const std::string& reason)>& declined);

// The cycles that the kernel takes in a tiling, simulated; nothing with a reason where it is none of the kernel, or
// memories or fields do not hold it.
std::optional<int64_t> cycles_of(const Accelerator& unit, const UnitRoles& roles, const Contraction& of,
                                 const Cover& cover, const UnitTiling& tiling, std::string& why);

// The tiling with the fewest cycles among the first by estimate.
std::variant<UnitTiling, NotOffloaded> best_tiling(const Accelerator& unit, const UnitRoles& roles,
                                                   const Contraction& of, const Cover& cover, int threads,
                                                   size_t candidates);

}  // namespace tessera::inline network
