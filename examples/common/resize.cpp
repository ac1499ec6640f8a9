#include "common/resize.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace example {
namespace {

// Where an output position lies between two input positions.
struct Tap {
  int first, second;
  float weight;  // of the second
};

std::vector<Tap> make_taps(int from, int to) {
  std::vector<Tap> taps(to);
  const float scale = float(from) / float(to);
  for (int i = 0; i < to; ++i) {
    const float position = std::clamp((float(i) + 0.5f) * scale - 0.5f, 0.0f, float(from - 1));
    const int first = int(position);
    taps[i] = {first, std::min(first + 1, from - 1), position - float(first)};
  }
  return taps;
}

}  // namespace

Image resize_bilinear(const Image& image, int width, int height) {
  if (width == image.width && height == image.height) return image;
  const std::vector<Tap> columns = make_taps(image.width, width);
  const std::vector<Tap> rows = make_taps(image.height, height);
  Image result(width, height);
  for (int y = 0; y < height; ++y) {
    const Tap& row = rows[y];
    for (int x = 0; x < width; ++x) {
      const Tap& column = columns[x];
      const std::uint8_t* a = image.pixel(column.first, row.first);
      const std::uint8_t* b = image.pixel(column.second, row.first);
      const std::uint8_t* c = image.pixel(column.first, row.second);
      const std::uint8_t* d = image.pixel(column.second, row.second);
      std::uint8_t* out = result.pixel(x, y);
      for (int channel = 0; channel < 3; ++channel) {
        const float upper = a[channel] + (b[channel] - a[channel]) * column.weight;
        const float lower = c[channel] + (d[channel] - c[channel]) * column.weight;
        out[channel] = std::uint8_t(std::lround(upper + (lower - upper) * row.weight));
      }
    }
  }
  return result;
}

}  // namespace example
