#include "generate/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <vector>

namespace tessera {
namespace {

// numpy.random.default_rng(seed).random()
TEST(Sampler, DrawsWhatNumpyDraws) {
  const std::map<uint64_t, std::vector<double>> wanted = {
      {0, {0.6369616873214543, 0.2697867137638703}},
      {1, {0.5118216247002567, 0.9504636963259353, 0.14415961271963373}},
      {(uint64_t{1} << 40) + 7, {0.829812891829413, 0.25530515834910417}}};
  for (const auto& [seed, numbers] : wanted) {
    RandomNumbers random(seed);
    for (const double number : numbers) EXPECT_EQ(random.next(), number) << seed;
  }
}

TEST(Sampler, TakesTheFirstOfTheBestWithoutATemperature) {
  RandomNumbers random(1);
  EXPECT_EQ(choose_token(std::vector<float>{1, 3, 2, 3}, {}, random), 1);
  EXPECT_EQ(choose_token(std::vector<float>{-1}, {}, random), 0);
}

// How often each token is drawn.
std::vector<double> shares(const std::vector<float>& scores, const Sampling& sampling) {
  constexpr int kDraws = 40'000;
  RandomNumbers random(7);
  std::vector<double> found(scores.size(), 0);
  for (int i = 0; i < kDraws; ++i) found[static_cast<size_t>(choose_token(scores, sampling, random))] += 1.0 / kDraws;
  return found;
}

TEST(Sampler, DrawsByTheChances) {
  const std::vector<float> scores = {0, std::log(3.0F), std::log(2.0F), std::log(4.0F)};
  const auto expect = [&](const Sampling& sampling, const std::vector<double>& chances) {
    const std::vector<double> found = shares(scores, sampling);
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], chances[i], 0.01) << i;
  };
  expect({.temperature = 1}, {0.1, 0.3, 0.2, 0.4});
  expect({.temperature = 0.5}, {1.0 / 30, 9.0 / 30, 4.0 / 30, 16.0 / 30});
  expect({.temperature = 1, .top_k = 2}, {0, 3.0 / 7, 0, 4.0 / 7});
  expect({.temperature = 1, .top_p = 0.75}, {0, 3.0 / 9, 2.0 / 9, 4.0 / 9});
  expect({.temperature = 1, .top_k = 3, .top_p = 0.4}, {0, 0, 0, 1});
}

// By sorting all tokens and adding all chances.
int32_t chosen_slowly(const std::vector<float>& scores, const Sampling& sampling, RandomNumbers& random) {
  std::vector<int32_t> best(scores.size());
  std::iota(best.begin(), best.end(), 0);
  const auto score = [&](int32_t token) { return scores[static_cast<size_t>(token)] / sampling.temperature; };
  std::ranges::stable_sort(best, std::greater(), score);
  if (sampling.top_k > 0 && sampling.top_k < std::ssize(best)) best.resize(static_cast<size_t>(sampling.top_k));
  std::vector<double> sums;
  double sum = 0;
  for (const int32_t token : best) sums.push_back(sum += std::exp(score(token) - score(best[0])));
  size_t count = best.size();
  if (sampling.top_p < 1)
    count = static_cast<size_t>(std::ranges::lower_bound(sums, sampling.top_p * sum) - sums.begin()) + 1;
  const double drawn = random.next() * sums[count - 1];
  return best[static_cast<size_t>(std::ranges::upper_bound(sums, drawn) - sums.begin())];
}

TEST(Sampler, DrawsAsTheSlowWayDoes) {
  std::mt19937_64 engine(3);
  for (const size_t size : {1, 2, 63, 64, 65, 500, 20'000}) {
    std::normal_distribution<float> normal(0, size % 2 == 0 ? 3.0F : 0.1F);  // flat ones need many tokens
    for (uint64_t round = 0; round < 40; ++round) {
      std::vector<float> scores(size);
      for (float& score : scores) score = std::round(normal(engine) * 8) / 8;  // equal ones among them
      const Sampling sampling = {.temperature = 0.5 + 0.1 * static_cast<double>(round % 10),
                                 .top_k = static_cast<int64_t>(round % 3 == 0 ? 1 + engine() % (size + 2) : 0),
                                 .top_p = round % 4 < 2 ? 1.0 : 0.3 + 0.1 * static_cast<double>(round % 7)};
      RandomNumbers random(round), same(round);
      EXPECT_EQ(choose_token(scores, sampling, random), chosen_slowly(scores, sampling, same)) << size << " " << round;
    }
  }
}

TEST(Sampler, TakesSomeTokenWhereScoresAreNoNumbers) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();
  RandomNumbers random(1);
  std::vector<float> scores(1000, kNan);
  for (const float other : {kNan, 1.0F, kInfinity, -kInfinity})
    for (const Sampling& sampling : {Sampling{.temperature = 1}, Sampling{.temperature = 1, .top_k = 5},
                                     Sampling{.temperature = 1, .top_p = 0.5}, Sampling{}}) {
      scores[7] = other;
      const int32_t token = choose_token(scores, sampling, random);
      EXPECT_TRUE(token >= 0 && token < 1000);
      if (other == 1.0F && sampling.temperature > 0) {
        EXPECT_EQ(token, 7);
      }
    }
}

}  // namespace
}  // namespace tessera
