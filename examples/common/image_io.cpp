#include "common/image_io.h"

#include <png.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace example {
namespace {

std::vector<std::uint8_t> read_file(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read '" + path + "': " + std::strerror(errno));
  std::vector<std::uint8_t> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (file.bad()) throw std::runtime_error("cannot read '" + path + "'");
  return bytes;
}

Image decode_png(const std::vector<std::uint8_t>& bytes) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  if (png_image_begin_read_from_memory(&png, bytes.data(), bytes.size()) == 0) throw std::runtime_error(png.message);
  if (std::int64_t(png.width) * png.height > kMaxPixels) {
    png_image_free(&png);
    throw std::runtime_error("the picture is larger than 100 million pixels");
  }
  png.format = PNG_FORMAT_RGB;
  Image image(int(png.width), int(png.height));
  const png_color white{255, 255, 255};
  if (png_image_finish_read(&png, &white, image.rgb.data(), 0, nullptr) == 0) throw std::runtime_error(png.message);
  return image;
}

}  // namespace

Image load_image(const std::string& path) {
  const std::vector<std::uint8_t> bytes = read_file(path);
  try {
    if (bytes.size() >= 8 && std::memcmp(bytes.data(), "\x89PNG\r\n\x1a\n", 8) == 0) return decode_png(bytes);
    if (bytes.size() >= 3 && std::memcmp(bytes.data(), "\xff\xd8\xff", 3) == 0) return decode_jpeg(bytes);
    if (bytes.size() >= 2 && std::memcmp(bytes.data(), "BM", 2) == 0) return decode_bmp(bytes);
  } catch (const std::runtime_error& error) {
    throw std::runtime_error("cannot decode '" + path + "': " + error.what());
  }
  throw std::runtime_error("'" + path + "' is neither a PNG nor a JPEG nor a BMP file");
}

void save_png(const Image& image, const std::string& path) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.width = png_uint_32(image.width);
  png.height = png_uint_32(image.height);
  png.format = PNG_FORMAT_RGB;
  if (png_image_write_to_file(&png, path.c_str(), 0, image.rgb.data(), 0, nullptr) == 0) {
    throw std::runtime_error("cannot write '" + path + "': " + png.message);
  }
}

}  // namespace example
