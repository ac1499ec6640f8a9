// The smallest rectangle, at any angle, around a set of points.
#pragma once

#include "common/drawing.h"

#include <array>
#include <vector>

namespace example {

struct RotatedRect {
  Point center;
  Point axis{1, 0};  // unit vector along the `length` side; the other side is at a right angle to it
  float length = 0, breadth = 0;

  float shorter_side() const { return length < breadth ? length : breadth; }
  // Clockwise on the screen (y points down), beginning with the corner nearest to the top left.
  std::array<Point, 4> corners() const;
};

// Requires at least one point. One point gives an empty rectangle, points on a line one without breadth.
RotatedRect min_area_rect(std::vector<Point> points);

}  // namespace example
