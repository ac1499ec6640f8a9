// The map between a rectangle and a quadrilateral in perspective: what a camera does to a sheet of paper, and back.
#pragma once

#include "common/drawing.h"

#include <array>

namespace example {

// Corners in the order top left, top right, bottom right, bottom left of what is seen there.
using Quad = std::array<Point, 4>;

class Perspective {
 public:
  // From the rectangle [0, width] x [0, height] to `quad`, which must be convex. A quad without area is accepted; the
  // result then has no inverse.
  static Perspective to_quad(const Quad& quad, float width, float height);

  // Back again. Where there is no inverse, every point is mapped to a point far outside the rectangle.
  Perspective inverse() const;

  Point operator()(Point p) const;

 private:
  using Matrix = std::array<double, 9>;  // row by row
  explicit Perspective(const Matrix& matrix) : m_(matrix) {}
  Matrix m_;
};

// The lengths of a quad's sides: the longer one of each opposite pair.
float width_of(const Quad& quad);
float height_of(const Quad& quad);

// Cuts what lies in the quad out of a picture and straightens it. The result is as large as the quad's sides are long
// (at least 1 x 1); pixels outside the picture are those at its edge. Requires a non-empty picture.
Image cut_out(const Image& image, const Quad& quad);

// A quarter turn anticlockwise, and half a turn.
Image turn_left(const Image& image);
Image turn_around(const Image& image);

}  // namespace example
