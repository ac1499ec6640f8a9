#include "common/font.h"

#include "common/utf8.h"

#include <ft2build.h>
#include FT_FREETYPE_H

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <stdexcept>

namespace example {
namespace {

// FreeType counts in 64ths of a pixel.
int pixels(FT_Pos units) { return int(units >> 6); }

void check(FT_Error error, const std::string& what) {
  if (error != 0) throw std::runtime_error(what + " (FreeType error " + std::to_string(error) + ")");
}

float ink_at(const Ink& ink, int x, int y) {
  if (x < 0 || y < 0 || x >= ink.width || y >= ink.height) return 0;
  return float(ink.values[std::size_t(y) * ink.width + x]) / 255;
}

// Bilinear between pixel centres; nothing outside.
float ink_at(const Ink& ink, Point p) {
  const float x = p.x - 0.5f, y = p.y - 0.5f;
  const int left = int(std::floor(x)), top = int(std::floor(y));
  const float fx = x - float(left), fy = y - float(top);
  return (ink_at(ink, left, top) * (1 - fx) + ink_at(ink, left + 1, top) * fx) * (1 - fy) +
         (ink_at(ink, left, top + 1) * (1 - fx) + ink_at(ink, left + 1, top + 1) * fx) * fy;
}

}  // namespace

struct Font::Handles {
  ~Handles() {
    if (face != nullptr) FT_Done_Face(face);
    if (library != nullptr) FT_Done_FreeType(library);
  }
  FT_Library library = nullptr;
  FT_Face face = nullptr;
};

Font::Font(const std::string& path) : handles_(std::make_unique<Handles>()) {
  check(FT_Init_FreeType(&handles_->library), "cannot start FreeType");
  check(FT_New_Face(handles_->library, path.c_str(), 0, &handles_->face), "cannot read a font from '" + path + "'");
  if (!FT_IS_SCALABLE(handles_->face)) throw std::runtime_error("the font '" + path + "' has no outlines");
}

Font::~Font() = default;

std::string Font::default_path() {
  const std::string wanted[] = {"/usr/share/fonts/truetype/wqy/wqy-microhei.ttc",
                                "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf"};
  for (const std::string& path : wanted) {
    if (std::filesystem::exists(path)) return path;
  }
  throw std::runtime_error(
      "there is no font to draw text with; install Debian's fonts-wqy-microhei (as "
      "scripts/setup.sh does), or name a font file with --font");
}

Ink Font::render_line(std::string_view utf8, int height) const {
  const auto points = decode_utf8(utf8);
  if (!points) throw std::runtime_error("text to draw is not UTF-8");
  FT_Face face = handles_->face;
  // "Real dimensions": the height asked for is ascender to descender, not that of an imagined square.
  FT_Size_RequestRec size{FT_SIZE_REQUEST_TYPE_REAL_DIM, 0, FT_Long(std::max(height, 2)) << 6, 0, 0};
  check(FT_Request_Size(face, &size), "the font cannot be scaled");
  Ink ink;
  ink.height = std::max(height, 2);
  for (const char32_t point : *points) {
    check(FT_Load_Char(face, point, FT_LOAD_NO_BITMAP), "a letter cannot be drawn");
    ink.width += pixels(face->glyph->advance.x);
  }
  ink.values.resize(std::size_t(ink.width) * ink.height);
  const int baseline = pixels(face->size->metrics.ascender);
  int pen = 0;
  for (const char32_t point : *points) {
    check(FT_Load_Char(face, point, FT_LOAD_RENDER | FT_LOAD_NO_BITMAP), "a letter cannot be drawn");
    const FT_GlyphSlot glyph = face->glyph;
    for (int row = 0; row < int(glyph->bitmap.rows); ++row) {
      const int y = baseline - glyph->bitmap_top + row;
      for (int column = 0; column < int(glyph->bitmap.width); ++column) {
        const int x = pen + glyph->bitmap_left + column;
        if (x < 0 || y < 0 || x >= ink.width || y >= ink.height) continue;
        std::uint8_t& value = ink.values[std::size_t(y) * ink.width + x];
        value = std::max(value, glyph->bitmap.buffer[row * glyph->bitmap.pitch + column]);
      }
    }
    pen += pixels(glyph->advance.x);
  }
  return ink;
}

void draw_text(Image& image, const Quad& quad, std::string_view utf8, const Font& font, Color color) {
  const float width = width_of(quad), height = height_of(quad);
  if (utf8.empty() || width < 2 || height < 2) return;
  Ink ink = font.render_line(utf8, int(height));
  if (float(ink.width) > width) ink = font.render_line(utf8, int(height * width / float(ink.width)));
  if (ink.width == 0) return;
  const float shrink = std::max(1.0f, float(ink.width) / width);  // widths of letters are rounded, so that some remains
  const float top = (height - float(ink.height)) / 2;

  const Perspective to_text = Perspective::to_quad(quad, width, height).inverse();
  const auto [left, right] = std::minmax({quad[0].x, quad[1].x, quad[2].x, quad[3].x});
  const auto [high, low] = std::minmax({quad[0].y, quad[1].y, quad[2].y, quad[3].y});
  for (int y = std::max(0, int(high)); y <= std::min(image.height - 1, int(low) + 1); ++y) {
    for (int x = std::max(0, int(left)); x <= std::min(image.width - 1, int(right) + 1); ++x) {
      const Point p = to_text({float(x), float(y)});
      const float alpha = ink_at(ink, {p.x * shrink, p.y - top});
      std::uint8_t* pixel = image.pixel(x, y);
      for (int c = 0; c < 3; ++c) pixel[c] = std::uint8_t(std::lround(pixel[c] + (color[c] - pixel[c]) * alpha));
    }
  }
}

}  // namespace example
