// Changing the size of a picture.
#pragma once

#include "common/image.h"

namespace example {

// Bilinear, pixel centres at half positions, edge pixels repeated outwards: what networks are usually trained with.
// Requires a non-empty picture and width, height >= 1.
Image resize_bilinear(const Image& image, int width, int height);

}  // namespace example
