// Windows bitmaps: a file header of 14 bytes, a header that says what the pixels are, a palette, then rows of pixels
// that are filled up to multiples of four bytes, the lowest row first unless the height is negative.
#include "common/image_io.h"

#include <algorithm>
#include <stdexcept>

namespace example {
namespace {

class Bytes {
 public:
  explicit Bytes(const std::vector<std::uint8_t>& bytes) : bytes_(bytes) {}
  std::uint8_t u8(std::size_t at) const {
    if (at >= bytes_.size()) throw std::runtime_error("the file is cut off");
    return bytes_[at];
  }
  std::uint32_t u16(std::size_t at) const { return u8(at) | std::uint32_t(u8(at + 1)) << 8; }
  std::uint32_t u32(std::size_t at) const { return u16(at) | u16(at + 2) << 16; }
  std::int32_t i32(std::size_t at) const { return std::int32_t(u32(at)); }

 private:
  const std::vector<std::uint8_t>& bytes_;
};

}  // namespace

Image decode_bmp(const std::vector<std::uint8_t>& bytes) {
  constexpr std::uint32_t kRgb = 0, kBitFields = 3;
  constexpr std::size_t kInfo = 14;  // where the second header begins
  const Bytes file(bytes);
  const std::size_t pixels = file.u32(10), header = file.u32(kInfo);
  if (header < 40) throw std::runtime_error("a bitmap of OS/2");
  const std::int64_t width = file.i32(kInfo + 4), rows = file.i32(kInfo + 8);
  const std::uint32_t bits = file.u16(kInfo + 14), compression = file.u32(kInfo + 16);
  const std::int64_t height = rows < 0 ? -rows : rows;
  if (width <= 0 || height == 0) throw std::runtime_error("the picture has no pixels");
  if (width * height > kMaxPixels) throw std::runtime_error("the picture is larger than 100 million pixels");
  // With masks only where they say what 32 bits hold without them.
  const std::size_t masks = kInfo + 40;
  const bool plain_masks = compression == kBitFields && bits == 32 && file.u32(masks) == 0xff0000 &&
                           file.u32(masks + 4) == 0xff00 && file.u32(masks + 8) == 0xff;
  if (compression != kRgb && !plain_masks) throw std::runtime_error("a compressed bitmap, or one with masks");
  if (bits != 1 && bits != 4 && bits != 8 && bits != 16 && bits != 24 && bits != 32)
    throw std::runtime_error("a bitmap of " + std::to_string(bits) + " bits a pixel");
  const std::size_t palette = kInfo + header;
  const std::uint32_t used = file.u32(kInfo + 32);
  const std::uint32_t colours = bits > 8 ? 0 : std::min(used == 0 ? 1u << bits : used, 1u << bits);
  const std::size_t stride = (std::size_t(width) * bits + 31) / 32 * 4;
  file.u8(pixels + stride * std::size_t(height) - 1);  // says early that the file is too short

  Image image{int(width), int(height)};
  for (int y = 0; y < image.height; ++y) {
    const std::size_t row = pixels + stride * std::size_t(rows < 0 ? y : image.height - 1 - y);
    for (int x = 0; x < image.width; ++x) {
      std::uint8_t* pixel = image.pixel(x, y);
      if (bits <= 8) {
        const std::size_t bit = std::size_t(x) * bits;
        const std::uint32_t colour = file.u8(row + bit / 8) >> (8 - bits - bit % 8) & ((1u << bits) - 1);
        if (colour >= colours) throw std::runtime_error("a pixel has a colour that the palette lacks");
        for (int c = 0; c < 3; ++c) pixel[c] = file.u8(palette + 4 * colour + 2 - c);
      } else if (bits == 16) {
        const std::uint32_t value = file.u16(row + 2 * std::size_t(x));
        for (int c = 0; c < 3; ++c) {
          const std::uint32_t five = value >> (10 - 5 * c) & 31;
          pixel[c] = std::uint8_t(five << 3 | five >> 2);
        }
      } else {
        for (int c = 0; c < 3; ++c) pixel[c] = file.u8(row + bits / 8 * std::size_t(x) + 2 - c);
      }
    }
  }
  return image;
}

}  // namespace example
