#include "common/quad.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace example {
namespace {

constexpr Quad kTrapezoid{Point{10, 20}, Point{110, 5}, Point{120, 80}, Point{-3, 61}};

TEST(Perspective, MapsCornersToCorners) {
  const Perspective map = Perspective::to_quad(kTrapezoid, 30, 7);
  const Point corners[] = {{0, 0}, {30, 0}, {30, 7}, {0, 7}};
  for (int i = 0; i < 4; ++i) {
    EXPECT_NEAR(map(corners[i]).x, kTrapezoid[i].x, 1e-4) << i;
    EXPECT_NEAR(map(corners[i]).y, kTrapezoid[i].y, 1e-4) << i;
  }
}

TEST(Perspective, InverseTakesEveryPointBack) {
  const Perspective map = Perspective::to_quad(kTrapezoid, 30, 7), back = map.inverse();
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    const Point p{std::uniform_real_distribution<float>(0, 30)(random),
                  std::uniform_real_distribution<float>(0, 7)(random)};
    EXPECT_NEAR(back(map(p)).x, p.x, 1e-3);
    EXPECT_NEAR(back(map(p)).y, p.y, 1e-3);
  }
}

TEST(Perspective, StraightLinesStayStraight) {
  const Perspective map = Perspective::to_quad(kTrapezoid, 1, 1);
  const Point a = map({0.1f, 0.2f}), b = map({0.4f, 0.5f}), c = map({0.7f, 0.8f});
  EXPECT_NEAR((b.x - a.x) * (c.y - a.y) - (b.y - a.y) * (c.x - a.x), 0, 1e-2);
}

TEST(Perspective, AQuadWithoutAreaIsNoDisaster) {
  const Quad line{Point{5, 5}, Point{9, 5}, Point{9, 5}, Point{5, 5}};
  const Point p = Perspective::to_quad(line, 4, 1)({2, 0.5f});
  EXPECT_NEAR(p.x, 7, 1e-4);
  EXPECT_NEAR(p.y, 5, 1e-4);
  EXPECT_LT(Perspective::to_quad(line, 4, 1).inverse()({7, 5}).x, -1000);
}

// Pixel (x, y) has red 10 x, green 10 y.
Image ramp(int width, int height) {
  Image image(width, height);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x)
      image.pixel(x, y)[0] = std::uint8_t(10 * x), image.pixel(x, y)[1] = std::uint8_t(10 * y);
  }
  return image;
}

TEST(CutOut, TakesAnUprightPart) {
  // The outline runs between pixel centres 4.5 and 8.5: pixels 5 to 8.
  const Image part =
      cut_out(ramp(20, 12), {Point{4.5f, 2.5f}, Point{8.5f, 2.5f}, Point{8.5f, 4.5f}, Point{4.5f, 4.5f}});
  ASSERT_EQ(part.width, 4);
  ASSERT_EQ(part.height, 2);
  for (int y = 0; y < 2; ++y) {
    for (int x = 0; x < 4; ++x) {
      EXPECT_EQ(part.pixel(x, y)[0], 10 * (x + 5));
      EXPECT_EQ(part.pixel(x, y)[1], 10 * (y + 3));
    }
  }
}

TEST(CutOut, OutsideThePictureIsItsEdge) {
  const Image part =
      cut_out(ramp(4, 4), {Point{-3.5f, -0.5f}, Point{0.5f, -0.5f}, Point{0.5f, 0.5f}, Point{-3.5f, 0.5f}});
  for (int x = 0; x < part.width; ++x) EXPECT_EQ(part.pixel(x, 0)[0], 0);
}

TEST(CutOut, IsAtLeastOnePixel) {
  const Image part = cut_out(ramp(4, 4), {Point{2, 2}, Point{2, 2}, Point{2, 2}, Point{2, 2}});
  EXPECT_EQ(part.width, 1);
  EXPECT_EQ(part.height, 1);
  EXPECT_EQ(part.pixel(0, 0)[0], 20);
}

TEST(Turn, LeftAndAround) {
  const Image image = ramp(3, 2), left = turn_left(image), around = turn_around(image);
  ASSERT_EQ(left.width, 2);
  ASSERT_EQ(left.height, 3);
  EXPECT_EQ(left.pixel(0, 0)[0], 20);  // the top right pixel is now the top left one
  EXPECT_EQ(left.pixel(0, 0)[1], 0);
  EXPECT_EQ(left.pixel(1, 2)[0], 0);  // the bottom left one is the bottom right one
  EXPECT_EQ(left.pixel(1, 2)[1], 10);
  EXPECT_EQ(around.pixel(0, 0)[0], 20);
  EXPECT_EQ(around.pixel(0, 0)[1], 10);
  EXPECT_EQ(turn_left(turn_left(image)).rgb, around.rgb);
}

}  // namespace
}  // namespace example
