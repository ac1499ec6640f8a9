// What --dim and --shape say of a program's inputs, whose sizes are numbers or computed from symbols.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "arith/tensor_type.h"
#include "import/common/options.h"

namespace tessera::inline import_common {

struct DeclaredSize {
  int64_t value = 0;                      // of one without text
  std::string text = {};                  // as the program has it: "n", "2*n"; empty: a number
  std::vector<std::string> symbols = {};  // that it is computed from

  // The symbol that it is; empty: none.
  std::string lone_symbol() const { return symbols.size() == 1 && symbols[0] == text ? text : ""; }
};

struct OpenInput {
  std::string name, type_text;
  std::vector<DeclaredSize> sizes;
};

// The value of each symbol, a number or one of ImportOptions::symbols. A symbol may be called by its own name or, where
// a dimension is nothing else, as INPUT[AXIS]. `what` is how messages call the model: "program". RefusedModel TSR-1020
// for symbols without a value. UserError: TSR-1021 an option that names nothing, TSR-1022 one that contradicts the
// model or another option, TSR-1023 a size out of range, TSR-1025 a range where sizes are wanted as numbers.
std::map<std::string, Expr> values_of_symbols(const std::vector<OpenInput>& inputs, const ImportOptions& options,
                                              std::string_view what);

// UserError TSR-1023 where the known sizes are more than 2^40 elements.
void require_size(const std::string& input, const Shape& shape);

}  // namespace tessera::inline import_common
