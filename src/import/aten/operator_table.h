// Which operators are read, and by what.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "import/aten/operator_context.h"

namespace tessera::inline aten {

struct AtenOperator {
  std::string_view name;  // without its overload: "add"; of another library than aten, with that
  void (*handler)(AtenContext& c);
};

// Null: the operator is not read. The overloads of an operator differ in what kinds of arguments they take, which
// handlers ask for.
const AtenOperator* find_operator(const std::string& target);

}  // namespace tessera::inline aten
