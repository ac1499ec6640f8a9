// Kernels that only move elements and read contiguously along another loop than the one along which they write: square
// tiles, whole vectors read and written, turned in registers.
#pragma once

#include <functional>

#include "schedule/kernel/linear_kernel.h"
#include "target/target.h"

namespace tessera::inline schedule {

// Writes `count` elements along the last loop from `begin` on; `at` has the other loops' places.
using AlongLast = std::function<Stmt(const Expr& begin, int64_t count, const VarMap& at)>;

// The whole kernel, or null when it is not of these kinds. What does not fill a tile is left to `along_last`. REQUIRES:
// no reduction.
Stmt transpose_tiles(const LinearKernel& kernel, const Target& target, const AlongLast& along_last);

}  // namespace tessera::inline schedule
