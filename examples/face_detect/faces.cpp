#include "face_detect/faces.h"

#include "common/resize.h"

#include <algorithm>

namespace example {
namespace {

constexpr float kMaxOverlap = 0.3f;

float overlap(const Face& a, const Face& b) {
  const float width = std::min(a.right, b.right) - std::max(a.left, b.left);
  const float height = std::min(a.bottom, b.bottom) - std::max(a.top, b.top);
  if (width <= 0 || height <= 0) return 0;
  const auto area = [](const Face& f) { return (f.right - f.left) * (f.bottom - f.top); };
  return width * height / (area(a) + area(b) - width * height);
}

}  // namespace

void fill_face_input(const Image& image, int width, int height, std::span<float> values) {
  const Image resized = resize_bilinear(image, width, height);
  const std::size_t plane = std::size_t(width) * height;
  for (std::size_t i = 0; i < plane; ++i) {
    for (int channel = 0; channel < 3; ++channel) {
      values[channel * plane + i] = (float(resized.rgb[i * 3 + channel]) - 127) / 128;
    }
  }
}

std::vector<Face> find_faces(std::span<const float> scores, std::span<const float> boxes, int picture_width,
                             int picture_height, float least_score) {
  std::vector<Face> candidates;
  for (std::size_t i = 0; i < scores.size() / 2; ++i) {
    const float score = scores[2 * i + 1];
    if (!(score > least_score)) continue;
    const float* box = &boxes[4 * i];
    const float width = float(picture_width), height = float(picture_height);
    candidates.push_back({box[0] * width, box[1] * height, box[2] * width, box[3] * height, score});
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Face& a, const Face& b) { return a.score > b.score; });
  std::vector<Face> kept;
  for (const Face& face : candidates) {
    const auto hides = [&](const Face& surer) { return overlap(surer, face) > kMaxOverlap; };
    if (std::none_of(kept.begin(), kept.end(), hides)) kept.push_back(face);
  }
  return kept;
}

}  // namespace example
