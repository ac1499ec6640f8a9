// Letters from a font file, through FreeType.
#pragma once

#include "common/quad.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace example {

// How much of each pixel is ink, 0..255, row by row.
struct Ink {
  int width = 0, height = 0;
  std::vector<std::uint8_t> values;
};

// Used by one thread at a time. Every function throws std::runtime_error with a sentence for a person.
class Font {
 public:
  explicit Font(const std::string& path);
  ~Font();
  Font(const Font&) = delete;
  Font& operator=(const Font&) = delete;

  // The font that examples take when none is named: WenQuanYi Micro Hei, which has Latin, Greek, Cyrillic and Chinese
  // letters, or else DejaVu Sans, which has no Chinese ones. Throws when neither is installed.
  static std::string default_path();

  // One line of text, `height` pixels from the top of its highest letters to the bottom of its lowest, and as wide as
  // it comes. Code points that the font lacks become its sign for that; text that is not UTF-8 is refused.
  Ink render_line(std::string_view utf8, int height) const;

 private:
  struct Handles;
  std::unique_ptr<Handles> handles_;
};

// Lays a line of text into a quad: as large as fits, beginning at its left side.
void draw_text(Image& image, const Quad& quad, std::string_view utf8, const Font& font, Color color);

}  // namespace example
