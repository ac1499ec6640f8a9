#include "schedule/rules/register_tile/tile_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace tessera::inline schedule {
namespace {

// Accumulators needed to hide the latency of a multiply-add (4 cycles) on two pipes, rounded up for slack.
constexpr double kLatency = 10;

// Predicted time of one step of a tile, in multiply-add issue slots: the products, but no less than the latency of
// the chains; loads run beside them and cost where they are many; and loop overhead.
double step_cost(const TileProblem& problem, int64_t vectors, int64_t rows) {
  const int64_t registers = problem.registers_per_block;
  const auto products = static_cast<double>(vectors * registers * rows);
  const auto loads =
      static_cast<double>((problem.is_depthwise ? vectors * registers * rows : rows) + vectors * registers);
  return std::max({products, kLatency, loads * 1.0}) + 0.15 * loads + 0.5;
}

// What the vectors of one step cost beyond that because they come from the second level of cache, or, the more of it
// they fill, from behind it. Measured on Zen 5, which does two multiply-adds of 64 bytes in the time of one load from
// there.
double stream_cost(const TileProblem& problem, int64_t vectors) {
  constexpr double kFirstLevel = 32 << 10, kCost = 0.2, kBeyond = 1.0, kHalf = 0.5;
  const auto bytes = static_cast<double>(vectors * problem.block_bytes);
  if (bytes <= kFirstLevel || problem.cache_bytes == 0) return 0;
  const double fills = std::min(bytes / static_cast<double>(problem.cache_bytes), 1.0);
  return static_cast<double>(vectors * problem.registers_per_block) * (kCost + kBeyond * std::max(0.0, fills - kHalf));
}

// Rows whose operands lie a multiple of 4 KiB apart compete for the same set of the first level of cache, of 8 to 12
// lines.
double conflict_cost(const TileProblem& problem, int64_t rows) {
  constexpr int64_t kSets = 4096, kFree = 8;
  if (problem.row_bytes == 0 || problem.row_bytes % kSets != 0) return 0;
  return 0.2 * static_cast<double>(std::max<int64_t>(0, rows - kFree));
}

double tile_cost(const TileProblem& problem, int64_t vectors, int64_t rows) {
  // Start, epilogue and stores of a tile. They run beside the sums of the next tile while the processor looks ahead so
  // far: measured on Zen 5, a tile of 8 rows of 16 steps takes 0.8 of the time of one of 28.
  constexpr int64_t kProductsAhead = 144;
  const int64_t u = problem.registers_per_block;
  const bool hidden = !problem.is_depthwise && vectors * rows * u * problem.steps <= kProductsAhead;
  const double finish = (8 + 4.0 * static_cast<double>(vectors * rows * u)) * (hidden ? 0.25 : 1);
  const double step = step_cost(problem, vectors, rows) + stream_cost(problem, vectors) + conflict_cost(problem, rows);
  return static_cast<double>(problem.steps) * step + finish;
}

}  // namespace

TileShape choose_tile(const TileProblem& problem) {
  TileShape best;
  double best_cost = -1;
  const int64_t u = problem.registers_per_block;
  for (int64_t vectors = 1; vectors <= std::clamp<int64_t>(problem.blocks, 1, problem.most_vectors); ++vectors)
    for (int64_t rows = 1; rows <= std::min(problem.rows, problem.most_rows); ++rows) {
      if (vectors * rows * u + vectors * u + 1 > problem.registers && vectors * rows > 1) continue;
      double cost = 0;
      const auto rows_cost = [&](int64_t v) {
        double sum = static_cast<double>(problem.rows / rows) * tile_cost(problem, v, rows);
        if (problem.rows % rows != 0) sum += tile_cost(problem, v, problem.rows % rows);
        return sum;
      };
      cost += static_cast<double>(problem.blocks / vectors) * rows_cost(vectors);
      if (problem.blocks % vectors != 0) cost += rows_cost(problem.blocks % vectors);
      if (best_cost < 0 || cost < best_cost) {
        best_cost = cost;
        best = {vectors, rows};
      }
    }
  return best;
}

AskedTile ask_tile(const TileProblem& problem, Knobs& knobs, int all_registers, const std::string& suffix) {
  const TileShape own = choose_tile(problem);
  AskedTile tile;
  tile.vectors = knobs.choose("vectors" + suffix, {1, 2, 3, 4, 5, 6, 7, 8}, own.vectors);
  tile.rows = knobs.choose("rows" + suffix, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 24, 28}, own.rows);
  const bool is_own = tile.vectors == own.vectors && tile.rows == own.rows;
  const int64_t needed = (tile.vectors * tile.rows + tile.vectors) * problem.registers_per_block + 1;
  const int registers = all_registers > 0 ? all_registers : problem.registers;
  if (is_own) return tile;
  if (tile.rows > problem.rows) tile.refused = fmt::format("a tile of {} rows, of {}", tile.rows, problem.rows);
  else if (tile.vectors > std::max<int64_t>(1, problem.blocks))
    tile.refused = fmt::format("a tile of {} vectors, of {}", tile.vectors, problem.blocks);
  else if (needed > registers && tile.vectors * tile.rows > 1)
    tile.refused =
        fmt::format("{} vectors x {} rows need {} registers, of {}", tile.vectors, tile.rows, needed, registers);
  return tile;
}

double split_block_cost(int64_t columns, int64_t width, double steps, int64_t rows) {
  constexpr double kOverhead = 1.2, kFinish = 3;
  const auto parts = static_cast<double>(width / static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(columns))));
  // One chain of sums for each row.
  const double step = std::max(kOverhead, kLatency / static_cast<double>(rows));
  return steps / parts * step + kFinish * std::log2(parts) + kFinish;
}

}  // namespace tessera::inline schedule
