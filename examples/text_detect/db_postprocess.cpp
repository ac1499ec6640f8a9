#include "text_detect/db_postprocess.h"

#include "text_detect/rotated_rect.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

namespace example {
namespace {

struct Mask {
  Mask(int width, int height) : width(width), height(height), bits(std::size_t(width) * height) {}
  std::uint8_t& at(int x, int y) { return bits[std::size_t(y) * width + x]; }

  int width, height;
  std::vector<std::uint8_t> bits;
};

// Positions above the threshold, each spread by one to the right and downwards, which closes hairline gaps.
Mask binarize(std::span<const float> map, int width, int height, float threshold) {
  Mask mask(width, height);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      if (!(map[std::size_t(y) * width + x] > threshold)) continue;  // NaN counts as no text
      const int right = std::min(x + 1, width - 1), below = std::min(y + 1, height - 1);
      mask.at(x, y) = mask.at(right, y) = mask.at(x, below) = mask.at(right, below) = 1;
    }
  }
  return mask;
}

// Takes the component that contains (x, y), diagonal neighbours included, out of the mask and returns the leftmost and
// the rightmost position of each of its rows: their hull is the component's hull.
std::vector<Point> take_component(Mask& mask, int x, int y) {
  std::vector<std::pair<int, int>> row_extent(mask.height, {mask.width, -1});
  std::vector<std::pair<int, int>> open{{x, y}};
  mask.at(x, y) = 0;
  int top = y, bottom = y;
  while (!open.empty()) {
    const auto [px, py] = open.back();
    open.pop_back();
    top = std::min(top, py), bottom = std::max(bottom, py);
    row_extent[py] = {std::min(row_extent[py].first, px), std::max(row_extent[py].second, px)};
    for (int ny = std::max(py - 1, 0); ny <= std::min(py + 1, mask.height - 1); ++ny) {
      for (int nx = std::max(px - 1, 0); nx <= std::min(px + 1, mask.width - 1); ++nx) {
        if (std::exchange(mask.at(nx, ny), 0) != 0) open.emplace_back(nx, ny);
      }
    }
  }
  std::vector<Point> points;
  for (int row = top; row <= bottom; ++row) {
    points.push_back({float(row_extent[row].first), float(row)});
    points.push_back({float(row_extent[row].second), float(row)});
  }
  return points;
}

// The mean probability of the positions in the rectangle, half a position of slack on each side.
float mean_inside(std::span<const float> map, int width, int height, const RotatedRect& rect) {
  const float reach_u = rect.length / 2 + 0.5f, reach_v = rect.breadth / 2 + 0.5f;
  const float reach_x = std::abs(rect.axis.x) * reach_u + std::abs(rect.axis.y) * reach_v;
  const float reach_y = std::abs(rect.axis.y) * reach_u + std::abs(rect.axis.x) * reach_v;
  const int left = std::max(0, int(std::floor(rect.center.x - reach_x)));
  const int right = std::min(width - 1, int(std::ceil(rect.center.x + reach_x)));
  const int top = std::max(0, int(std::floor(rect.center.y - reach_y)));
  const int bottom = std::min(height - 1, int(std::ceil(rect.center.y + reach_y)));
  double sum = 0;
  std::int64_t count = 0;
  for (int y = top; y <= bottom; ++y) {
    for (int x = left; x <= right; ++x) {
      const float dx = float(x) - rect.center.x, dy = float(y) - rect.center.y;
      if (std::abs(dx * rect.axis.x + dy * rect.axis.y) > reach_u) continue;
      if (std::abs(dy * rect.axis.x - dx * rect.axis.y) > reach_v) continue;
      sum += map[std::size_t(y) * width + x];
      ++count;
    }
  }
  return count > 0 ? float(sum / double(count)) : 0.0f;
}

// Undoes the shrinking of the core.
RotatedRect unclip(RotatedRect rect, float ratio) {
  const float distance = rect.length * rect.breadth * ratio / (2 * (rect.length + rect.breadth));
  rect.length += 2 * distance;
  rect.breadth += 2 * distance;
  return rect;
}

TextBox scale_to_picture(const RotatedRect& rect, float score, float scale_x, float scale_y, int width, int height) {
  TextBox box{rect.corners(), score};
  for (Point& corner : box.corners) {
    corner.x = std::clamp(std::round(corner.x * scale_x), 0.0f, float(width - 1));
    corner.y = std::clamp(std::round(corner.y * scale_y), 0.0f, float(height - 1));
  }
  return box;
}

}  // namespace

std::vector<TextBox> find_text_boxes(std::span<const float> map, int map_width, int map_height, int picture_width,
                                     int picture_height, const DbOptions& options) {
  const float scale_x = float(picture_width) / float(map_width), scale_y = float(picture_height) / float(map_height);
  Mask mask = binarize(map, map_width, map_height, options.threshold);
  std::vector<TextBox> boxes;
  int candidates = 0;
  for (int y = 0; y < map_height; ++y) {
    for (int x = 0; x < map_width && candidates < options.max_boxes; ++x) {
      if (mask.at(x, y) == 0) continue;
      ++candidates;
      const RotatedRect core = min_area_rect(take_component(mask, x, y));
      if (core.shorter_side() < options.min_side) continue;
      const float score = mean_inside(map, map_width, map_height, core);
      if (!(score >= options.box_threshold)) continue;
      boxes.push_back(
          scale_to_picture(unclip(core, options.unclip_ratio), score, scale_x, scale_y, picture_width, picture_height));
    }
  }
  std::sort(boxes.begin(), boxes.end(), [](const TextBox& a, const TextBox& b) {
    const Point p = a.corners[0], q = b.corners[0];
    return p.y < q.y || (p.y == q.y && p.x < q.x);
  });
  return boxes;
}

}  // namespace example
