#include "support/utf8.h"

namespace tessera::inline support {

size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xc2 && lead < 0xe0   ? 2
                        : lead >= 0xe0 && lead < 0xf0 ? 3
                        : lead >= 0xf0 && lead < 0xf5 ? 4
                                                      : 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // No longer than needed, no surrogates, nothing above U+10FFFF.
  const unsigned second = byte(1);
  const bool wrong = (lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f) ||
                     (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second > 0x8f);
  return wrong ? 0 : length;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

uint32_t next_character(std::string_view& text) {
  const size_t length = utf8_length(text);
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[i])); };
  uint32_t character = length == 1 ? byte(0) : byte(0) & (0xffu >> (length + 1));
  for (size_t i = 1; i < length; ++i) character = character << 6 | (byte(i) & 0x3f);
  text.remove_prefix(length == 0 ? 1 : length);
  return character;
}

void append_character(std::string& text, uint32_t c) {
  const auto add = [&](uint32_t byte) { text += static_cast<char>(byte); };
  if (c < 0x80) return add(c);
  if (c < 0x800) {
    add(0xc0 | c >> 6);
  } else {
    if (c < 0x10000) add(0xe0 | c >> 12);
    else add(0xf0 | c >> 18), add(0x80 | (c >> 12 & 0x3f));
    add(0x80 | (c >> 6 & 0x3f));
  }
  add(0x80 | (c & 0x3f));
}

}  // namespace tessera::inline support
