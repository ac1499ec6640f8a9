#include "common/drawing.h"

#include <algorithm>
#include <cmath>

namespace example {
namespace {

void blend(std::uint8_t* pixel, Color color, float alpha) {
  for (int c = 0; c < 3; ++c) pixel[c] = std::uint8_t(std::lround(pixel[c] + (color[c] - pixel[c]) * alpha));
}

float distance_to_segment(Point p, Point from, Point to) {
  const float dx = to.x - from.x, dy = to.y - from.y;
  const float squared_length = dx * dx + dy * dy;
  const float t =
      squared_length > 0 ? std::clamp(((p.x - from.x) * dx + (p.y - from.y) * dy) / squared_length, 0.0f, 1.0f) : 0.0f;
  return std::hypot(p.x - (from.x + t * dx), p.y - (from.y + t * dy));
}

// The pixels that something reaching from `low` to `high` can touch, cut to the picture: [begin, end).
struct Range {
  int begin, end;
};
Range pixels(float low, float high, int size) {
  const float last = float(size);
  return {int(std::clamp(std::floor(low), 0.0f, last)), int(std::clamp(std::ceil(high) + 1, 0.0f, last))};
}

bool is_inside(Point p, std::span<const Point> corners) {
  bool left = false, right = false;
  for (std::size_t i = 0; i < corners.size(); ++i) {
    const Point a = corners[i], b = corners[(i + 1) % corners.size()];
    const float side = (b.x - a.x) * (p.y - a.y) - (b.y - a.y) * (p.x - a.x);
    left |= side < 0;
    right |= side > 0;
  }
  return !(left && right);
}

}  // namespace

void draw_line(Image& image, Point from, Point to, float thickness, Color color, float opacity) {
  const float radius = thickness / 2, reach = radius + 1;
  const Range columns = pixels(std::min(from.x, to.x) - reach, std::max(from.x, to.x) + reach, image.width);
  const Range rows = pixels(std::min(from.y, to.y) - reach, std::max(from.y, to.y) + reach, image.height);
  for (int y = rows.begin; y < rows.end; ++y) {
    for (int x = columns.begin; x < columns.end; ++x) {
      const float distance = distance_to_segment({float(x), float(y)}, from, to);
      const float coverage = std::clamp(radius + 0.5f - distance, 0.0f, 1.0f);
      if (coverage > 0) blend(image.pixel(x, y), color, coverage * opacity);
    }
  }
}

void draw_polygon(Image& image, std::span<const Point> corners, float thickness, Color color, float wash) {
  if (corners.empty()) return;
  if (wash > 0) {
    const auto [left, right] =
        std::minmax_element(corners.begin(), corners.end(), [](Point a, Point b) { return a.x < b.x; });
    const auto [top, bottom] =
        std::minmax_element(corners.begin(), corners.end(), [](Point a, Point b) { return a.y < b.y; });
    const Range columns = pixels(left->x, right->x, image.width), rows = pixels(top->y, bottom->y, image.height);
    for (int y = rows.begin; y < rows.end; ++y) {
      for (int x = columns.begin; x < columns.end; ++x) {
        if (is_inside({float(x), float(y)}, corners)) blend(image.pixel(x, y), color, wash);
      }
    }
  }
  for (std::size_t i = 0; i < corners.size(); ++i) {
    draw_line(image, corners[i], corners[(i + 1) % corners.size()], thickness, color);
  }
}

}  // namespace example
