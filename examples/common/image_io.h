// Reading and writing pictures. Every function throws std::runtime_error with a sentence for a person.
#pragma once

#include "common/image.h"

#include <cstdint>
#include <string>
#include <vector>

namespace example {

// More pixels than this are refused, so that a damaged header cannot ask for all memory.
inline constexpr std::int64_t kMaxPixels = 100'000'000;

// A PNG, JPEG or BMP file, told apart by content, not by name. Transparency is laid on white; a JPEG is turned upright
// as its EXIF orientation says.
Image load_image(const std::string& path);

void save_png(const Image& image, const std::string& path);

// The JPEG and the BMP part of load_image: `bytes` is the whole file. Of BMP the uncompressed kinds: 1, 4 or 8 bits a
// pixel with a palette, 16 (5 bits a channel), 24, and 32, whose fourth byte is ignored.
Image decode_jpeg(const std::vector<std::uint8_t>& bytes);
Image decode_bmp(const std::vector<std::uint8_t>& bytes);

}  // namespace example
