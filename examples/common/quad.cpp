#include "common/quad.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace example {
namespace {

float distance(Point a, Point b) { return std::hypot(b.x - a.x, b.y - a.y); }

// Bilinear; positions outside the picture give its edge.
void sample(const Image& image, Point p, std::uint8_t* result) {
  const float x = std::clamp(p.x, 0.0f, float(image.width - 1)), y = std::clamp(p.y, 0.0f, float(image.height - 1));
  const int left = int(x), top = int(y);
  const int right = std::min(left + 1, image.width - 1), bottom = std::min(top + 1, image.height - 1);
  const float fx = x - float(left), fy = y - float(top);
  for (int c = 0; c < 3; ++c) {
    const float above = float(image.pixel(left, top)[c]) * (1 - fx) + float(image.pixel(right, top)[c]) * fx;
    const float below = float(image.pixel(left, bottom)[c]) * (1 - fx) + float(image.pixel(right, bottom)[c]) * fx;
    result[c] = std::uint8_t(std::lround(above * (1 - fy) + below * fy));
  }
}

}  // namespace

Perspective Perspective::to_quad(const Quad& quad, float width, float height) {
  // The map from the unit square is x = (a u + b v + c) / (g u + h v + 1), and the same for y with d, e, f. Its four
  // corners give eight equations; those for g and h come out as a system of two.
  const auto [p0, p1, p2, p3] = quad;
  const double x1 = double(p1.x) - p2.x, y1 = double(p1.y) - p2.y;
  const double x2 = double(p3.x) - p2.x, y2 = double(p3.y) - p2.y;
  const double xs = double(p0.x) - p1.x + p2.x - p3.x, ys = double(p0.y) - p1.y + p2.y - p3.y;
  const double determinant = x1 * y2 - x2 * y1;
  const bool flat = std::abs(determinant) < 1e-9;
  const double g = flat ? 0 : (xs * y2 - x2 * ys) / determinant, h = flat ? 0 : (x1 * ys - xs * y1) / determinant;
  return Perspective({(p1.x - p0.x + g * p1.x) / width, (p3.x - p0.x + h * p3.x) / height, p0.x,
                      (p1.y - p0.y + g * p1.y) / width, (p3.y - p0.y + h * p3.y) / height, p0.y,  //
                      g / width, h / height, 1});
}

Perspective Perspective::inverse() const {
  const auto& [a, b, c, d, e, f, g, h, i] = m_;
  // The adjugate; a common factor does not matter.
  return Perspective({e * i - f * h, c * h - b * i, b * f - c * e, f * g - d * i, a * i - c * g, c * d - a * f,
                      d * h - e * g, b * g - a * h, a * e - b * d});
}

Point Perspective::operator()(Point p) const {
  constexpr float kFarAway = -1e6f;
  const double w = m_[6] * p.x + m_[7] * p.y + m_[8];
  if (!(std::abs(w) > 1e-12)) return {kFarAway, kFarAway};
  return {float((m_[0] * p.x + m_[1] * p.y + m_[2]) / w), float((m_[3] * p.x + m_[4] * p.y + m_[5]) / w)};
}

float width_of(const Quad& quad) { return std::max(distance(quad[0], quad[1]), distance(quad[3], quad[2])); }
float height_of(const Quad& quad) { return std::max(distance(quad[0], quad[3]), distance(quad[1], quad[2])); }

Image cut_out(const Image& image, const Quad& quad) {
  Image result(std::max(1, int(std::lround(width_of(quad)))), std::max(1, int(std::lround(height_of(quad)))));
  const Perspective to_picture = Perspective::to_quad(quad, float(result.width), float(result.height));
  for (int y = 0; y < result.height; ++y) {
    for (int x = 0; x < result.width; ++x) {
      sample(image, to_picture({float(x) + 0.5f, float(y) + 0.5f}), result.pixel(x, y));
    }
  }
  return result;
}

Image turn_left(const Image& image) {
  Image result(image.height, image.width);
  for (int y = 0; y < result.height; ++y) {
    for (int x = 0; x < result.width; ++x) std::copy_n(image.pixel(image.width - 1 - y, x), 3, result.pixel(x, y));
  }
  return result;
}

Image turn_around(const Image& image) {
  Image result(image.width, image.height);
  for (int y = 0; y < result.height; ++y) {
    for (int x = 0; x < result.width; ++x) {
      std::copy_n(image.pixel(image.width - 1 - x, image.height - 1 - y), 3, result.pixel(x, y));
    }
  }
  return result;
}

}  // namespace example
