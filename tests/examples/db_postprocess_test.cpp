// Boxes on probability maps whose answer is known: drawn rectangles, the border, nothing, everything, noise.
#include "text_detect/db_postprocess.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace example {
namespace {

constexpr float kPi = 3.14159265f;

struct Map {
  Map(int width, int height) : width(width), height(height), values(std::size_t(width) * height) {}

  // Sets every position within the rectangle to `probability`.
  void draw(Point center, float length, float breadth, float degrees, float probability = 0.9f) {
    const float c = std::cos(degrees * kPi / 180), s = std::sin(degrees * kPi / 180);
    for (int y = 0; y < height; ++y) {
      for (int x = 0; x < width; ++x) {
        const float dx = float(x) - center.x, dy = float(y) - center.y;
        const bool inside = std::abs(dx * c + dy * s) <= length / 2 && std::abs(dy * c - dx * s) <= breadth / 2;
        if (inside) values[std::size_t(y) * width + x] = probability;
      }
    }
  }
  std::vector<TextBox> boxes(int picture_width = 0, int picture_height = 0, const DbOptions& options = {}) const {
    return find_text_boxes(values, width, height, picture_width > 0 ? picture_width : width,
                           picture_height > 0 ? picture_height : height, options);
  }

  int width, height;
  std::vector<float> values;
};

float distance(Point a, Point b) { return std::hypot(a.x - b.x, a.y - b.y); }

Point center_of(const TextBox& box) {
  Point center;
  for (const Point& corner : box.corners) center.x += corner.x / 4, center.y += corner.y / 4;
  return center;
}

// By how much a side of the core grows on each end.
float unclip_distance(float length, float breadth, float ratio = 1.6f) {
  return length * breadth * ratio / (2 * (length + breadth));
}

TEST(DbPostprocess, EmptyMapHasNoBox) { EXPECT_TRUE(Map(64, 32).boxes().empty()); }

TEST(DbPostprocess, OnePositionMapHasNoBox) {
  Map map(1, 1);
  map.values[0] = 1;
  EXPECT_TRUE(map.boxes().empty());
}

TEST(DbPostprocess, WholeMapIsOneBoxCutToThePicture) {
  Map map(64, 32);
  std::fill(map.values.begin(), map.values.end(), 0.8f);
  const std::vector<TextBox> boxes = map.boxes(640, 320);
  ASSERT_EQ(boxes.size(), 1u);
  EXPECT_NEAR(boxes[0].score, 0.8f, 1e-5f);
  EXPECT_EQ(boxes[0].corners[0].x, 0);
  EXPECT_EQ(boxes[0].corners[0].y, 0);
  EXPECT_EQ(boxes[0].corners[2].x, 639);
  EXPECT_EQ(boxes[0].corners[2].y, 319);
}

TEST(DbPostprocess, UprightRectangleGrowsByTheUnclipRatio) {
  Map map(200, 100);
  map.draw({100, 50}, 80, 10, 0);
  const std::vector<TextBox> boxes = map.boxes();
  ASSERT_EQ(boxes.size(), 1u);
  // The one-position spread to the right and down makes the core 81 x 11.
  const float grow = unclip_distance(81, 11);
  EXPECT_NEAR(boxes[0].corners[0].x, 60 - grow, 1);
  EXPECT_NEAR(boxes[0].corners[0].y, 45 - grow, 1);
  EXPECT_NEAR(boxes[0].corners[2].x, 141 + grow, 1);
  EXPECT_NEAR(boxes[0].corners[2].y, 56 + grow, 1);
}

class DbRotated : public testing::TestWithParam<int> {};

TEST_P(DbRotated, RectangleIsFoundAtItsAngle) {
  const float degrees = float(GetParam());
  Map map(240, 240);
  map.draw({120, 118}, 120, 24, degrees);
  const std::vector<TextBox> boxes = map.boxes();
  ASSERT_EQ(boxes.size(), 1u);
  EXPECT_GT(boxes[0].score, 0.7f);
  EXPECT_NEAR(center_of(boxes[0]).x, 120.5f, 1.5f);
  EXPECT_NEAR(center_of(boxes[0]).y, 118.5f, 1.5f);

  const auto& corners = boxes[0].corners;
  const float first = distance(corners[0], corners[1]), second = distance(corners[1], corners[2]);
  const float grow = unclip_distance(121, 25);
  EXPECT_NEAR(std::max(first, second), 121 + 2 * grow, 4);
  EXPECT_NEAR(std::min(first, second), 25 + 2 * grow, 4);
  // The long side's direction, as an angle between lines: 0..90 degrees apart.
  const Point a = first > second ? corners[0] : corners[1], b = first > second ? corners[1] : corners[2];
  const float angle = std::atan2(b.y - a.y, b.x - a.x) * 180 / kPi;
  const float apart = std::abs(std::remainder(angle - degrees, 180.0f));
  EXPECT_LT(apart, 2.0f);
}

INSTANTIATE_TEST_SUITE_P(Angles, DbRotated, testing::Values(-80, -45, -30, -7, 0, 3, 12, 30, 45, 60, 88, 90));

TEST(DbPostprocess, CornersAreClockwiseFromTheTopLeft) {
  Map map(200, 100);
  map.draw({100, 50}, 80, 14, 10);
  const std::vector<TextBox> boxes = map.boxes();
  ASSERT_EQ(boxes.size(), 1u);
  const auto& c = boxes[0].corners;
  for (std::size_t i = 0; i < 4; ++i) {
    const Point p = c[i], q = c[(i + 1) % 4], r = c[(i + 2) % 4];
    EXPECT_GT((q.x - p.x) * (r.y - q.y) - (q.y - p.y) * (r.x - q.x), 0) << "turn at corner " << i + 1;
    EXPECT_GE(p.x + p.y, c[0].x + c[0].y);
  }
}

TEST(DbPostprocess, BoxesAtTheBorderStayInside) {
  Map map(100, 60);
  map.draw({0, 30}, 40, 12, 0);
  map.draw({99, 5}, 30, 14, 0);
  map.draw({70, 59}, 30, 10, 5);
  const std::vector<TextBox> boxes = map.boxes(1000, 300);
  ASSERT_EQ(boxes.size(), 3u);
  for (const TextBox& box : boxes) {
    for (const Point& corner : box.corners) {
      EXPECT_GE(corner.x, 0);
      EXPECT_LE(corner.x, 999);
      EXPECT_GE(corner.y, 0);
      EXPECT_LE(corner.y, 299);
    }
  }
}

TEST(DbPostprocess, ScalesEachAxisToThePicture) {
  Map map(100, 100);
  map.draw({50, 50}, 40, 10, 0);
  const std::vector<TextBox> same = map.boxes(), scaled = map.boxes(300, 50);
  ASSERT_EQ(same.size(), 1u);
  ASSERT_EQ(scaled.size(), 1u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(scaled[0].corners[i].x, same[0].corners[i].x * 3, 2);
    EXPECT_NEAR(scaled[0].corners[i].y, same[0].corners[i].y / 2, 1);
  }
}

TEST(DbPostprocess, ReadingOrderIsTopToBottomThenLeftToRight) {
  Map map(200, 120);
  map.draw({150, 20}, 60, 8, 0);
  map.draw({40, 20}, 60, 8, 0);
  map.draw({100, 90}, 60, 8, 0);
  map.draw({100, 55}, 60, 8, 0);
  const std::vector<TextBox> boxes = map.boxes();
  ASSERT_EQ(boxes.size(), 4u);
  EXPECT_LT(center_of(boxes[0]).x, center_of(boxes[1]).x);
  EXPECT_NEAR(center_of(boxes[0]).y, center_of(boxes[1]).y, 1);
  EXPECT_NEAR(center_of(boxes[2]).y, 55, 2);
  EXPECT_NEAR(center_of(boxes[3]).y, 90, 2);
}

TEST(DbPostprocess, DiagonalNeighboursAreOneLine) {
  Map map(60, 60);
  for (int i = 5; i < 50; ++i) map.values[std::size_t(i) * 60 + i] = 0.9f;
  map.draw({27, 27}, 60, 8, 45);
  EXPECT_EQ(map.boxes().size(), 1u);
}

TEST(DbPostprocess, SmallAndUnsureComponentsAreDropped) {
  Map map(200, 60);
  map.draw({20, 20}, 1, 1, 0);           // after the spread still under three positions
  map.draw({60, 20}, 40, 0, 0);          // a line one position thin
  map.draw({140, 20}, 40, 10, 0, 0.4f);  // above the threshold, but its mean is not
  EXPECT_TRUE(map.boxes().empty());
  DbOptions lenient;
  lenient.box_threshold = 0.35f;
  EXPECT_EQ(map.boxes(0, 0, lenient).size(), 1u);
}

TEST(DbPostprocess, ThresholdItselfIsNotText) {
  Map map(100, 60);
  map.draw({50, 30}, 40, 10, 0, 0.3f);
  DbOptions lenient;
  lenient.box_threshold = 0;
  EXPECT_TRUE(map.boxes(0, 0, lenient).empty());
}

TEST(DbPostprocess, NumberOfCandidatesIsBounded) {
  Map map(200, 200);
  for (int y = 10; y < 200; y += 20) {
    for (int x = 10; x < 200; x += 20) map.draw({float(x), float(y)}, 8, 8, 0);
  }
  EXPECT_EQ(map.boxes().size(), 100u);
  DbOptions few;
  few.max_boxes = 7;
  EXPECT_EQ(map.boxes(0, 0, few).size(), 7u);
}

TEST(DbPostprocess, NotANumberIsNotText) {
  Map map(100, 60);
  std::fill(map.values.begin(), map.values.end(), std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(map.boxes().empty());
  map.draw({50, 30}, 40, 10, 0);
  for (const TextBox& box : map.boxes()) EXPECT_FALSE(std::isnan(box.score));
}

}  // namespace
}  // namespace example
