#include "common/font.h"

#include "common/utf8.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <stdexcept>

namespace example {
namespace {

TEST(Utf8, DecodesWhatIsWellFormed) {
  EXPECT_EQ(decode_utf8(""), U"");
  EXPECT_EQ(decode_utf8("aé疗😀"), U"aé疗😀");
  EXPECT_EQ(decode_utf8(std::string_view("\0x", 2))->size(), 2u);
  EXPECT_EQ(decode_utf8("\xf4\x8f\xbf\xbf"), U"\U0010FFFF");
}

TEST(Utf8, RefusesWhatIsNot) {
  for (const char* text : {"\x80", "\xff", "\xc3", "\xe7\x96", "\xf0\x9f\x98", "\xc0\xaf", "\xc1\xbf", "\xe0\x80\xaf",
                           "\xf0\x80\x80\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "a\xc3("}) {
    EXPECT_FALSE(decode_utf8(text).has_value()) << testing::PrintToString(std::string(text));
  }
}

class FontTest : public testing::Test {
 protected:
  void SetUp() override {
    try {
      path_ = Font::default_path();
    } catch (const std::runtime_error& error) {
      GTEST_SKIP() << error.what();
    }
  }
  std::string path_;
};

long ink_of(const Ink& ink) { return std::accumulate(ink.values.begin(), ink.values.end(), 0l); }

TEST_F(FontTest, LinesAreAsHighAsAskedAndAsWideAsTheirText) {
  const Font font(path_);
  const Ink one = font.render_line("H", 40), two = font.render_line("HH", 40);
  EXPECT_EQ(one.height, 40);
  EXPECT_GT(one.width, 5);
  EXPECT_EQ(two.width, 2 * one.width);
  EXPECT_EQ(ink_of(two), 2 * ink_of(one));
  EXPECT_EQ(font.render_line("", 40).width, 0);
  EXPECT_EQ(ink_of(font.render_line("   ", 40)), 0);
}

TEST_F(FontTest, DrawsInsideTheQuadOnly) {
  const Font font(path_);
  Image image(200, 100);
  std::fill(image.rgb.begin(), image.rgb.end(), 255);
  draw_text(image, {Point{50, 30}, Point{150, 30}, Point{150, 60}, Point{50, 60}}, "Text that is far too long", font,
            {0, 0, 0});
  long inside = 0, outside = 0;
  for (int y = 0; y < image.height; ++y) {
    for (int x = 0; x < image.width; ++x) {
      const bool in = x >= 49 && x <= 151 && y >= 29 && y <= 61;
      (in ? inside : outside) += 255 - image.pixel(x, y)[0];
    }
  }
  EXPECT_GT(inside, 10000);
  EXPECT_EQ(outside, 0);
}

TEST_F(FontTest, RefusesTextThatIsNotUtf8) { EXPECT_THROW(Font(path_).render_line("\xff", 20), std::runtime_error); }

TEST(Font, SaysWhichFileIsNoFont) {
  try {
    const Font font("/no/such/font.ttf");
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "cannot read a font from '/no/such/font.ttf' (FreeType error 1)");
  }
}

}  // namespace
}  // namespace example
