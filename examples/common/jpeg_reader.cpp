#include "common/image_io.h"

#include <csetjmp>
#include <cstdio>  // jpeglib.h uses FILE and size_t without including them

#include <jpeglib.h>

#include <cstring>
#include <stdexcept>

namespace example {
namespace {

// libjpeg reports a fatal error by a call that must not return: jump back to decode_jpeg.
struct JpegErrors {
  jpeg_error_mgr manager;  // first member: libjpeg hands out a pointer to it
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX];
};

void on_fatal_error(j_common_ptr info) {
  auto* errors = reinterpret_cast<JpegErrors*>(info->err);
  info->err->format_message(info, errors->message);
  std::longjmp(errors->jump, 1);
}

void ignore_warning(j_common_ptr) {}

// The EXIF orientation (1..8) out of an APP1 segment; 1, upright, when there is none or it is damaged.
int exif_orientation(const std::uint8_t* data, std::size_t size) {
  if (size < 14 || std::memcmp(data, "Exif\0\0", 6) != 0) return 1;
  const std::uint8_t* tiff = data + 6;
  const std::size_t length = size - 6;
  const bool little = tiff[0] == 'I';
  auto u16 = [&](std::size_t at) -> unsigned {
    if (at + 2 > length) return 0;
    return little ? tiff[at] | tiff[at + 1] << 8 : tiff[at] << 8 | tiff[at + 1];
  };
  auto u32 = [&](std::size_t at) -> std::size_t {
    return little ? std::size_t(u16(at + 2)) << 16 | u16(at) : std::size_t(u16(at)) << 16 | u16(at + 2);
  };
  const std::size_t directory = u32(4);
  if (directory >= length) return 1;
  const unsigned entries = u16(directory);
  for (unsigned i = 0; i < entries; ++i) {
    const std::size_t entry = directory + 2 + std::size_t(i) * 12;
    if (entry + 12 > length) return 1;
    constexpr unsigned kOrientationTag = 0x0112;
    if (u16(entry) != kOrientationTag) continue;
    const unsigned value = u16(entry + 8);
    return value >= 1 && value <= 8 ? int(value) : 1;
  }
  return 1;
}

// The picture as a person should see it, given the orientation the camera noted.
Image turn_upright(Image image, int orientation) {
  if (orientation == 1) return image;
  const bool swaps_sides = orientation >= 5;
  const bool mirrors_x = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool mirrors_y = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  Image upright(swaps_sides ? image.height : image.width, swaps_sides ? image.width : image.height);
  for (int y = 0; y < upright.height; ++y) {
    for (int x = 0; x < upright.width; ++x) {
      int from_x = swaps_sides ? y : x, from_y = swaps_sides ? x : y;
      if (mirrors_x) from_x = image.width - 1 - from_x;
      if (mirrors_y) from_y = image.height - 1 - from_y;
      std::memcpy(upright.pixel(x, y), image.pixel(from_x, from_y), 3);
    }
  }
  return upright;
}

// One scan line of CMYK, which JPEG files store inverted (0 is full ink).
void inverted_cmyk_to_rgb(const std::uint8_t* cmyk, std::uint8_t* rgb, int width) {
  for (int x = 0; x < width; ++x) {
    for (int c = 0; c < 3; ++c) rgb[x * 3 + c] = std::uint8_t(cmyk[x * 4 + c] * cmyk[x * 4 + 3] / 255);
  }
}

// What decoding fills in. It lives in the caller's frame, because locals of the function that calls setjmp may hold
// stale values after the jump.
struct Decoded {
  Image image;
  std::vector<std::uint8_t> ink_line;
  int orientation = 1;
  JpegErrors errors;
};

// False with `decoded.errors.message` set when the file is damaged.
bool decode(const std::vector<std::uint8_t>& bytes, Decoded& decoded) {
  jpeg_decompress_struct jpeg;
  jpeg.err = jpeg_std_error(&decoded.errors.manager);
  decoded.errors.manager.error_exit = on_fatal_error;
  decoded.errors.manager.output_message = ignore_warning;
  if (setjmp(decoded.errors.jump) != 0) {
    jpeg_destroy_decompress(&jpeg);
    return false;
  }
  jpeg_create_decompress(&jpeg);
  jpeg_save_markers(&jpeg, JPEG_APP0 + 1, 0xffff);
  jpeg_mem_src(&jpeg, bytes.data(), bytes.size());
  jpeg_read_header(&jpeg, TRUE);
  if (std::int64_t(jpeg.image_width) * jpeg.image_height > kMaxPixels) {
    std::strcpy(decoded.errors.message, "the picture is larger than 100 million pixels");
    jpeg_destroy_decompress(&jpeg);
    return false;
  }
  for (jpeg_saved_marker_ptr marker = jpeg.marker_list; marker != nullptr; marker = marker->next) {
    if (marker->marker == JPEG_APP0 + 1 && decoded.orientation == 1) {
      decoded.orientation = exif_orientation(marker->data, marker->data_length);
    }
  }
  const bool four_inks = jpeg.jpeg_color_space == JCS_CMYK || jpeg.jpeg_color_space == JCS_YCCK;
  jpeg.out_color_space = four_inks ? JCS_CMYK : JCS_RGB;
  jpeg_start_decompress(&jpeg);
  decoded.image = Image(int(jpeg.output_width), int(jpeg.output_height));
  decoded.ink_line.resize(std::size_t(jpeg.output_width) * 4);
  while (jpeg.output_scanline < jpeg.output_height) {
    std::uint8_t* rgb = decoded.image.pixel(0, int(jpeg.output_scanline));
    JSAMPROW row = four_inks ? decoded.ink_line.data() : rgb;
    jpeg_read_scanlines(&jpeg, &row, 1);
    if (four_inks) inverted_cmyk_to_rgb(decoded.ink_line.data(), rgb, decoded.image.width);
  }
  jpeg_finish_decompress(&jpeg);
  jpeg_destroy_decompress(&jpeg);
  return true;
}

}  // namespace

Image decode_jpeg(const std::vector<std::uint8_t>& bytes) {
  Decoded decoded;
  if (!decode(bytes, decoded)) throw std::runtime_error(decoded.errors.message);
  return turn_upright(std::move(decoded.image), decoded.orientation);
}

}  // namespace example
