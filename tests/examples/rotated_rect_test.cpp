#include "text_detect/rotated_rect.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace example {
namespace {

TEST(MinAreaRect, OnePointIsEmpty) {
  const RotatedRect rect = min_area_rect({{3, 4}});
  EXPECT_EQ(rect.center.x, 3);
  EXPECT_EQ(rect.center.y, 4);
  EXPECT_EQ(rect.length, 0);
  EXPECT_EQ(rect.breadth, 0);
}

TEST(MinAreaRect, PointsOnALineHaveNoBreadth) {
  const RotatedRect rect = min_area_rect({{0, 0}, {2, 2}, {1, 1}, {4, 4}, {4, 4}});
  EXPECT_NEAR(rect.shorter_side(), 0, 1e-5f);
  EXPECT_NEAR(std::max(rect.length, rect.breadth), std::sqrt(32.0f), 1e-4f);
}

TEST(MinAreaRect, UprightRectangleKeepsItsCorners) {
  const auto corners = min_area_rect({{1, 2}, {9, 2}, {9, 5}, {1, 5}, {4, 3}}).corners();
  const std::array<Point, 4> expected{Point{1, 2}, {9, 2}, {9, 5}, {1, 5}};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_FLOAT_EQ(corners[i].x, expected[i].x);
    EXPECT_FLOAT_EQ(corners[i].y, expected[i].y);
  }
}

// Against a brute-force search over angles: contains every point, and no sampled angle gives a smaller area.
TEST(MinAreaRect, IsSmallestOnRandomPoints) {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> coordinate(-50, 50);
  for (int round = 0; round < 200; ++round) {
    std::vector<Point> points(3 + random() % 20);
    for (Point& p : points) p = {coordinate(random), coordinate(random) * 0.3f};
    const RotatedRect rect = min_area_rect(points);
    for (const Point& p : points) {
      const float dx = p.x - rect.center.x, dy = p.y - rect.center.y;
      EXPECT_LE(std::abs(dx * rect.axis.x + dy * rect.axis.y), rect.length / 2 + 1e-3f);
      EXPECT_LE(std::abs(dy * rect.axis.x - dx * rect.axis.y), rect.breadth / 2 + 1e-3f);
    }
    for (int step = 0; step < 90; ++step) {
      const float c = std::cos(float(step) * 3.14159265f / 180), s = std::sin(float(step) * 3.14159265f / 180);
      float low_u = 1e9f, high_u = -1e9f, low_v = 1e9f, high_v = -1e9f;
      for (const Point& p : points) {
        const float u = p.x * c + p.y * s, v = p.y * c - p.x * s;
        low_u = std::min(low_u, u), high_u = std::max(high_u, u);
        low_v = std::min(low_v, v), high_v = std::max(high_v, v);
      }
      EXPECT_LE(rect.length * rect.breadth, (high_u - low_u) * (high_v - low_v) * 1.0001f + 1e-3f) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace example
