#include "generate/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <vector>

namespace tessera::inline generate {
namespace {

// numpy's SeedSequence for one number: 256 bits.
std::array<uint64_t, 4> spread(uint64_t seed) {
  constexpr uint32_t kInitA = 0x43b0d7e5, kMultA = 0x931e8875, kInitB = 0x8b51f9dd, kMultB = 0x58f38ded;
  constexpr uint32_t kMixLeft = 0xca01f9dd, kMixRight = 0x4973f715;
  uint32_t constant = kInitA;
  const auto hash = [&](uint32_t value) {
    value ^= constant;
    constant *= kMultA;
    value *= constant;
    return value ^ (value >> 16);
  };
  std::array<uint32_t, 4> pool = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), 0, 0};
  for (uint32_t& word : pool) word = hash(word);
  for (size_t from = 0; from < pool.size(); ++from)
    for (size_t to = 0; to < pool.size(); ++to)
      if (from != to) {
        const uint32_t mixed = kMixLeft * pool[to] - kMixRight * hash(pool[from]);
        pool[to] = mixed ^ (mixed >> 16);
      }
  constant = kInitB;
  std::array<uint64_t, 4> state{};
  for (size_t i = 0; i < 8; ++i) {
    uint32_t value = pool[i % 4] ^ constant;
    constant *= kMultB;
    value *= constant;
    value ^= value >> 16;
    state[i / 2] |= static_cast<uint64_t>(value) << (32 * (i % 2));
  }
  return state;
}

Uint128 joined(uint64_t high, uint64_t low) { return static_cast<Uint128>(high) << 64 | low; }

const Uint128 kMultiplier = joined(0x2360ED051FC65DA4, 0x4385DF649FCCF645);

}  // namespace

RandomNumbers::RandomNumbers(uint64_t seed) {
  const auto state = spread(seed);
  increment_ = joined(state[2], state[3]) << 1 | 1;
  state_ = increment_ + joined(state[0], state[1]);
  state_ = state_ * kMultiplier + increment_;
}

double RandomNumbers::next() {
  state_ = state_ * kMultiplier + increment_;
  const auto high = static_cast<uint64_t>(state_ >> 64), low = static_cast<uint64_t>(state_);
  const uint64_t bits = std::rotr(high ^ low, static_cast<int>(high >> 58));
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

int32_t choose_token(std::span<const float> scores, const Sampling& sampling, RandomNumbers& random) {
  if (sampling.temperature == 0)
    return static_cast<int32_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
  const auto score = [&](int32_t token) { return scores[static_cast<size_t>(token)] / sampling.temperature; };
  std::vector<int32_t> best(scores.size());
  std::iota(best.begin(), best.end(), 0);
  std::stable_sort(best.begin(), best.end(), [&](int32_t a, int32_t b) {
    return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
  });
  if (sampling.top_k > 0 && sampling.top_k < std::ssize(best)) best.resize(static_cast<size_t>(sampling.top_k));
  std::vector<double> sums;  // of chances, from the best one on
  double sum = 0;
  for (const int32_t token : best) sums.push_back(sum += std::exp(score(token) - score(best[0])));
  size_t count = best.size();
  if (sampling.top_p < 1) {
    const auto enough = std::lower_bound(sums.begin(), sums.end(), sampling.top_p * sum);
    count = std::min(static_cast<size_t>(enough - sums.begin()) + 1, count);
  }
  const double drawn = random.next() * sums[count - 1];
  const auto found = std::upper_bound(sums.begin(), sums.begin() + static_cast<std::ptrdiff_t>(count), drawn);
  return best[std::min(static_cast<size_t>(found - sums.begin()), count - 1)];
}

}  // namespace tessera::inline generate
