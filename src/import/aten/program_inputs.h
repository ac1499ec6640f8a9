// The inputs that a caller of the program gives, with the sizes that options give to its symbols.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "arith/tensor_type.h"
#include "import/aten/read/program.h"
#include "import/common/options.h"

namespace tessera::inline aten {

struct ProgramInputs {
  struct Input {
    std::string name;
    TensorType type;
  };
  std::vector<Input> tensors;           // of the program's user inputs, in order
  std::map<std::string, Expr> symbols;  // the value of each, a number or one of ImportOptions::symbols
};

// RefusedModel TSR-1020 for symbols without a value. UserError: TSR-1021 an option that names nothing, TSR-1022 one
// that contradicts the program or another option, TSR-1023 sizes out of range, TSR-1024 an input that is no tensor of a
// type that we have, TSR-1025 a range where the sizes are wanted as numbers. A symbol may be called by its own name or
// as INPUT[AXIS]; so may what an input's extent is computed from, when it is a single symbol.
ProgramInputs resolve_inputs(const AtenProgram& program, const ImportOptions& options);

// A type with the symbols' values; empty when it is none of ours, or a size is an expression that we cannot read.
std::optional<TensorType> type_of(const AtenType& type, const std::map<std::string, Expr>& symbols);

}  // namespace tessera::inline aten
