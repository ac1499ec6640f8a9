// What changed between two texts, line by line, as `diff -u` shows it.
#pragma once

#include <string>
#include <string_view>

namespace tessera::inline diagnose {

// Changed lines behind '-' and '+', with up to `context` lines around them behind ' '; "..." stands for what is left
// out, also of changes beyond `max_lines`. Empty when the texts are equal.
std::string text_diff(std::string_view before, std::string_view after, size_t context = 2, size_t max_lines = 60);

}  // namespace tessera::inline diagnose
