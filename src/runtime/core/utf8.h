// Strings of a module reach programs in many languages; they must be what they claim to be.
#pragma once

#include <stddef.h>

namespace tessera {

// Whether `text` (NUL-terminated) is well-formed UTF-8: shortest forms, no surrogates, at most U+10FFFF.
bool is_utf8(const char* text);
// The same for `size` bytes, of which any may be NUL.
bool is_utf8(const char* text, size_t size);

}  // namespace tessera
