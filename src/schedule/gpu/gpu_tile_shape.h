// The tiles of gpu_tile: how a product's rows and columns are dealt to blocks, and a block's to its threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "arith/simplify.h"
#include "schedule/gpu/gpu_rules.h"

namespace tessera::inline schedule {

inline constexpr int64_t kTileSteps = 16;  // of the sum that a group of threads has in shared memory at once
inline constexpr int64_t kTileLanes = 4;   // neighbours in shared memory that a thread reads at once

// Rows, or columns, of a tile: a thread has up to kTileLanes neighbours at a time.
struct TileSide {
  int64_t threads = 1, each = 1;
  int64_t size() const { return threads * each; }
  int64_t lanes() const { return std::min(each, kTileLanes); }
  // Of a thread's i-th row or column.
  Expr place(const Expr& i, const Expr& thread, const Bounds& bounds) const;
};

// A block computes `down` by `across` sums. Where these are few for a device, several groups of its threads take turns
// with the steps of the sum, and their partial sums are added in the order of the groups.
struct GpuTileShape {
  TileSide down, across;
  int64_t groups = 1;
  bool ahead = false;  // the next piece is on its way to registers while threads multiply the current one

  int64_t threads_of_group() const { return down.threads * across.threads; }
  int64_t threads() const { return groups * threads_of_group(); }
  // Elements of a side's piece that a thread fetches.
  int64_t rounds(const TileSide& side) const {
    return (side.size() * kTileSteps + threads_of_group() - 1) / threads_of_group();
  }
};

struct ProductExtents {
  int64_t rows = 1, columns = 1, steps = 1, batch = 1;
};

// The shape of the least time by an estimate: what multiprocessors do in a cycle, how long memory takes to answer, and
// how many blocks there are for them. Its shared memory fits `limits`; element_bytes: of operands and of sums.
GpuTileShape choose_tile(const ProductExtents& product, const GpuLimits& limits, int64_t operand_bytes,
                         int64_t sum_bytes);
int64_t shared_bytes_of(const GpuTileShape& shape, int64_t operand_bytes, int64_t sum_bytes);

}  // namespace tessera::inline schedule
