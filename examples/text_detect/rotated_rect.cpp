#include "text_detect/rotated_rect.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace example {
namespace {

float cross(Point o, Point a, Point b) { return (a.x - o.x) * (b.y - o.y) - (a.y - o.y) * (b.x - o.x); }

// The convex hull by a sweep over the points in order of x: first its lower, then its upper chain. No repeated point.
std::vector<Point> convex_hull(std::vector<Point> points) {
  std::sort(points.begin(), points.end(), [](Point a, Point b) { return a.x < b.x || (a.x == b.x && a.y < b.y); });
  points.erase(std::unique(points.begin(), points.end(), [](Point a, Point b) { return a.x == b.x && a.y == b.y; }),
               points.end());
  if (points.size() < 3) return points;
  std::vector<Point> hull;
  auto extend = [&hull](Point p, std::size_t chain_begin) {
    while (hull.size() >= chain_begin + 2 && cross(hull[hull.size() - 2], hull.back(), p) <= 0) hull.pop_back();
    hull.push_back(p);
  };
  for (const Point p : points) extend(p, 0);
  const std::size_t upper_begin = hull.size() - 1;
  for (auto p = points.rbegin() + 1; p != points.rend(); ++p) extend(*p, upper_begin);
  hull.pop_back();  // the first point again
  return hull;
}

// The rectangle around the hull that has a side along `axis`.
RotatedRect rect_along(Point axis, const std::vector<Point>& hull) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  float low_u = kInfinity, high_u = -kInfinity, low_v = kInfinity, high_v = -kInfinity;
  for (const Point p : hull) {
    const float u = p.x * axis.x + p.y * axis.y, v = p.y * axis.x - p.x * axis.y;
    low_u = std::min(low_u, u), high_u = std::max(high_u, u);
    low_v = std::min(low_v, v), high_v = std::max(high_v, v);
  }
  const float u = (low_u + high_u) / 2, v = (low_v + high_v) / 2;
  return {{u * axis.x - v * axis.y, u * axis.y + v * axis.x}, axis, high_u - low_u, high_v - low_v};
}

}  // namespace

std::array<Point, 4> RotatedRect::corners() const {
  const float ux = axis.x * length / 2, uy = axis.y * length / 2;
  const float vx = -axis.y * breadth / 2, vy = axis.x * breadth / 2;
  std::array<Point, 4> corners{Point{center.x - ux - vx, center.y - uy - vy},
                               {center.x + ux - vx, center.y + uy - vy},
                               {center.x + ux + vx, center.y + uy + vy},
                               {center.x - ux + vx, center.y - uy + vy}};
  const auto first =
      std::min_element(corners.begin(), corners.end(), [](Point a, Point b) { return a.x + a.y < b.x + b.y; });
  std::rotate(corners.begin(), first, corners.end());
  return corners;
}

RotatedRect min_area_rect(std::vector<Point> points) {
  const std::vector<Point> hull = convex_hull(std::move(points));
  // A smallest rectangle has a side along a side of the hull, so trying each is enough. Upright comes first and wins
  // ties, so that a rectangle of pixels stays as it is.
  RotatedRect best = rect_along({1, 0}, hull);
  for (std::size_t i = 0; i < hull.size(); ++i) {
    const Point a = hull[i], b = hull[(i + 1) % hull.size()];
    const float length = std::hypot(b.x - a.x, b.y - a.y);
    if (length == 0) continue;
    const RotatedRect candidate = rect_along({(b.x - a.x) / length, (b.y - a.y) / length}, hull);
    if (candidate.length * candidate.breadth < best.length * best.breadth) best = candidate;
  }
  return best;
}

}  // namespace example
