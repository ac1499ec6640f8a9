// Reading and writing pictures. Every function throws std::runtime_error with a sentence for a person.
#pragma once

#include "common/image.h"

#include <cstdint>
#include <string>
#include <vector>

namespace example {

// More pixels than this are refused, so that a damaged header cannot ask for all memory.
inline constexpr std::int64_t kMaxPixels = 100'000'000;

// A PNG or JPEG file, told apart by content, not by name. Transparency is laid on white; a JPEG is turned upright as
// its EXIF orientation says.
Image load_image(const std::string& path);

void save_png(const Image& image, const std::string& path);

// The JPEG half of load_image: `bytes` is the whole file.
Image decode_jpeg(const std::vector<std::uint8_t>& bytes);

}  // namespace example
