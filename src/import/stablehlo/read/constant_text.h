// Elements of constants as MLIR writes them: numbers in brackets, one number for all, bytes in hexadecimal digits.
#pragma once

#include <string_view>

#include "import/stablehlo/read/module_text.h"
#include "support/text_reader.h"

namespace tessera::inline stablehlo {

// What stands between the angle brackets of dense<...>, before its type is known.
struct ConstantText {
  std::vector<std::string_view> numbers;                          // in order, two for a complex one; views of the text
  std::vector<int64_t> nesting;                                   // extents of the brackets
  std::string bytes;                                              // the hexadecimal digits of "0x...", without that
  bool is_bytes = false, is_complex = false, is_foreign = false;  // foreign: strings
};

// Behind "dense<", up to the bracket that closes it.
ConstantText read_constant_text(TextReader& reader);
// Null for elements that we do not have. A splat has one element, whatever the type's shape is.
TensorPtr constant_of_text(const ConstantText& text, const HloType& type, TextReader& reader);

}  // namespace tessera::inline stablehlo
