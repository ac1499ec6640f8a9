// What is said of input that cannot be used.
#pragma once

#include <string>

#include "support/error.h"

namespace tessera::inline support {

[[noreturn]] inline void refuse(const std::string& id, const std::string& found, const std::string& legal,
                                const std::string& hint = "") {
  throw UserError({.id = id, .message = found, .node = {}, .legal = legal, .hint = hint});
}

}  // namespace tessera::inline support
