// Products whose strides or sums only a run knows: queries times keys, weights of attention times values.
//
// A rule is asked for windows of rows and columns of the output, of fixed extents and at any place, for some sizes of
// the whole. What it writes is alike for all of them but for strides and for how often the sum's loop runs, which
// become formulas (program/generalize_loops.h). The windows cover the output (cover.h); outputs with fewer columns than
// the smallest window get plain loops, which the kernel has beside the others.
#pragma once

#include "schedule/choose.h"
#include "schedule/dynamic/axis_sizes.h"

namespace tessera::inline schedule {

// REQUIRES: memory is row-major; kernels of other layouts are declined. The result has no symbols yet.
std::variant<ScheduledKernel, Declined> apply_to_open_product(const ScheduleRule& rule, const SizedKernel& kernel,
                                                              const Target& target);

}  // namespace tessera::inline schedule
