// Drawing on a picture, smooth at the edges. What lies outside the picture is cut off.
#pragma once

#include "common/image.h"

#include <array>
#include <span>

namespace example {

struct Point {
  float x = 0, y = 0;  // in pixels; pixel (0, 0) has its centre at (0, 0)
};

using Color = std::array<std::uint8_t, 3>;

// A line of the given thickness with round ends. `opacity` is in 0..1.
void draw_line(Image& image, Point from, Point to, float thickness, Color color, float opacity = 1);

// The outline of a polygon, and a light wash of the same colour inside. The polygon must be convex.
void draw_polygon(Image& image, std::span<const Point> corners, float thickness, Color color, float wash = 0);

}  // namespace example
