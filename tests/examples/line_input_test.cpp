#include "text_read/line_input.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

namespace example {
namespace {

TextBox box_at(float left, float top, float right, float bottom, float score) {
  return {{Point{left, top}, Point{right, top}, Point{right, bottom}, Point{left, bottom}}, score};
}

// The boxes' scores are their numbers.
std::vector<int> numbers(std::vector<TextBox> boxes) {
  sort_as_read(boxes);
  std::vector<int> result;
  for (const TextBox& box : boxes) result.push_back(int(box.score));
  return result;
}

TEST(SortAsRead, RowsFromTopToBottomEachFromLeftToRight) {
  std::vector<TextBox> boxes{box_at(0, 0, 40, 10, 0), box_at(60, -3, 90, 7, 1), box_at(0, 20, 50, 30, 2),
                             box_at(70, 17, 90, 27, 3), box_at(0, 40, 50, 50, 4)};
  std::mt19937 random(1);
  for (int i = 0; i < 20; ++i) {
    std::shuffle(boxes.begin(), boxes.end(), random);
    EXPECT_EQ(numbers(boxes), (std::vector<int>{0, 1, 2, 3, 4}));
  }
  EXPECT_TRUE(numbers({}).empty());
}

TEST(SortAsRead, FollowsARowThatSlants) {
  // Each word is 4 lower than the one before; the last is lower than the next row's first.
  std::vector<TextBox> boxes;
  for (int i = 0; i < 5; ++i) {
    boxes.push_back(box_at(float(50 * i), float(4 * i), float(50 * i + 40), float(4 * i + 10), float(i)));
    boxes.push_back(box_at(float(50 * i), float(4 * i + 14), float(50 * i + 40), float(4 * i + 24), float(5 + i)));
  }
  EXPECT_EQ(numbers(boxes), (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(CutOutLine, TextFromTopToBottomIsTurned) {
  const Image page(100, 100);
  const Image lying = cut_out_line(page, box_at(10, 10, 70, 30, 1)),
              standing = cut_out_line(page, box_at(10, 10, 30, 70, 1));
  EXPECT_EQ(lying.width, 60);
  EXPECT_EQ(standing.width, 60);
  EXPECT_EQ(standing.height, 20);
}

TEST(FillLineInput, KeepsProportionsAndFillsUpWithZeros) {
  Image line(20, 10);
  for (std::size_t i = 0; i < line.rgb.size(); i += 3) line.rgb[i] = 255;  // red: the last plane
  std::vector<float> values(3 * 5 * 16, 7.0f);
  fill_line_input(line, 16, 5, values);
  for (int y = 0; y < 5; ++y) {
    for (int x = 0; x < 16; ++x) {
      const bool inside = x < 10;
      EXPECT_EQ(values[y * 16 + x], inside ? -1 : 0);
      EXPECT_EQ(values[2 * 80 + y * 16 + x], inside ? 1 : 0);
    }
  }
}

TEST(FillLineInput, SqueezesWhatIsTooLong) {
  Image line(400, 10);
  std::fill(line.rgb.begin(), line.rgb.end(), 255);
  std::vector<float> values(3 * 5 * 16);
  fill_line_input(line, 16, 5, values);
  EXPECT_EQ(std::count(values.begin(), values.end(), 1.0f), 3 * 5 * 16);
}

}  // namespace
}  // namespace example
