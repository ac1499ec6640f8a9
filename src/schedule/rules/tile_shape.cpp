#include "schedule/rules/tile_shape.h"

#include <algorithm>

namespace tessera {
namespace {

// Accumulators needed to hide the latency of a multiply-add (4 cycles) on two pipes, rounded up for slack.
constexpr double kLatency = 10;

// Predicted time of one step of a tile, in multiply-add issue slots: the products, but no less than the latency of
// the chains; loads run beside them and cost where they are many; and loop overhead.
double step_cost(int64_t vectors, int64_t rows, int64_t registers) {
  const auto products = static_cast<double>(vectors * registers * rows);
  const auto loads = static_cast<double>(rows + vectors * registers);
  return std::max({products, kLatency, loads * 1.0}) + 0.15 * loads + 0.5;
}

double tile_cost(int64_t vectors, int64_t rows, int64_t registers, int64_t steps) {
  // Start, epilogue and stores of a tile.
  const double finish = 8 + 4.0 * static_cast<double>(vectors * rows * registers);
  return static_cast<double>(steps) * step_cost(vectors, rows, registers) + finish;
}

}  // namespace

TileShape choose_tile(const TileProblem& problem) {
  TileShape best;
  double best_cost = -1;
  const int64_t u = problem.registers_per_block;
  for (int64_t vectors = 1; vectors <= std::clamp<int64_t>(problem.blocks, 1, 8); ++vectors)
    for (int64_t rows = 1; rows <= std::min<int64_t>(problem.rows, 28); ++rows) {
      if (vectors * rows * u + vectors * u + 1 > problem.registers && vectors * rows > 1) continue;
      double cost = 0;
      const auto rows_cost = [&](int64_t v) {
        double sum = static_cast<double>(problem.rows / rows) * tile_cost(v, rows, u, problem.steps);
        if (problem.rows % rows != 0) sum += tile_cost(v, problem.rows % rows, u, problem.steps);
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

}  // namespace tessera
