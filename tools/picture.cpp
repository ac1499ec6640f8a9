#include "picture.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>
#include <stdexcept>

#include <fmt/format.h>

#include "common/image_io.h"
#include "common/resize.h"
#include "support/error.h"

namespace tessera {

namespace {

// Where an input wants its channels, rows and columns.
struct PictureShape {
  int64_t height = 0, width = 0, channels = 0;
  bool channels_last = false;
};

bool is_channel_count(int64_t n) { return n == 1 || n == 3; }

std::optional<PictureShape> picture_shape(const TensorInfo& info) {
  std::vector<int64_t> dims = info.dims;
  if (dims.size() == 4 && dims[0] == 1) dims.erase(dims.begin());
  if (dims.size() != 3 || std::any_of(dims.begin(), dims.end(), [](int64_t d) { return d < 1 || d > 1 << 20; }))
    return {};
  if (is_channel_count(dims[0])) return PictureShape{dims[1], dims[2], dims[0], false};
  if (is_channel_count(dims[2])) return PictureShape{dims[0], dims[1], dims[2], true};
  return {};
}

double of_channel(const std::vector<double>& values, int64_t channel, double fallback) {
  if (values.empty()) return fallback;
  return values[values.size() == 1 ? 0 : static_cast<size_t>(channel)];
}

example::Image load(const std::string& path) {
  try {
    return example::load_image(path);
  } catch (const std::runtime_error& error) {
    throw UserError({.id = "TSR-6201",
                     .message = error.what(),
                     .node = {},
                     .legal = "a readable PNG, JPEG or BMP file",
                     .hint = "convert the picture, or give the tensor as .npy"});
  }
}

}  // namespace

bool is_picture(const std::string& path) {
  std::string extension = std::filesystem::path(path).extension();
  for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return extension == ".png" || extension == ".jpg" || extension == ".jpeg" || extension == ".bmp";
}

std::optional<std::vector<int64_t>> picture_dims(const std::string& path, const TensorInfo& info) {
  std::vector<int64_t> dims = info.dims;
  if (info.any_rank || dims.size() < 3 || dims.size() > 4) return {};
  const size_t first = dims.size() - 3;
  const bool channels_last = !is_channel_count(dims[first]) && is_channel_count(dims[first + 2]);
  const example::Image image = load(path);
  const auto fill = [&](size_t axis, int64_t size) {
    if (dims[axis] < 0) dims[axis] = size;
  };
  if (first == 1) fill(0, 1);
  if (!channels_last) fill(first, 3);
  fill(first + (channels_last ? 0 : 1), image.height);
  fill(first + (channels_last ? 1 : 2), image.width);
  return dims;
}

Tensor read_picture(const std::string& path, const TensorInfo& info, const PictureOptions& options) {
  const std::optional<PictureShape> shape = picture_shape(info);
  const bool raw = info.dtype == DType::kU8;
  if (!shape || !(raw || info.dtype == DType::kF32 || info.dtype == DType::kF16)) {
    throw UserError({.id = "TSR-6202",
                     .message = fmt::format("input '{}' is {} and cannot be made from the picture '{}'", info.name,
                                            info.type_text(), path),
                     .node = {},
                     .legal = "an input [1,]CxHxW or [1,]HxWxC of f32, f16 or u8 with 1 or 3 channels",
                     .hint = "prepare the tensor yourself and give it as .npy"});
  }
  for (const auto& [flag, values] : {std::pair("--mean", &options.mean), std::pair("--std", &options.std)}) {
    if (values->size() <= 1 || values->size() == static_cast<size_t>(shape->channels)) continue;
    throw UserError({.id = "TSR-6203",
                     .message = fmt::format("{} has {} values and input '{}' has {} channels", flag, values->size(),
                                            info.name, shape->channels),
                     .node = {},
                     .legal = "one value for all channels, or one for each",
                     .hint = {}});
  }
  const example::Image image =
      example::resize_bilinear(load(path), static_cast<int>(shape->width), static_cast<int>(shape->height));
  Tensor tensor(info.dtype, info.dims);
  for (int64_t y = 0; y < shape->height; ++y) {
    for (int64_t x = 0; x < shape->width; ++x) {
      const std::uint8_t* pixel = image.pixel(static_cast<int>(x), static_cast<int>(y));
      for (int64_t c = 0; c < shape->channels; ++c) {
        // ITU-R 601 weights, as everywhere, for models that want grey.
        double value = shape->channels == 1 ? 0.299 * pixel[0] + 0.587 * pixel[1] + 0.114 * pixel[2]
                                            : pixel[options.bgr ? 2 - c : c];
        if (!raw) value = (value * options.scale - of_channel(options.mean, c, 0)) / of_channel(options.std, c, 1);
        const int64_t index = shape->channels_last ? (y * shape->width + x) * shape->channels + c
                                                   : (c * shape->height + y) * shape->width + x;
        if (raw) {
          tensor.set_int(index, static_cast<int64_t>(value + 0.5));
        } else {
          tensor.set_double(index, value);
        }
      }
    }
  }
  return tensor;
}

}  // namespace tessera
