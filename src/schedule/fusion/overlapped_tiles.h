// Kernels that hand images to one another, joined into one that goes through them strip of rows by strip of rows.
//
// An inverted residual block widens an image, filters it and narrows it again; a pool follows the first convolution.
// One after the other, each kernel writes an image that is larger than the second level of cache and the next one reads
// it from beyond. Joined, all of them run for a few rows of the last one's result, and of what lies between only the
// rows that those need exist, in a buffer that stays near and has no place in the arena. Rows that two strips need are
// computed for both (overlapped tiles: Alwani et al., "Fused-layer CNN accelerators", MICRO 2016; Ragan-Kelley et al.,
// "Halide", PLDI 2013).
//
// What a strip computes is asked of the schedule rules: the kernel of an image of as many rows, whose conditions
// (padding) stay those of the whole image. A strip's first row is moved into the image, so that all strips have the
// same sizes. The strips divide the result: each element of it is computed once, so it may replace another value.
//
// A chain has a kernel that filters channels by themselves (a depthwise convolution, a pool), one before it or behind
// it, or both. It is made where an estimate says that it saves time: the bytes that no longer leave the second level of
// cache against the rows that are computed twice. And only where a strip gets the same rules as the kernels would: no
// convolution loses a faster algorithm.
#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "program/program.h"
#include "schedule/choose.h"
#include "target/target.h"

namespace tessera::inline schedule {

struct RuleAnswer {
  std::string_view rule;
  ScheduledKernel scheduled;
};
// The first rule that takes the kernel, and its program; empty when none does.
using AskNamedRules = std::function<std::optional<RuleAnswer>(const TensorProgram& kernel)>;
// Whether the kernel has to stay on its own.
using StaysAlone = std::function<bool(const Kernel& kernel)>;

// Parameters of a joined kernel that want to be stored otherwise.
struct PackedStrips {
  int32_t kernel = 0;
  std::vector<PackedParam> packed;
};

// Replaces the calls of each chain by one of a new kernel with the rule "overlapped_tiles" and without a definition, in
// the place of the chain's last call. `allow` as in schedule_program. Buffers that nobody uses any more stay; weights
// are not yet packed.
std::vector<PackedStrips> join_overlapped_tiles(Program& program, const Target& target, const AskNamedRules& ask,
                                                const StaysAlone& stays_alone, const AllowRule& allow);

}  // namespace tessera::inline schedule
