// Around the UltraFace network: from a picture to its input, and from its output to faces.
#pragma once

#include "common/image.h"

#include <span>
#include <vector>

namespace example {

struct Face {
  float left = 0, top = 0, right = 0, bottom = 0;  // in pixels of the picture
  float score = 0;                                 // 0..1
};

// Squeezes the picture to width x height, whatever its shape, and maps each channel (red, green, blue) to
// (value - 127) / 128. `values` has 3 * height * width elements: one plane per channel.
void fill_face_input(const Image& image, int width, int height, std::span<float> values);

// `scores` has two columns (no face, face), `boxes` four (left, top, right, bottom, as fractions of the picture); one
// row per place where the network looks. Of faces that overlap by more than 0.3 (intersection over union) the surest
// stays. The result is in order of falling score.
std::vector<Face> find_faces(std::span<const float> scores, std::span<const float> boxes, int picture_width,
                             int picture_height, float least_score = 0.7f);

}  // namespace example
