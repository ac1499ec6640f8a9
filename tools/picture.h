// Pictures as inputs of models.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "driver/engine/model.h"
#include "types/tensor.h"

namespace tessera {

// Each value is (pixel * scale - mean[c]) / std[c] with pixels 0..255 in the order red, green, blue.
struct PictureOptions {
  double scale = 1.0 / 255;
  std::vector<double> mean;  // empty: 0; one for all channels, or one a channel
  std::vector<double> std;   // empty: 1
  bool bgr = false;          // blue first
};

bool is_picture(const std::string& path);  // by extension

// The dims of `info` with a size for each that is open (< 0): the picture's height and width, and 1 for the batch. None
// when no picture fits there.
std::optional<std::vector<int64_t>> picture_dims(const std::string& path, const TensorInfo& info);

// The picture at `path`, resized (bilinear, without keeping its proportions) to what the input asks: [1,]CxHxW or
// [1,]HxWxC with 3 channels or 1 (grey), f32, f16 or u8 (u8: pixel values as they are). UserError TSR-6201 when the
// file is no picture, TSR-6202 when the input does not take one.
Tensor read_picture(const std::string& path, const TensorInfo& info, const PictureOptions& options);

}  // namespace tessera
