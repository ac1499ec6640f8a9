// Changing the size of a picture.
#pragma once

#include "common/image.h"

namespace example {

// Bilinear, pixel centres at half positions, only pixels inside the picture counted: how networks are usually trained.
// When shrinking, each result averages all pixels it covers (with a triangle's weights), so that thin strokes survive.
// Requires a non-empty picture and width, height >= 1.
Image resize_bilinear(const Image& image, int width, int height);

}  // namespace example
