#include "accel/network/estimate.h"

#include <algorithm>
#include <cmath>

#include "accel/network/tile_sizes.h"
#include "accel/simulate.h"

namespace tessera::inline network {

namespace {

constexpr int64_t kMostGroups = 256;  // that are run

// Instructions of a tile that do one thing.
struct Group {
  int queue = 0;
  double cycles = 0;
  double bytes = 0;  // of DRAM
};

// The groups of an average tile, and how often each is there in all.
struct TileGroups {
  TileGroups(const Accelerator& unit, const UnitRoles& roles, const Contraction& of, const Cover& cover,
             const UnitTiling& tiling)
      : sizes(roles, of, cover, tiling), tiles(sizes.tiles_out * sizes.tiles_of_places) {
    // Tiles at an edge are smaller.
    double all = static_cast<double>(sizes.blocks_out_all);
    for (const int64_t extent : of.place_extents) all *= static_cast<double>(extent);
    vectors = all / static_cast<double>(tiles);
    const double blocks_in = static_cast<double>(sizes.blocks_in_all) / static_cast<double>(sizes.steps);
    const double blocks_out = static_cast<double>(sizes.blocks_out_all) / static_cast<double>(sizes.tiles_out);
    const auto burst = static_cast<double>(unit.dram_burst);
    // Rows begin within bursts.
    const auto in_bursts = [&](double bytes) { return bytes <= 0 ? 0 : (std::max(bytes / burst, 1.0) + 0.5) * burst; };
    if (of.reduction) {
      const UnitProduct& product = roles.product;
      double x_rows = blocks_in, x_row = 1;
      for (size_t d = 0; d < sizes.local.size(); ++d)
        (d + 1 == sizes.local.size() ? x_row : x_rows) *= static_cast<double>(sizes.local[d]);
      load_x = group(*roles.load_x, x_rows * x_row,
                     x_rows * in_bursts(x_row * static_cast<double>(core_bytes(*product.instruction, product.x))));
      const double matrices = blocks_in * static_cast<double>(of.window());
      load_w =
          group(*roles.load_w, blocks_out * matrices,
                blocks_out * in_bursts(matrices * static_cast<double>(core_bytes(*product.instruction, product.w))));
      clear = group(*roles.clear, vectors, 0);
      // An instruction for each block of a tile's channels: its windows and channels outside, its places inside.
      multiply = {product.instruction->queue,
                  blocks_out * cycles_of(*product.instruction, matrices, vectors / blocks_out), 0};
      x_loads = sizes.x_once ? sizes.tiles_of_places : tiles * sizes.steps;
      w_loads = sizes.w_once ? sizes.tiles_out : tiles * sizes.steps;
    }
    if (!cover.streams.empty())
      load_stream = group(*roles.load_sums, vectors, vectors * static_cast<double>(4 * roles.lanes()));
    for (const CoverStep& step : cover.steps) maps.push_back(group(*step.map->instruction, vectors, 0));
    const UnitInstruction& last = *cover.store.map->instruction;
    store = group(last, vectors, vectors * static_cast<double>(core_bytes(last, last.operands.size() - 1)));
  }

  static double cycles_of(const UnitInstruction& kind, double outer, double inner) {
    std::vector<int64_t> extents(static_cast<size_t>(kind.loops), 1);
    if (extents.empty()) return outer * inner * static_cast<double>(instruction_cycles(kind, extents));
    extents.front() = std::max<int64_t>(std::llround(outer), 1);
    extents.back() *= std::max<int64_t>(std::llround(inner), 1);
    return static_cast<double>(instruction_cycles(kind, extents));
  }
  static Group group(const UnitInstruction& kind, double vectors, double bytes) {
    return {kind.queue, cycles_of(kind, 1, vectors), bytes};
  }

  TileSizes sizes;
  int64_t tiles = 1, x_loads = 0, w_loads = 0;
  double vectors = 1;
  Group load_x, load_w, clear, multiply, load_stream, store;
  std::vector<Group> maps;
};

// Queues that run groups in order, each when those that it waits for are done.
class GroupRace {
 public:
  explicit GroupRace(const Accelerator& unit) : unit_(unit), of_queue_(unit.queues.size()) {}

  // Answers its number; of `after`, those below 0 are nothing.
  int add(const Group& group, const std::vector<int>& after) {
    const int number = static_cast<int>(groups_.size());
    groups_.push_back(group);
    after_.push_back(after);
    of_queue_[static_cast<size_t>(group.queue)].push_back(number);
    return number;
  }

  // When each group is done.
  std::vector<double> run() const {
    std::vector<double> ends(groups_.size(), -1), free(of_queue_.size(), 0);
    std::vector<size_t> next(of_queue_.size(), 0);
    double port = 0;
    const auto per_cycle = static_cast<double>(unit_.dram_bytes_per_cycle),
               latency = static_cast<double>(unit_.dram_latency);
    while (true) {
      int chosen = -1;
      double earliest = 0;
      for (size_t q = 0; q < of_queue_.size(); ++q) {
        if (next[q] == of_queue_[q].size()) continue;
        const int head = of_queue_[q][next[q]];
        double begin = free[q];
        bool ready = true;
        for (const int other : after_[static_cast<size_t>(head)]) {
          if (other < 0) continue;
          ready = ready && ends[static_cast<size_t>(other)] >= 0;
          begin = std::max(begin, ends[static_cast<size_t>(other)]);
        }
        if (ready && (chosen < 0 || begin < earliest)) chosen = head, earliest = begin;
      }
      if (chosen < 0) return ends;
      const Group& group = groups_[static_cast<size_t>(chosen)];
      double end = earliest + group.cycles;
      if (group.bytes > 0) {
        port = std::max(earliest + latency, port) + group.bytes / per_cycle;
        end = std::max(end, port);
      }
      ends[static_cast<size_t>(chosen)] = free[static_cast<size_t>(group.queue)] = end;
      ++next[static_cast<size_t>(group.queue)];
    }
  }

 private:
  const Accelerator& unit_;
  std::vector<Group> groups_;
  std::vector<std::vector<int>> after_, of_queue_;
};

// The first `count` tiles in the order of UnitKernel's loops. Answers the last group of each.
std::vector<int> add_tiles(GroupRace& race, const TileGroups& tile, const UnitRoles& roles, const Contraction& of,
                           const Cover& cover, int64_t count) {
  using Kind = CoverOperand::Kind;
  const TileSizes& sizes = tile.sizes;
  const size_t x_buffers = static_cast<size_t>(sizes.x_threads), w_buffers = static_cast<size_t>(sizes.w_threads),
               sum_buffers = static_cast<size_t>(sizes.sum_threads);
  // The last group that reads each buffer; of what a tile's steps compute also the last that writes it.
  std::vector<int> x_read(x_buffers, -1), w_read(w_buffers, -1), sums_read(sum_buffers, -1);
  std::vector<int> value_read(sizes.buffers.size(), -1), value_written(sizes.buffers.size(), -1),
      cleared(sum_buffers, -1);
  int stream_read = -1, x = -1, w = -1;
  int64_t x_count = 0, w_count = 0;
  std::vector<int> last;
  const auto clear = [&](int64_t t) {
    const size_t sums = static_cast<size_t>(t) % sum_buffers;
    cleared[sums] = race.add(tile.clear, {sums_read[sums]});
  };
  const bool ahead = sizes.clears_ahead(roles);
  for (int64_t t = 0; t < count; ++t) {
    const size_t sums = static_cast<size_t>(t) % sum_buffers;
    int product = -1, stream = -1;
    if (of.reduction) {
      if (!ahead || t == 0) clear(t);
      for (int64_t step = 0; step < sizes.steps; ++step) {
        if (!sizes.x_once || t % sizes.tiles_out == 0)
          x = race.add(tile.load_x, {x_read[static_cast<size_t>(x_count++) % x_buffers]});
        if (!sizes.w_once || t % sizes.tiles_of_places == 0)
          w = race.add(tile.load_w, {w_read[static_cast<size_t>(w_count++) % w_buffers]});
        product = race.add(tile.multiply, {x, w, cleared[sums]});
        x_read[static_cast<size_t>(x_count - 1) % x_buffers] = product;
        w_read[static_cast<size_t>(w_count - 1) % w_buffers] = product;
      }
      if (ahead && t + 1 < count) clear(t + 1);
    }
    for (size_t s = 0; s < cover.streams.size(); ++s) stream = race.add(tile.load_stream, {stream_read});
    const auto compute = [&](const CoverStep& step, const Group& group, size_t buffer) {
      std::vector<int> after;
      for (const CoverOperand& operand : step.operands) {
        if (operand.kind == Kind::kSum) after.push_back(product);
        if (operand.kind == Kind::kStream) after.push_back(stream);
        if (operand.kind == Kind::kStep) after.push_back(value_written[sizes.buffer_of[operand.number]]);
      }
      if (buffer != SIZE_MAX) after.push_back(value_read[buffer]), after.push_back(value_written[buffer]);
      const int number = race.add(group, after);
      for (const CoverOperand& operand : step.operands) {
        if (operand.kind == Kind::kSum) sums_read[sums] = number;
        if (operand.kind == Kind::kStream) stream_read = number;
        if (operand.kind == Kind::kStep) value_read[sizes.buffer_of[operand.number]] = number;
      }
      if (buffer != SIZE_MAX) value_written[buffer] = number;
      return number;
    };
    for (size_t s = 0; s < cover.steps.size(); ++s) compute(cover.steps[s], tile.maps[s], sizes.buffer_of[s]);
    last.push_back(compute(cover.store, tile.store, SIZE_MAX));
  }
  return last;
}

}  // namespace

double CycleEstimate::busiest(const UnitTiling& tiling) const {
  const TileGroups tile(unit_, roles_, of_, cover_, tiling);
  std::vector<double> busy(unit_.queues.size(), 0);
  double bytes = 0;
  const auto add = [&](const Group& group, int64_t times) {
    const double moved = group.bytes / static_cast<double>(unit_.dram_bytes_per_cycle),
                 waited = group.bytes > 0 ? static_cast<double>(unit_.dram_latency) : 0;
    busy[static_cast<size_t>(group.queue)] += static_cast<double>(times) * std::max(group.cycles, waited + moved);
    bytes += static_cast<double>(times) * moved;
  };
  add(tile.load_x, tile.x_loads);
  add(tile.load_w, tile.w_loads);
  if (of_.reduction) {
    add(tile.clear, tile.tiles);
    add(tile.multiply, tile.tiles * tile.sizes.steps);
  }
  add(tile.load_stream, tile.tiles * static_cast<int64_t>(cover_.streams.size()));
  for (const Group& map : tile.maps) add(map, tile.tiles);
  add(tile.store, tile.tiles);
  return std::max(*std::max_element(busy.begin(), busy.end()), bytes);
}

double CycleEstimate::cycles(const UnitTiling& tiling) const {
  const TileGroups tile(unit_, roles_, of_, cover_, tiling);
  const int64_t of_a_tile = 3 * tile.sizes.steps + 2 + static_cast<int64_t>(tile.maps.size() + cover_.streams.size());
  const int64_t count = std::min(tile.tiles, std::max<int64_t>(kMostGroups / of_a_tile, 6));
  GroupRace race(unit_);
  const std::vector<int> last = add_tiles(race, tile, roles_, of_, cover_, count);
  const std::vector<double> ends = race.run();
  const auto end_of = [&](int64_t t) { return ends[static_cast<size_t>(last[static_cast<size_t>(t)])]; };
  double cycles = end_of(count - 1);
  if (count < tile.tiles) {
    const int64_t half = count / 2;
    const double each = (end_of(count - 1) - end_of(half - 1)) / static_cast<double>(count - half);
    cycles += each * static_cast<double>(tile.tiles - count);
  }
  return std::max(cycles, busiest(tiling));
}

}  // namespace tessera::inline network
