// "Did you mean": the names that a misspelt one is most like.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::inline support {

// At most `count` of `names`, the most similar first; names that contain `wanted` (in any case of letters) come before
// all others, then those of the smallest edit distance. Names that have little in common with it are left out.
std::vector<std::string> nearest_names(std::string_view wanted, const std::vector<std::string>& names, size_t count);

// "did you mean 'winograd'?", for an error's hint; `otherwise` when no name is like it.
std::string did_you_mean(std::string_view wanted, const std::vector<std::string>& names, std::string otherwise = "");

}  // namespace tessera::inline support
