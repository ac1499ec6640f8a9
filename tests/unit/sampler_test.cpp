#include "generate/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
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

}  // namespace
}  // namespace tessera
