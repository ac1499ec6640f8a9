#include "common/image_io.h"

#include "common/drawing.h"

#include <gtest/gtest.h>

#include <cstdio>  // jpeglib.h uses FILE and size_t without including them

#include <jpeglib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

namespace example {
namespace {

class ImageIo : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) / ("image_io_" + std::to_string(std::rand()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string file(const std::string& name) const { return (folder_ / name).string(); }

  std::filesystem::path folder_;
};

Image gradient(int width, int height) {
  Image image(width, height);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      image.pixel(x, y)[0] = std::uint8_t(x * 255 / width);
      image.pixel(x, y)[1] = std::uint8_t(y * 255 / height);
      image.pixel(x, y)[2] = 60;
    }
  }
  return image;
}

// A JPEG whose EXIF data (little-endian, one entry) says `orientation`.
void write_jpeg(const std::string& path, const Image& image, int orientation) {
  jpeg_compress_struct jpeg;
  jpeg_error_mgr errors;
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  FILE* file = std::fopen(path.c_str(), "wb");
  ASSERT_NE(file, nullptr);
  jpeg_stdio_dest(&jpeg, file);
  jpeg.image_width = JDIMENSION(image.width);
  jpeg.image_height = JDIMENSION(image.height);
  jpeg.input_components = 3;
  jpeg.in_color_space = JCS_RGB;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, 98, TRUE);
  jpeg_start_compress(&jpeg, TRUE);
  const JOCTET exif[] = {
      'E', 'x', 'i', 'f', 0, 0, 'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 0x01, 3, 0, 1, 0, 0, 0, JOCTET(orientation),
      0,   0,   0,   0,   0, 0, 0};
  jpeg_write_marker(&jpeg, JPEG_APP0 + 1, exif, sizeof exif);
  for (int y = 0; y < image.height; ++y) {
    JSAMPROW row = const_cast<JSAMPROW>(image.pixel(0, y));
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  jpeg_destroy_compress(&jpeg);
  std::fclose(file);
}

std::string message_of(const std::string& path) {
  try {
    load_image(path);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "no error";
}

TEST_F(ImageIo, PngComesBackAsWritten) {
  const Image image = gradient(37, 11);
  save_png(image, file("a.png"));
  const Image back = load_image(file("a.png"));
  EXPECT_EQ(back.width, 37);
  EXPECT_EQ(back.height, 11);
  EXPECT_EQ(back.rgb, image.rgb);
}

// What the eight orientations mean: where the stored picture's top left corner is on the upright one.
TEST_F(ImageIo, JpegIsTurnedUpright) {
  Image stored(48, 32);
  std::fill(stored.rgb.begin(), stored.rgb.end(), std::uint8_t(255));
  for (int y = 0; y < 8; ++y) {
    for (int x = 0; x < 16; ++x) stored.pixel(x, y)[1] = stored.pixel(x, y)[2] = 0;  // a red mark
  }
  struct Case {
    int orientation, width, height, mark_x, mark_y;
  };
  const Case cases[] = {{1, 48, 32, 2, 2}, {2, 48, 32, 45, 2}, {3, 48, 32, 45, 29}, {4, 48, 32, 2, 29},
                        {5, 32, 48, 2, 2}, {6, 32, 48, 29, 2}, {7, 32, 48, 29, 45}, {8, 32, 48, 2, 45}};
  for (const Case& c : cases) {
    write_jpeg(file("o.jpg"), stored, c.orientation);
    const Image upright = load_image(file("o.jpg"));
    ASSERT_EQ(upright.width, c.width) << c.orientation;
    ASSERT_EQ(upright.height, c.height) << c.orientation;
    const int corners[4][2] = {{2, 2}, {c.width - 3, 2}, {2, c.height - 3}, {c.width - 3, c.height - 3}};
    for (const auto& [x, y] : corners) {
      const bool is_mark = x == c.mark_x && y == c.mark_y;
      EXPECT_EQ(upright.pixel(x, y)[2] < 128, is_mark) << "orientation " << c.orientation << " at " << x << "," << y;
    }
  }
}

// A bitmap of these headers' fields; `rest` is the palette and the rows as they stand in the file.
std::vector<std::uint8_t> bitmap(int width, int height, int bits, int colours, const std::vector<int>& rest) {
  std::vector<std::uint8_t> bytes;
  const auto number = [&](std::uint32_t value, int count) {
    for (int i = 0; i < count; ++i) bytes.push_back(std::uint8_t(value >> (8 * i)));
  };
  bytes = {'B', 'M'};
  number(std::uint32_t(54 + rest.size()), 4);
  number(0, 4);
  number(std::uint32_t(54 + 4 * colours), 4);
  for (const int field : {40, width, height}) number(std::uint32_t(field), 4);
  number(1, 2);
  number(std::uint32_t(bits), 2);
  for (const int field : {0, 0, 0, 0, colours, 0}) number(std::uint32_t(field), 4);
  bytes.insert(bytes.end(), rest.begin(), rest.end());
  return bytes;
}

TEST_F(ImageIo, ReadsBitmaps) {
  // Two rows of three pixels, red green blue and white black grey; files begin with the lower row.
  const std::vector<std::uint8_t> want = {255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 132, 132, 132};
  const std::vector<int> rows24 = {255, 255, 255, 0, 0,   0, 132, 132, 132, 0, 0, 0,  // filled up to four bytes
                                   0,   0,   255, 0, 255, 0, 255, 0,   0,   0, 0, 0};
  EXPECT_EQ(decode_bmp(bitmap(3, 2, 24, 0, rows24)).rgb, want);
  const std::vector<int> rows32 = {0,   0,   255, 9, 0, 255, 0, 9, 255, 0,   0,   9,
                                   255, 255, 255, 9, 0, 0,   0, 9, 132, 132, 132, 9};
  EXPECT_EQ(decode_bmp(bitmap(3, -2, 32, 0, rows32)).rgb, want) << "the upper row first";
  const std::vector<int> palette = {0,   0,   255, 0, 0, 255, 0, 0, 255, 0,   0,   0,
                                    255, 255, 255, 0, 0, 0,   0, 0, 132, 132, 132, 0};
  std::vector<int> rows8 = palette, rows4 = palette;
  for (const int byte : {3, 4, 5, 0, 0, 1, 2, 0}) rows8.push_back(byte);
  for (const int byte : {0x34, 0x50, 0, 0, 0x01, 0x20, 0, 0}) rows4.push_back(byte);
  EXPECT_EQ(decode_bmp(bitmap(3, 2, 8, 6, rows8)).rgb, want);
  EXPECT_EQ(decode_bmp(bitmap(3, 2, 4, 6, rows4)).rgb, want);
  const std::vector<int> rows16 = {0xff, 0x7f, 0, 0, 0x10, 0x42, 0, 0, 0x00, 0x7c, 0xe0, 0x03, 0x1f, 0, 0, 0};
  EXPECT_EQ(decode_bmp(bitmap(3, 2, 16, 0, rows16)).rgb, want);
  const std::vector<std::uint8_t> whole = bitmap(3, 2, 24, 0, rows24);
  std::ofstream(file("p.bmp"), std::ios::binary).write(reinterpret_cast<const char*>(whole.data()), whole.size());
  EXPECT_EQ(load_image(file("p.bmp")).rgb, want);
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_THROW(decode_bmp({whole.begin(), whole.begin() + std::ptrdiff_t(size)}), std::runtime_error) << size;
  EXPECT_THROW(decode_bmp(bitmap(3, 2, 8, 2, rows8)), std::runtime_error) << "a colour that the palette lacks";
}

TEST_F(ImageIo, MistakesGetOneClearSentence) {
  EXPECT_NE(message_of(file("none.png")).find("No such file"), std::string::npos);
  std::ofstream(file("text.png")) << "hello";
  EXPECT_NE(message_of(file("text.png")).find("neither a PNG nor a JPEG"), std::string::npos);
  std::ofstream(file("empty.png")).close();
  EXPECT_NE(message_of(file("empty.png")).find("neither a PNG nor a JPEG"), std::string::npos);
  EXPECT_THROW(save_png(gradient(4, 4), file("no/such/folder.png")), std::runtime_error);
}

TEST_F(ImageIo, TruncatedFilesDoNotCrash) {
  save_png(gradient(64, 64), file("whole.png"));
  write_jpeg(file("whole.jpg"), gradient(64, 64), 1);
  for (const std::string name : {"whole.png", "whole.jpg"}) {
    std::ifstream in(file(name), std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    for (std::size_t length = 0; length < bytes.size(); length += 1 + bytes.size() / 97) {
      std::ofstream(file("cut"), std::ios::binary) << bytes.substr(0, length);
      try {
        // libjpeg fills what is missing with grey, so a cut in the pixels is not always an error.
        const Image image = load_image(file("cut"));
        EXPECT_EQ(image.width, 64);
      } catch (const std::runtime_error& error) {
        EXPECT_NE(std::string(error.what()).find("cut"), std::string::npos);
      }
    }
  }
}

TEST(Drawing, CutsAtThePictureAndTouchesOnlyTheLine) {
  Image image(20, 20);
  draw_line(image, {-50, 10}, {100, 10}, 3, {200, 10, 20});
  EXPECT_EQ(image.pixel(0, 10)[0], 200);
  EXPECT_EQ(image.pixel(19, 10)[0], 200);
  EXPECT_EQ(image.pixel(10, 9)[0], 200);
  EXPECT_EQ(image.pixel(10, 14)[0], 0);
  const Point outside[3] = {{-30, -30}, {-10, -30}, {-10, -10}};
  Image untouched(20, 20);
  draw_polygon(untouched, outside, 2, {255, 255, 255}, 0.5f);
  EXPECT_EQ(untouched.rgb, Image(20, 20).rgb);
}

}  // namespace
}  // namespace example
