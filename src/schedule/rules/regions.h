// Pieces of a kernel in which conditions come out the same everywhere.
#pragma once

#include <vector>

#include "schedule/kernel/linear_kernel.h"

namespace tessera::inline schedule {

// Cuts a kernel without a reduction along outer loops, where a piece then needs no guard (all but the last of blocks of
// channels), or is nothing but a load (one operand of a concatenation); along the last loop, too, where every piece is
// then a load with a stride along it (images in blocks that are joined as rows). The pieces cover the output; the
// kernel itself when nothing is gained. The guard of a piece: guard_of.
std::vector<LinearKernel> decided_regions(const LinearKernel& kernel);

// The condition under which the loops' values may be computed, null where they all may: values of padding are computed
// as long as nothing is read out of bounds for them.
Expr guard_of(const LinearKernel& kernel);

}  // namespace tessera::inline schedule
