// Functions of the loop IR's operations that C has no operator for, as C text. Names end with the type that they are
// for: "min_f32", "floordiv_i64", "i8_of_f32".
#pragma once

#include <string>
#include <vector>

#include "codegen/source/dialect.h"

namespace tessera::inline source_codegen {

// The definition; a text with "/* math */ " in it wants <math.h>.
std::string text_of_helper(const std::string& name, const Dialect& dialect);
std::vector<std::string> helpers_called_by(const std::string& name, const Dialect& dialect);

}  // namespace tessera::inline source_codegen
