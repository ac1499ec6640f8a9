// UTF-8 as the Unicode standard defines it: shortest forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::inline support {

// The number of bytes of the UTF-8 sequence at the begin of `text`; 0 when it is none.
size_t utf8_length(std::string_view text);
bool is_utf8(std::string_view text);

// Takes the first character off `text`. REQUIRES: UTF-8, not empty.
uint32_t next_character(std::string_view& text);
void append_character(std::string& text, uint32_t character);

}  // namespace tessera::inline support
