// Which compiler this is.
#pragma once

#include <string>

namespace tessera::inline driver {

// "tessera 0.1.0 (LLVM 19.1.7)".
std::string version_text();

// Changes whenever the compiler's own binary does: part of cache keys, so that a rebuilt compiler never answers with
// the code of an older one.
std::string build_identity();

}  // namespace tessera::inline driver
