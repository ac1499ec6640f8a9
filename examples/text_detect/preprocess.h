// From a picture of any size to the input of PP-OCR's text detector.
#pragma once

#include "common/image.h"

#include <span>

namespace example {

struct Size {
  int width = 0, height = 0;
};

// The size to which the detector wants a picture resized: the shorter side at least 736 so that small text stays
// readable, the longer side at most 2016 so that a large photo stays affordable (this one wins), both multiples of 32
// because the network halves its maps five times.
Size network_size(int width, int height);

// Resizes to `size`, orders the channels blue, green, red (the network was trained so), and maps 0..255 to -1..1.
// `values` has 3 * size.height * size.width elements: one plane per channel.
void fill_network_input(const Image& image, Size size, std::span<float> values);

}  // namespace example
