// Which operators are read, and by what.
#pragma once

#include <span>

#include "import/tflite/operator_context.h"

namespace tessera::inline tflite_import {

struct TfliteOperator {
  tflite::BuiltinOperator code;
  void (*handler)(OperatorContext& c);
};

// Null: the operator is not read.
const TfliteOperator* find_operator(tflite::BuiltinOperator code);
// The same for custom operators, by name.
using CustomHandler = void (*)(OperatorContext& c);
CustomHandler find_custom_operator(std::string_view name);

}  // namespace tessera::inline tflite_import
