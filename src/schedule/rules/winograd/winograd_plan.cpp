#include <fmt/format.h>

#include <algorithm>

#include "schedule/rules/register_tile/tile_shape.h"
#include "schedule/rules/winograd/winograd_match.h"

namespace tessera::inline schedule {
namespace {

// Cost of bringing in `bytes` of weights `times` times, in issue slots of a vector multiply-add, on `threads` that have
// caches of their own and one memory. In a whole network they come from memory the first time and, as far as they fit,
// from a cache after that.
constexpr double kL3 = 1.0 / 9, kL2 = 1.0 / 48;  // per byte

double stream_cost(int64_t bytes, int64_t times, const Target& target, double threads) {
  const double memory = target.ratios.memory_slots;
  const double again = bytes < target.l2_bytes / 2   ? kL2 / threads
                       : bytes < target.l3_bytes / 2 ? kL3 / threads
                                                     : memory;
  return static_cast<double>(bytes) * (memory + static_cast<double>(times - 1) * again);
}

// Weights are prefetched while products are computed.
double overlapped(double compute, double stream) {
  return std::max(compute, stream) + 0.25 * std::min(compute, stream);
}

constexpr double kOnePass = 0.6;  // of the time of two, over rows and columns

// In issue slots of a vector multiply-add of one thread. The weights of a place are read once for each strip.
double plan_cost(const FilteredConv& conv, const WinogradPlan& plan, const Target& target) {
  const int64_t tiles = conv.images * plan.strips * plan.strip;
  const int64_t iterations = conv.images * plan.strips * plan.cuts;
  const int64_t threads = std::min<int64_t>(std::max(1, target.num_threads), iterations);
  const int64_t rounds = (iterations + threads - 1) / threads;
  const int64_t weights = conv.groups * plan.places() * conv.summed_channels() * conv.out_blocks * conv.block * 4;
  const bool small = std::max(plan.alpha_rows, plan.alpha_cols) <= 4;
  // Fewer sums than this at a time wait for each other.
  constexpr double kEnoughSums = 10;
  const double sums = static_cast<double>(plan.strip * std::min<int64_t>(conv.out_blocks, 4));
  const auto products = static_cast<double>(tiles * plan.places() * conv.summed_channels() * conv.out_blocks) /
                        (small ? 0.9 : 0.85) / std::min(1.0, sums / kEnoughSums);
  // The transformed tiles of a strip are read again for each group of outputs; from behind the second level of cache
  // they come more slowly than weights, which lie in the order of use.
  const int64_t v_bytes = plan.places() * conv.block * 4 * conv.summed_blocks() * plan.strip;
  const auto reads = static_cast<double>(conv.images * plan.strips * (conv.out_blocks / plan.group) * v_bytes);
  const auto shared = static_cast<double>(threads);
  const double stream = stream_cost(weights, conv.images / conv.groups * plan.strips, target, shared) +
                        reads * (v_bytes <= target.l2_bytes * 3 / 4 ? kL2 : 2 * kL3) / shared;
  constexpr double kTransform[] = {0, 0, 4, 5, 7};  // of a place, for 4, 6 and 8 inputs along a dimension
  const double passes = plan.m_rows > 1 && plan.m_cols > 1 ? 1 : kOnePass;
  const auto transforms = passes * kTransform[std::max(plan.alpha_rows, plan.alpha_cols) / 2] *
                          static_cast<double>(tiles * plan.places()) *
                          static_cast<double>(conv.summed_blocks() * plan.cuts + conv.out_blocks);
  const double share = static_cast<double>(rounds) / static_cast<double>(iterations);
  return overlapped(products * share, stream) + transforms * share;
}

WinogradPlan make_plan(const FilteredConv& conv, int64_t m, int64_t wanted, int64_t cuts, const Target& target) {
  WinogradPlan plan;
  plan.m = m;
  plan.wanted = wanted;
  plan.cuts = cuts;
  plan.m_rows = conv.window_height > 1 ? m : 1;
  plan.m_cols = conv.window_width > 1 ? m : 1;
  plan.alpha_rows = plan.m_rows + conv.window_height - 1;
  plan.alpha_cols = plan.m_cols + conv.window_width - 1;
  const auto tiles = [](int64_t outputs, int64_t gap, int64_t size) {
    const int64_t own = (outputs + gap - 1) / gap;
    return gap * ((own + size - 1) / size);
  };
  plan.tiles_high = tiles(conv.out_height, conv.row_gap, plan.m_rows);
  plan.tiles_wide = tiles(conv.out_width, conv.column_gap, plan.m_cols);
  plan.strips = std::max<int64_t>(1, (plan.tiles() + wanted - 1) / wanted);
  const int64_t threads_of_strips = (target.num_threads + cuts - 1) / cuts;
  if (conv.images * plan.strips < threads_of_strips) plan.strips = std::min<int64_t>(plan.tiles(), threads_of_strips);
  plan.strip = (plan.tiles() + plan.strips - 1) / plan.strips;
  const int64_t tile_bytes = plan.places() * conv.block * 4;
  const int64_t blocks = conv.out_blocks / cuts;
  plan.group = std::clamp<int64_t>(target.l2_bytes / 3 / (tile_bytes * plan.strip), 1, blocks);
  while (blocks % plan.group != 0) --plan.group;
  plan.cost = plan_cost(conv, plan, target);
  return plan;
}

constexpr int64_t kLeastStrip = 8, kMostStrip = 64;  // tiles

// Of V and M.
constexpr int64_t kMostScratch = 16 << 20;
int64_t scratch_bytes(const FilteredConv& conv, const WinogradPlan& plan) {
  return plan.places() * (plan.v_pitch(conv) + plan.m_pitch()) * conv.block * 4;
}

std::vector<int64_t> divisors(int64_t number) {
  std::vector<int64_t> result;
  for (int64_t d = 1; d <= number; ++d)
    if (number % d == 0) result.push_back(d);
  return result;
}

// Which part of all places of a window over so many outputs lies in the image; direct summation leaves out the rest.
double share_inside(int64_t outputs, int64_t extent, int64_t places, int64_t stride, int64_t gap, int64_t pad) {
  int64_t inside = 0;
  for (int64_t k = 0; k < places; ++k)
    for (int64_t at = 0; at < outputs; ++at) {
      const int64_t input = at * stride + k * gap - pad;
      inside += input >= 0 && input < extent;
    }
  return static_cast<double>(inside) / static_cast<double>(outputs * places);
}

}  // namespace

double direct_cost(const FilteredConv& conv, const Target& target) {
  const int64_t rest = conv.out_channels % conv.block;
  const auto steps = static_cast<double>(conv.window() * conv.summed_channels());
  double row = static_cast<double>(conv.out_blocks) * steps;
  if (rest != 0 && 2 * rest <= conv.block)
    row += std::min(split_block_cost(rest, conv.block, steps, conv.out_width) - steps, 0.0);
  // Without gaps the border is a part of tiles that take as long as others.
  const auto inside_of = [](int64_t outputs, int64_t extent, int64_t places, int64_t gap, int64_t pad) {
    return gap > 1 ? share_inside(outputs, extent, places, 1, gap, pad) : 1.0;
  };
  const double inside =
      inside_of(conv.out_height, conv.height, conv.window_height, conv.row_gap, conv.pad_top) *
      inside_of(conv.out_width, conv.width, conv.window_width, conv.column_gap, conv.pad_left) *
      share_inside(conv.out_depth, conv.depth, conv.frames, conv.stride, conv.dilation, conv.pad_front);
  const double products = inside * static_cast<double>(conv.images * conv.out_height * conv.out_width) * row;
  const auto threads = static_cast<double>(std::max(1, target.num_threads));
  const int64_t weights = conv.groups * conv.window() * conv.summed_channels() * conv.out_blocks * conv.block * 4;
  return overlapped(products / 0.9 / threads, stream_cost(weights, 1, target, threads));
}

std::optional<WinogradPlan> choose_winograd_plan(const FilteredConv& conv, const std::vector<int64_t>& sizes,
                                                 const Target& target) {
  std::optional<WinogradPlan> best;
  for (const int64_t m : sizes) {
    if (!conv.has_matrices(m)) continue;
    for (const int64_t cuts : divisors(conv.out_blocks)) {
      if (cuts > std::max(1, target.num_threads)) break;
      for (int64_t wanted = kLeastStrip; wanted <= kMostStrip; ++wanted) {
        const WinogradPlan plan = make_plan(conv, m, wanted, cuts, target);
        if (scratch_bytes(conv, plan) > kMostScratch) continue;
        if (!best || plan.cost < best->cost) best = plan;
      }
    }
  }
  return best;
}

std::optional<WinogradPlan> choose_open_plan(const FilteredConv& usual, const FilteredConv& large,
                                             const Target& target) {
  const auto own = choose_winograd_plan(usual, {2, 4, 6}, target);
  if (!own) return std::nullopt;
  std::optional<WinogradPlan> best;
  for (int64_t wanted = kLeastStrip; wanted <= kMostStrip; ++wanted) {
    const WinogradPlan plan = make_plan(large, own->m, wanted, own->cuts, target);
    if (scratch_bytes(large, plan) <= kMostScratch && (!best || plan.cost < best->cost)) best = plan;
  }
  if (best) best->cost = own->cost;
  return best;
}

std::string ask_winograd_plan(const FilteredConv& conv, const Target& target, Knobs& knobs,
                              std::optional<WinogradPlan>& plan) {
  std::vector<int64_t> sizes;
  for (const int64_t m : {2, 4, 6})
    if (conv.has_matrices(m)) sizes.push_back(m);
  const int64_t m = knobs.choose("m", sizes, plan->m);
  if (m != plan->m) plan = choose_winograd_plan(conv, {m}, target);
  if (!plan) return "no strip of tiles fits the caches";
  const int64_t wanted = knobs.choose("strip", {8, 12, 16, 24, 32, 48, 64, 96, 128}, plan->wanted);
  const int64_t cuts = knobs.choose("cuts", divisors(conv.out_blocks), plan->cuts);
  if (wanted != plan->wanted || cuts != plan->cuts) plan = make_plan(conv, m, wanted, cuts, target);
  plan->group = knobs.choose("group", divisors(conv.out_blocks), plan->group);
  if (conv.out_blocks / cuts % plan->group != 0)
    return fmt::format("groups of {} blocks do not divide {} of {} blocks", plan->group, conv.out_blocks / cuts,
                       conv.out_blocks);
  const int64_t scratch = scratch_bytes(conv, *plan);
  if (scratch > kMostScratch)
    return fmt::format("a strip takes {} bytes of scratch, more than {}", scratch, kMostScratch);
  return "";
}

}  // namespace tessera::inline schedule
