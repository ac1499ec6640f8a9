#include "common/utf8.h"

namespace example {

std::optional<std::u32string> decode_utf8(std::string_view text) {
  std::u32string points;
  for (std::size_t i = 0; i < text.size();) {
    const unsigned char lead = static_cast<unsigned char>(text[i++]);
    // How many bytes follow, what the lead byte contributes, and the least code point that needs this many.
    int following = 0;
    char32_t point = lead, least = 0;
    if (lead >= 0xf0 && lead < 0xf8) {
      following = 3, point = lead & 0x07, least = 0x10000;
    } else if (lead >= 0xe0 && lead < 0xf0) {
      following = 2, point = lead & 0x0f, least = 0x800;
    } else if (lead >= 0xc0 && lead < 0xe0) {
      following = 1, point = lead & 0x1f, least = 0x80;
    } else if (lead >= 0x80) {
      return std::nullopt;
    }
    for (; following > 0; --following) {
      if (i == text.size() || (static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) return std::nullopt;
      point = point << 6 | (static_cast<unsigned char>(text[i++]) & 0x3f);
    }
    if (point < least || point > 0x10ffff || (point >= 0xd800 && point < 0xe000)) return std::nullopt;
    points.push_back(point);
  }
  return points;
}

}  // namespace example
