#include "text_read/line_input.h"

#include "common/resize.h"

#include <algorithm>
#include <cmath>

namespace example {
namespace {

Point middle(const TextBox& box) {
  Point sum;
  for (const Point corner : box.corners) sum.x += corner.x / 4, sum.y += corner.y / 4;
  return sum;
}

float half_height(const TextBox& box) { return std::min(width_of(box.corners), height_of(box.corners)) / 2; }

// Compares with the nearest box of the row only, because the rows of a photographed page are seldom level.
bool is_level(const std::vector<TextBox>& row, const TextBox& box) {
  const TextBox& nearest = *std::min_element(row.begin(), row.end(), [&](const TextBox& a, const TextBox& b) {
    return std::abs(middle(a).x - middle(box).x) < std::abs(middle(b).x - middle(box).x);
  });
  return std::abs(middle(nearest).y - middle(box).y) < std::min(half_height(nearest), half_height(box));
}

}  // namespace

Image cut_out_line(const Image& page, const TextBox& box) {
  Image line = cut_out(page, box.corners);
  return 2 * line.height >= 3 * line.width ? turn_left(line) : line;
}

int width_at_height(const Image& line, int height) {
  return std::max(1, int(std::ceil(double(line.width) * height / line.height)));
}

void fill_line_input(const Image& line, int width, int height, std::span<float> values) {
  const Image resized = resize_bilinear(line, std::min(width, width_at_height(line, height)), height);
  std::fill(values.begin(), values.end(), 0.0f);
  const std::size_t plane = std::size_t(width) * height;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < resized.width; ++x) {
      const std::size_t i = std::size_t(y) * width + x;
      for (int channel = 0; channel < 3; ++channel) {
        values[(2 - channel) * plane + i] = (float(resized.pixel(x, y)[channel]) / 255 - 0.5f) / 0.5f;
      }
    }
  }
}

void sort_as_read(std::vector<TextBox>& boxes) {
  std::stable_sort(boxes.begin(), boxes.end(),
                   [](const TextBox& a, const TextBox& b) { return middle(a).y < middle(b).y; });
  std::vector<std::vector<TextBox>> rows;
  for (const TextBox& box : boxes) {
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const auto& row) { return is_level(row, box); });
    if (row == rows.end()) {
      rows.push_back({box});
    } else {
      row->push_back(box);
    }
  }
  boxes.clear();
  for (auto& row : rows) {
    std::stable_sort(row.begin(), row.end(),
                     [](const TextBox& a, const TextBox& b) { return middle(a).x < middle(b).x; });
    boxes.insert(boxes.end(), row.begin(), row.end());
  }
}

}  // namespace example
