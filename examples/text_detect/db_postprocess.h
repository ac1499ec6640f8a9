// From the detector's output to boxes: the box formation of "Real-time Scene Text Detection with Differentiable
// Binarization" (Liao et al., 2020).
//
// The network gives, for every position, the probability of lying in the *core* of a text line; cores are shrunk so
// that neighbouring lines do not touch. So: threshold, connected components, smallest rectangle around each, drop what
// is small or unsure, and grow the rectangle back by area * ratio / perimeter on every side.
#pragma once

#include "common/drawing.h"

#include <array>
#include <span>
#include <vector>

namespace example {

struct DbOptions {
  float threshold = 0.3f;      // of a position's probability
  float box_threshold = 0.5f;  // of a box's mean probability
  float unclip_ratio = 1.6f;
  float min_side = 3;    // of a core, in positions of the map
  int max_boxes = 1000;  // components after this many are ignored
};

struct TextBox {
  std::array<Point, 4> corners;  // in pixels of the picture, clockwise, the top left one first
  float score = 0;               // mean probability inside the core, 0..1
};

// `map` has map_height rows of map_width probabilities; boxes are scaled to a picture of the given size and returned in
// reading order: from top to bottom, then from left to right.
std::vector<TextBox> find_text_boxes(std::span<const float> map, int map_width, int map_height, int picture_width,
                                     int picture_height, const DbOptions& options = {});

}  // namespace example
