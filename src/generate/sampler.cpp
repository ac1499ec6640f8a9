#include "generate/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
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

// Tokens from the best one on, of equal ones the first, with the sums of their chances. Only as many are sorted as are
// looked at, for the best few have nearly all of the chance. What is no number is the worst.
class BestFirst {
 public:
  BestFirst(std::span<const float> scores, const Sampling& sampling)
      : scores_(scores), temperature_(sampling.temperature), tokens_(scores.size()) {
    std::iota(tokens_.begin(), tokens_.end(), 0);
    for (const int32_t token : tokens_) best_ = std::max(best_, score(token));
    if (sampling.top_k > 0 && sampling.top_k < std::ssize(tokens_)) {
      sort_to(static_cast<size_t>(sampling.top_k));
      tokens_.resize(sums_.size());
      total_ = sums_.back();
    } else {
      for (const int32_t token : tokens_) total_ += chance(token);
    }
  }

  double total() const { return total_; }
  double sum(size_t place) const { return sums_[place]; }
  int32_t token(size_t place) const { return tokens_[place]; }

  // The first place whose sum `reaches`; the last one where none does.
  template <typename Reaches>
  size_t first_place(const Reaches& reaches) {
    for (size_t begin = 0;; begin = sums_.size()) {
      if (begin == sums_.size()) sort_to(std::min(std::max<size_t>(8 * begin, 64), tokens_.size()));
      const auto rest = sums_.begin() + static_cast<std::ptrdiff_t>(begin);
      const auto found = std::partition_point(rest, sums_.end(), [&](double sum) { return !reaches(sum); });
      if (found != sums_.end() || sums_.size() == tokens_.size())
        return std::min(static_cast<size_t>(found - sums_.begin()), tokens_.size() - 1);
    }
  }

 private:
  double score(int32_t token) const {
    const float score = scores_[static_cast<size_t>(token)];
    return std::isnan(score) ? -std::numeric_limits<double>::infinity() : score;
  }
  double chance(int32_t token) const { return std::exp(score(token) / temperature_ - best_ / temperature_); }

  // Sorts on to the first `count` tokens. REQUIRES: more than are sorted.
  void sort_to(size_t count) {
    const auto better = [&](int32_t a, int32_t b) {
      const double left = score(a), right = score(b);
      return left != right ? left > right : a < b;
    };
    const auto begin = tokens_.begin() + std::ssize(sums_), end = tokens_.begin() + static_cast<std::ptrdiff_t>(count);
    std::nth_element(begin, end - 1, tokens_.end(), better);
    std::sort(begin, end, better);
    double sum = sums_.empty() ? 0 : sums_.back();
    for (auto token = begin; token != end; ++token) sums_.push_back(sum += chance(*token));
  }

  std::span<const float> scores_;
  double temperature_, best_ = -std::numeric_limits<double>::infinity(), total_ = 0;
  std::vector<int32_t> tokens_;  // as many sorted as there are sums
  std::vector<double> sums_;     // of chances, from the best token on
};

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
  BestFirst tokens(scores, sampling);
  double sum = tokens.total();
  size_t last = scores.size();
  if (sampling.top_p < 1) {
    const double wanted = sampling.top_p * sum;
    last = tokens.first_place([&](double reached) { return reached >= wanted; });
    sum = tokens.sum(last);
  }
  const double drawn = random.next() * sum;
  return tokens.token(std::min(tokens.first_place([&](double reached) { return reached > drawn; }), last));
}

}  // namespace tessera::inline generate
