// Scaling of integer sums in floats: the same numbers as LiteRT's integers for every sum that there can be.
#include "import/tflite/fixed_point.h"

#include <algorithm>
#include <cmath>
#include <random>

#include <gtest/gtest.h>

namespace tessera {
namespace {

struct Found {
  int found = 0, of = 0;
};

// Holds each scale that is found against the integers, at all sums within the bounds or, of many, at a part of them.
Found check_scales(double least, double most, int64_t reach, FixedRounding rounding, bool bounded) {
  std::mt19937 random(17);
  std::uniform_real_distribution<double> exponent(std::log(least), std::log(most));
  Found result;
  for (int i = 0; i < 40; ++i) {
    const FixedScale scale = fixed_scale(std::exp(exponent(random)));
    const StoredRange range{-128, 127, static_cast<int64_t>(random() % 256) - 128};
    const SumBounds bounds{-reach + static_cast<int64_t>(random() % 100), reach};
    const auto floats = bounded ? float_scale(scale, rounding, range, bounds) : float_scale(scale, rounding, range);
    ++result.of;
    if (!floats) continue;
    ++result.found;
    const int64_t step = std::max<int64_t>(1, reach / 20000);
    for (int64_t x = bounds.low; x <= bounds.high; x += step) {
      const auto value = static_cast<float>(x);
      const float offset = x < 0 ? floats->offset_below : floats->offset;
      volatile float product = value * floats->scale;
      const int64_t want =
          std::clamp(multiply(static_cast<int32_t>(x), scale, rounding) + range.zero, range.low, range.high);
      for (const float sum : {product + offset, std::fma(value, floats->scale, offset)}) {
        const auto got = static_cast<int64_t>(std::clamp(std::nearbyint(sum), -128.0F, 127.0F));
        EXPECT_EQ(got, want) << "x " << x << ", factor " << scale.factor << ", shift " << scale.shift;
        if (got != want) return result;
      }
    }
  }
  return result;
}

TEST(FixedPoint, FloatsGiveWhatIntegersGive) {
  for (const FixedRounding rounding : {FixedRounding::kTwice, FixedRounding::kOnce})
    for (const bool bounded : {false, true}) {
      const Found found = check_scales(5e-4, 0.05, 400000, rounding, bounded);
      EXPECT_GT(found.found * 2, found.of) << bounded;
    }
}

// Steps that no sum reaches need not be where the integers have them: outputs whose weights are all small have scales
// of which floats have too few digits for all sums of 32 bits.
TEST(FixedPoint, BoundsMakeRoomForSmallScales) {
  for (const FixedRounding rounding : {FixedRounding::kTwice, FixedRounding::kOnce}) {
    const Found all = check_scales(1e-7, 1e-6, 500000, rounding, false);
    const Found within = check_scales(1e-7, 1e-6, 500000, rounding, true);
    EXPECT_EQ(within.found, within.of);
    EXPECT_LT(all.found, within.found);
  }
}

TEST(FixedPoint, SumsOfOneSign) {
  const FixedScale scale = fixed_scale(0.003);
  for (const SumBounds bounds : {SumBounds{0, 1000}, SumBounds{-1000, -1}, SumBounds{7, 7}})
    EXPECT_TRUE(float_scale(scale, FixedRounding::kTwice, {-128, 127, 3}, bounds).has_value());
}

}  // namespace
}  // namespace tessera
