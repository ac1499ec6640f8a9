#include "support/error.h"

#include <fmt/format.h>

namespace tessera::inline support {

std::string Diagnostic::to_string() const {
  std::string text = fmt::format("error {}: {}", id, message);
  if (!node.empty()) text += fmt::format("\n  node:  {}", node);
  if (!legal.empty()) text += fmt::format("\n  legal: {}", legal);
  if (!hint.empty()) text += fmt::format("\n  hint:  {}", hint);
  return text;
}

UserError::UserError(Diagnostic diagnostic) : diagnostic_(std::move(diagnostic)), text_(diagnostic_.to_string()) {}

InternalError::InternalError(std::string message, std::source_location where)
    : text_(fmt::format("internal error at {}:{}: {}", where.file_name(), where.line(), message)) {}

}  // namespace tessera::inline support
