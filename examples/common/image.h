// A picture in memory: 8 bits a channel, red green blue, row by row, no padding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace example {

struct Image {
  Image() = default;
  Image(int width, int height) : width(width), height(height), rgb(std::size_t(width) * height * 3) {}

  // The three bytes of pixel (x, y); requires 0 <= x < width and 0 <= y < height.
  std::uint8_t* pixel(int x, int y) { return &rgb[(std::size_t(y) * width + x) * 3]; }
  const std::uint8_t* pixel(int x, int y) const { return &rgb[(std::size_t(y) * width + x) * 3]; }

  int width = 0, height = 0;
  std::vector<std::uint8_t> rgb;
};

}  // namespace example
