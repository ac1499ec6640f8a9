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

#include <string_view>

#include "schedule/fusion/join_planner.h"

namespace tessera::inline schedule {

inline constexpr std::string_view kOverlappedTiles = "overlapped_tiles";

// Plans these chains of the calls that are free.
void plan_overlapped_tiles(JoinPlanner& planner);

}  // namespace tessera::inline schedule
