#include <algorithm>
#include <array>
#include <numeric>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "accel/network/estimate.h"
#include "accel/network/tile_sizes.h"
#include "accel/network/unit_kernel.h"

namespace tessera::inline network {

namespace {

// Of each form, those that are looked at closely.
constexpr size_t kMostEstimated = 400;

// Extents that cut `extent` into equal parts, but for the last.
std::vector<int64_t> cuts(int64_t extent, size_t most) {
  std::set<int64_t, std::greater<>> result;
  for (int64_t parts = 1; parts <= extent; ++parts) result.insert((extent + parts - 1) / parts);
  std::vector<int64_t> all(result.begin(), result.end());
  if (all.size() <= most) return all;
  std::vector<int64_t> some;  // more of the small ones are left out
  for (size_t i = 0; i < most; ++i) some.push_back(all[i * (all.size() - 1) / (most - 1)]);
  return some;
}

std::vector<int64_t> powers_below(int64_t extent) {
  std::vector<int64_t> result;
  for (int64_t n = 1; n < extent; n *= 2) result.push_back(n);
  result.push_back(extent);
  return result;
}

}  // namespace

TileSizes::TileSizes(const UnitRoles& roles, const Contraction& of, const Cover& cover, const UnitTiling& tiling) {
  const UnitProduct& product = roles.product;
  blocks_out_all = blocks_of(of.channels, product.out);
  tiles_out = (blocks_out_all + tiling.blocks_out - 1) / tiling.blocks_out;
  for (size_t p = 0; p < of.place_extents.size(); ++p) {
    tiles_of.push_back((of.place_extents[p] + tiling.places[p] - 1) / tiling.places[p]);
    tiles_of_places *= tiles_of.back();
  }
  if (of.reduction) {
    blocks_in_all = blocks_of(of.summed_channels, product.in);
    steps = (blocks_in_all + tiling.blocks_in - 1) / tiling.blocks_in;
    size_t last = SIZE_MAX;
    for (size_t d = 0; d < of.x_dims.size(); ++d)
      if (d != of.x_channel_dim) last = d;
    for (size_t d = 0; d < of.x_dims.size(); ++d) {
      if (d == of.x_channel_dim) continue;
      const PlaceDim& dim = of.x_dims[d];
      int64_t span = 0;
      for (const auto& [w, by] : dim.windows) span += by * (of.windows[static_cast<size_t>(w)].extent - 1);
      // Of the last dimension, places that nobody reads lie between others in memory.
      const bool is_compact = dim.windows.empty() && d != last;
      const int64_t tile = dim.axis >= 0 ? tiling.places[static_cast<size_t>(dim.axis)] : 1;
      x_dim.push_back(d);
      compact.push_back(is_compact);
      spans.push_back(span);
      local.push_back(is_compact ? tile : std::max<int64_t>(dim.stride, 1) * (tile - 1) + span + 1);
    }
    x_once = steps == 1 && tiling.channels_inner;
    w_once = steps == 1 && !tiling.channels_inner;
    const int64_t x_vectors =
        std::accumulate(local.begin(), local.end(), tiling.blocks_in, [](int64_t a, int64_t b) { return a * b; });
    const int64_t x_loads = x_once ? tiles_of_places : tiles_out * tiles_of_places * steps;
    const int64_t w_loads = w_once ? tiles_out : tiles_out * tiles_of_places * steps;
    x_threads = x_loads > 1 ? tiling.x_threads : 1;
    w_threads = w_loads > 1 ? tiling.w_threads : 1;
    x_bytes = x_threads * x_vectors * product.in * dtype_bytes(product.x_dtype, 1);
    w_bytes = w_threads * tiling.blocks_out * tiling.blocks_in * of.window() * product.in * product.out *
              dtype_bytes(product.w_dtype, 1);
  }
  vectors = tiling.blocks_out;
  for (const int64_t extent : tiling.places) vectors *= extent;
  plan_buffers(of, cover, tiling, product.instruction->queue);
  const int64_t tile_bytes = vectors * product.out * 4;
  sums_bytes =
      tile_bytes * (static_cast<int64_t>(buffers.size() + cover.streams.size()) + (of.reduction ? sum_threads : 0)) +
      static_cast<int64_t>(cover.rows.size()) * blocks_out_all * product.out * 4;
}

void TileSizes::plan_buffers(const Contraction& of, const Cover& cover, const UnitTiling& tiling, int product_queue) {
  // A step's result takes the buffer of one that is read for the last time before.
  using Kind = CoverOperand::Kind;
  std::vector<size_t> last_read(cover.steps.size(), 0);
  const auto reads = [&](const CoverStep& step, size_t at) {
    for (const CoverOperand& operand : step.operands)
      if (operand.kind == Kind::kStep) last_read[operand.number] = at;
  };
  for (size_t s = 0; s < cover.steps.size(); ++s) reads(cover.steps[s], s);
  reads(cover.store, cover.steps.size());
  std::vector<size_t> free_from;  // of each buffer: the first step that may write it
  for (size_t s = 0; s < cover.steps.size(); ++s) {
    const DType dtype = cover.steps[s].map->dtype;
    size_t chosen = SIZE_MAX;
    for (size_t b = 0; b < buffers.size() && chosen == SIZE_MAX; ++b)
      if (buffers[b] == dtype && free_from[b] <= s) chosen = b;
    if (chosen == SIZE_MAX) {
      chosen = buffers.size();
      buffers.push_back(dtype);
      free_from.push_back(0);
    }
    free_from[chosen] = last_read[s] + 1;
    buffer_of.push_back(chosen);
  }
  // Sums of the next tile are begun while those of the last are still read, where that is another queue's work.
  const auto is_read_elsewhere = [&](const CoverStep& step) {
    return step.map->instruction->queue != product_queue &&
           std::any_of(step.operands.begin(), step.operands.end(),
                       [](const CoverOperand& operand) { return operand.kind == Kind::kSum; });
  };
  const bool elsewhere =
      is_read_elsewhere(cover.store) || std::any_of(cover.steps.begin(), cover.steps.end(), is_read_elsewhere);
  sum_threads = of.reduction && elsewhere && tiles_out * tiles_of_places > 1 ? tiling.sum_threads : 1;
}

bool TileSizes::clears_ahead(const UnitRoles& roles) const {
  return sum_threads > 1 && roles.clear->queue != roles.product.instruction->queue;
}

namespace {

int64_t capacity(const Accelerator& unit, const UnitRoles& roles, size_t operand) {
  return unit.memories[static_cast<size_t>(roles.product.instruction->operands[operand])].bytes;
}

}  // namespace

bool TileSizes::fit(const Accelerator& unit, const UnitRoles& roles) const {
  const UnitProduct& product = roles.product;
  return x_bytes <= capacity(unit, roles, product.x) && w_bytes <= capacity(unit, roles, product.w) &&
         sums_bytes <= capacity(unit, roles, product.d);
}

std::string to_string(const UnitTiling& tiling) {
  return fmt::format("places [{}] channels {} of {} {} threads {} {} {}", fmt::join(tiling.places, ","),
                     tiling.blocks_out, tiling.blocks_in, tiling.channels_inner ? "inner" : "outer", tiling.x_threads,
                     tiling.w_threads, tiling.sum_threads);
}

std::variant<std::vector<UnitTiling>, NotOffloaded> tilings_of(const Accelerator& unit, const UnitRoles& roles,
                                                               const Contraction& of, const Cover& cover, int threads,
                                                               size_t most) {
  const UnitProduct& product = roles.product;
  const CycleEstimate estimate(unit, roles, of, cover);
  using Found = std::vector<std::pair<double, UnitTiling>>;
  Found single, some, all;  // with more buffers for no operand, for some, for all that are loaded more than once
  TileSizes smallest(roles, of, cover, {std::vector<int64_t>(of.places.size(), 1), 1, 1, true, 1, 1, 1});
  const std::vector<int64_t> blocks_out = powers_below(blocks_of(of.channels, product.out));
  const std::vector<int64_t> blocks_in =
      of.reduction ? powers_below(blocks_of(of.summed_channels, product.in)) : std::vector<int64_t>{1};
  UnitTiling tiling;
  tiling.places.assign(of.places.size(), 1);
  const auto try_one = [&](int x, int w, int sums) {
    tiling.x_threads = x, tiling.w_threads = w, tiling.sum_threads = sums;
    const TileSizes sizes(roles, of, cover, tiling);
    // Where buffers would never change, it is another's tiling.
    if (sizes.x_threads < x || sizes.w_threads < w || sizes.sum_threads < sums) return;
    if (!sizes.fit(unit, roles)) return;
    UnitTiling more = tiling;
    more.x_threads = more.w_threads = more.sum_threads = threads;
    const TileSizes most_buffers(roles, of, cover, more);
    const bool is_all = x == most_buffers.x_threads && w == most_buffers.w_threads && sums == most_buffers.sum_threads;
    (std::max({x, w, sums}) == 1 ? single : is_all ? all : some).emplace_back(estimate.busiest(tiling), tiling);
  };
  const auto try_all = [&] {
    for (int x = 1; x <= threads; ++x)
      for (int w = 1; w <= threads; ++w)
        for (int sums = 1; sums <= threads; ++sums) try_one(x, w, sums);
  };
  const std::function<void(size_t)> each_place = [&](size_t p) {
    if (p == of.places.size()) {
      for (const int64_t out : blocks_out)
        for (const int64_t in : blocks_in)
          for (const bool inner : {true, false}) {
            tiling.blocks_out = out, tiling.blocks_in = in, tiling.channels_inner = inner;
            try_all();
          }
      return;
    }
    // Tiles are whole along the last axis before they have several places of others.
    const size_t from_last = of.places.size() - 1 - p;
    const std::vector<int64_t> choices = cuts(of.place_extents[p], from_last == 0 ? 6 : from_last == 1 ? 16 : 3);
    for (const int64_t extent : choices) {
      tiling.places[p] = extent;
      each_place(p + 1);
    }
  };
  each_place(0);
  if (single.empty() && some.empty() && all.empty()) {
    const auto name = [&](size_t p) {
      return unit.memories[static_cast<size_t>(product.instruction->operands[p])].name;
    };
    return NotOffloaded{fmt::format(
        "its smallest tile needs {} bytes of {}, {} of {} and {} of {}, which have {}, {} and {}", smallest.x_bytes,
        name(product.x), smallest.w_bytes, name(product.w), smallest.sums_bytes, name(product.d),
        capacity(unit, roles, product.x), capacity(unit, roles, product.w), capacity(unit, roles, product.d))};
  }
  std::vector<UnitTiling> result;
  for (Found* found : {&all, &some, &single}) {
    const auto sort = [&] {
      std::stable_sort(found->begin(), found->end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    };
    sort();
    if (found->size() > kMostEstimated) found->resize(kMostEstimated);
    for (auto& [cycles, candidate] : *found) cycles = estimate.cycles(candidate);
    sort();
    for (size_t i = 0; i < std::min(most, found->size()); ++i) result.push_back((*found)[i].second);
  }
  return result;
}

}  // namespace tessera::inline network
