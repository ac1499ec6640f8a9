#include "text_detect/preprocess.h"

#include "common/resize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

namespace example {
namespace {

TEST(NetworkSize, ShortSideReaches736) {
  EXPECT_EQ(network_size(960, 720).width, 992);  // 981.3, to the nearest multiple of 32
  EXPECT_EQ(network_size(960, 720).height, 736);
}

TEST(NetworkSize, LargeEnoughPicturesKeepTheirSize) {
  EXPECT_EQ(network_size(1280, 800).width, 1280);
  EXPECT_EQ(network_size(1280, 800).height, 800);
}

TEST(NetworkSize, IsAlwaysAMultipleOf32AndBounded) {
  for (const int width : {1, 2, 31, 33, 500, 735, 2017, 6000, 30000}) {
    for (const int height : {1, 5, 64, 737, 4001, 30000}) {
      const Size size = network_size(width, height);
      for (const int side : {size.width, size.height}) {
        EXPECT_EQ(side % 32, 0);
        EXPECT_GE(side, 32);
        EXPECT_LE(side, 2016);
      }
    }
  }
}

TEST(NetworkInput, IsBlueGreenRedFromMinusOneToOne) {
  Image image(32, 32);
  for (int i = 0; i < 32 * 32; ++i) image.rgb[i * 3 + 0] = 255, image.rgb[i * 3 + 1] = 102, image.rgb[i * 3 + 2] = 0;
  std::vector<float> values(3 * 32 * 32);
  fill_network_input(image, {32, 32}, values);
  EXPECT_FLOAT_EQ(values[0], -1.0f);
  EXPECT_NEAR(values[32 * 32], -0.2f, 1e-6f);
  EXPECT_FLOAT_EQ(values[2 * 32 * 32], 1.0f);
}

TEST(ResizeBilinear, DoublingInterpolatesBetweenCentres) {
  Image image(2, 1);
  for (int c = 0; c < 3; ++c) image.pixel(0, 0)[c] = 0, image.pixel(1, 0)[c] = 100;
  const Image wide = resize_bilinear(image, 4, 2);
  const int expected[4] = {0, 25, 75, 100};
  for (int x = 0; x < 4; ++x) {
    EXPECT_EQ(wide.pixel(x, 0)[0], expected[x]);
    EXPECT_EQ(wide.pixel(x, 1)[2], expected[x]);
  }
}

TEST(ResizeBilinear, OnePixelFillsAnySize) {
  Image image(1, 1);
  image.pixel(0, 0)[1] = 77;
  const Image big = resize_bilinear(image, 5, 3);
  for (int i = 0; i < 15; ++i) EXPECT_EQ(big.rgb[i * 3 + 1], 77);
}

TEST(ResizeBilinear, ShrinkingAveragesEverythingCovered) {
  Image image(64, 8);
  for (int y = 0; y < 8; ++y) {
    for (int x = 0; x < 64; x += 2) image.pixel(x, y)[0] = 200;  // every other column
  }
  const Image small = resize_bilinear(image, 8, 2);
  for (int i = 0; i < 16; ++i) EXPECT_NEAR(small.rgb[i * 3], 100, 4);
}

TEST(ResizeBilinear, ExtremeSizesKeepAConstant) {
  for (const auto& [from, to] : {std::pair{1, 500}, {500, 1}, {7, 3}, {3, 7}, {1000, 999}}) {
    Image image(from, from);
    std::fill(image.rgb.begin(), image.rgb.end(), std::uint8_t(211));
    for (const std::uint8_t value : resize_bilinear(image, to, to).rgb) ASSERT_EQ(value, 211) << from << " to " << to;
  }
}

}  // namespace
}  // namespace example
