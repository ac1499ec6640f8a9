#include "schedule/gpu/gpu_tile_shape.h"

#include <array>
#include <limits>

namespace tessera::inline schedule {
namespace {

// Of a multiprocessor that begins four instructions of 32 threads a cycle and reads 128 bytes of shared memory. They
// were set to the times of an H100; what follows from them changes little with the device.
constexpr double kWarpThreads = 32, kIssued = 4, kSharedBytes = 128;
constexpr double kLatency = 800;         // cycles until global memory answers
constexpr double kFetchCycles = 2.5;     // of a warp for an element: address, load, store
constexpr double kJoinCycles = 1500;     // to add the groups' partial sums
constexpr int64_t kMostSums = 64;        // registers for sums that a thread may have
constexpr int64_t kRegistersAhead = 64;  // for sums and elements on their way, of 32 bits

int64_t parts(int64_t extent, int64_t size) { return (extent + size - 1) / size; }

double cycles(const GpuTileShape& shape, const ProductExtents& product, const GpuLimits& limits) {
  const auto& [down, across, groups, ahead] = shape;
  const double warps = static_cast<double>(shape.threads()) / kWarpThreads;
  // Threads of a warp along x read other columns; those along y, of which it has few, other rows.
  const double column_reads = static_cast<double>(parts(across.each, kTileLanes)) *
                              std::max(1.0, static_cast<double>(across.threads * across.lanes() * 4) / kSharedBytes);
  const double reads = static_cast<double>(parts(down.each, kTileLanes)) + column_reads;
  const double work =
      static_cast<double>(kTileSteps) * warps * (static_cast<double>(down.each * across.each) / kIssued + reads) +
      static_cast<double>(shape.rounds(down) + shape.rounds(across)) * warps * kFetchCycles;
  const double alone = ahead ? std::max(work, kLatency) : work + kLatency;
  const auto blocks = parts(product.rows, down.size()) * parts(product.columns, across.size()) * product.batch;
  const int64_t of_one = parts(blocks, limits.multiprocessors);
  const int64_t at_once = down.each * across.each > 16 ? 2 : 4;
  const auto together = [&](int64_t count) { return std::max(alone, static_cast<double>(count) * work); };
  const double turns =
      static_cast<double>(of_one / at_once) * together(at_once) + (of_one % at_once ? together(of_one % at_once) : 0);
  return turns * static_cast<double>(parts(product.steps, kTileSteps * groups)) + (groups > 1 ? kJoinCycles : 0);
}

}  // namespace

Expr TileSide::place(const Expr& i, const Expr& thread, const Bounds& bounds) const {
  if (each == 1) return thread;
  const Expr lane = simplify(floormod(i, Expr(lanes())), bounds), group = simplify(floordiv(i, Expr(lanes())), bounds);
  return simplify(group * Expr(threads * lanes()) + thread * Expr(lanes()) + lane, bounds);
}

int64_t shared_bytes_of(const GpuTileShape& shape, int64_t operand_bytes, int64_t sum_bytes) {
  const int64_t pieces = shape.groups * kTileSteps * (shape.down.size() + shape.across.size() + 2 * kTileLanes);
  const int64_t sums = shape.groups > 1 ? shape.groups * shape.down.size() * shape.across.size() : 0;
  return pieces * operand_bytes + sums * sum_bytes;
}

GpuTileShape choose_tile(const ProductExtents& product, const GpuLimits& limits, int64_t operand_bytes,
                         int64_t sum_bytes) {
  // Threads down and across of a group.
  constexpr std::array<std::array<int64_t, 2>, 6> kGroups = {{{16, 16}, {8, 16}, {16, 8}, {8, 8}, {4, 8}, {4, 4}}};
  GpuTileShape best;
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [height, width] : kGroups) {
    if (height * width > limits.threads) continue;
    for (int64_t down = limits.sums_of_thread; down >= 1; down /= 2) {
      for (int64_t across = limits.sums_of_thread; across >= 1; across /= 2) {
        GpuTileShape shape{{height, down}, {width, across}, limits.threads / (height * width), false};
        // A side twice as long as the product's is half idle.
        if ((down > 1 && height * down >= 2 * product.rows) || (across > 1 && width * across >= 2 * product.columns))
          continue;
        if (shape.groups > 1 && product.steps < 2 * kTileSteps * shape.groups) continue;
        if (shared_bytes_of(shape, operand_bytes, sum_bytes) > limits.shared_bytes) continue;
        const auto registers = [](int64_t count, int64_t bytes) { return count * std::max<int64_t>(bytes / 4, 1); };
        const int64_t sums = registers(down * across, sum_bytes);
        if (sums > kMostSums && down * across > 1) continue;
        // Of a single piece none is ahead.
        shape.ahead =
            product.steps > kTileSteps * shape.groups &&
            sums + registers(shape.rounds(shape.down) + shape.rounds(shape.across), operand_bytes) <= kRegistersAhead;
        const double time = cycles(shape, product, limits);
        if (time >= least) continue;
        least = time;
        best = shape;
      }
    }
  }
  return best;
}

}  // namespace tessera::inline schedule
