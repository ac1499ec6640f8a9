// Which operators are read, and by what.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "import/stablehlo/operator_context.h"

namespace tessera::inline stablehlo {

struct HloOperator {
  std::string_view name;  // "stablehlo.add"
  void (*handler)(HloContext& c);
};

// Null: the operator is not read.
const HloOperator* find_hlo_operator(std::string_view name);
// The same of operators that have complex operands or results.
const HloOperator* find_complex_hlo_operator(std::string_view name);
// The names of all that are read.
std::vector<std::string> read_hlo_operators();

}  // namespace tessera::inline stablehlo
