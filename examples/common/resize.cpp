#include "common/resize.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace example {
namespace {

// The input positions one output position is made of: weights[0..] belong to first, first + 1, ... and add up to 1.
struct Taps {
  int first = 0;
  std::vector<float> weights;
};

std::vector<Taps> make_taps(int from, int to) {
  std::vector<Taps> all(to);
  const float scale = float(from) / float(to);
  const float reach = std::max(scale, 1.0f);  // half the triangle's base, in input positions
  for (int i = 0; i < to; ++i) {
    const float center = (float(i) + 0.5f) * scale - 0.5f;
    const int begin = std::max(int(std::floor(center - reach)) + 1, 0);
    const int end = std::min(int(std::ceil(center + reach)), from);
    Taps& taps = all[i];
    taps.first = begin;
    float sum = 0;
    for (int position = begin; position < end; ++position) {
      taps.weights.push_back(1 - std::abs(float(position) - center) / reach);
      sum += taps.weights.back();
    }
    for (float& weight : taps.weights) weight /= sum;
  }
  return all;
}

}  // namespace

Image resize_bilinear(const Image& image, int width, int height) {
  if (width == image.width && height == image.height) return image;
  const std::vector<Taps> columns = make_taps(image.width, width), rows = make_taps(image.height, height);

  // First along x, into floats; then along y.
  const std::size_t line = std::size_t(width) * 3;
  std::vector<float> narrowed(line * image.height);
  for (int y = 0; y < image.height; ++y) {
    for (int x = 0; x < width; ++x) {
      float* out = &narrowed[y * line + std::size_t(x) * 3];
      const std::uint8_t* in = image.pixel(columns[x].first, y);
      for (const float weight : columns[x].weights) {
        for (int channel = 0; channel < 3; ++channel) out[channel] += weight * *in++;
      }
    }
  }
  Image result(width, height);
  std::vector<float> sums(line);
  for (int y = 0; y < height; ++y) {
    std::fill(sums.begin(), sums.end(), 0.0f);
    const float* in = &narrowed[rows[y].first * line];
    for (const float weight : rows[y].weights) {
      for (std::size_t i = 0; i < line; ++i) sums[i] += weight * *in++;
    }
    std::uint8_t* out = result.pixel(0, y);
    for (std::size_t i = 0; i < line; ++i) out[i] = std::uint8_t(std::clamp(std::lround(sums[i]), 0l, 255l));
  }
  return result;
}

}  // namespace example
