#include "text_detect/preprocess.h"

#include "common/resize.h"

#include <algorithm>
#include <cmath>

namespace example {
namespace {

constexpr int kStep = 32, kMinShortSide = 736, kMaxLongSide = 2016;

int to_multiple_of_step(double length) {
  return std::clamp(int(std::lround(length / kStep)) * kStep, kStep, kMaxLongSide);
}

}  // namespace

Size network_size(int width, int height) {
  const double shorter = std::min(width, height), longer = std::max(width, height);
  const double scale = std::min(std::max(1.0, kMinShortSide / shorter), kMaxLongSide / longer);
  return {to_multiple_of_step(width * scale), to_multiple_of_step(height * scale)};
}

void fill_network_input(const Image& image, Size size, std::span<float> values) {
  const Image resized = resize_bilinear(image, size.width, size.height);
  const std::size_t plane = std::size_t(size.width) * size.height;
  for (std::size_t i = 0; i < plane; ++i) {
    for (int channel = 0; channel < 3; ++channel) {
      values[(2 - channel) * plane + i] = (resized.rgb[i * 3 + channel] / 255.0f - 0.5f) / 0.5f;
    }
  }
}

}  // namespace example
