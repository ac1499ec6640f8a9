// Text in UTF-8 and its code points.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace example {

// Nothing when `text` is not UTF-8 by the letter: overlong forms, surrogates, and code points above U+10FFFF are
// refused, and so is a sequence that is cut off.
std::optional<std::u32string> decode_utf8(std::string_view text);

}  // namespace example
