// Reads expressions in the form that arith/expr.h's to_string prints. Infix operators may also stand without
// parentheses, with the usual precedence: * / before + - before comparisons before & before ^ before |.
// Every problem is a UserError TSR-31xx (or the reader's own TSR-3001) at file:line:column.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "arith/expr.h"
#include "arith/tensor_type.h"
#include "support/text_reader.h"

namespace tessera::inline arith {

// What names mean at a place of the text.
struct ExprScope {
  std::unordered_map<std::string, Expr> names;  // variables, and let-bound expressions ("$0")
  std::unordered_map<std::string, BufferPtr> buffers;
};

Expr parse_expr(TextReader& reader, const ExprScope& scope);
// "[i, (j + 1)]" : i64 expressions.
std::vector<Expr> parse_indices(TextReader& reader, const ExprScope& scope);
// The same for dimensions, which are also checked to be of a sensible size when they are constants.
Shape parse_shape(TextReader& reader, const ExprScope& scope);
DType parse_dtype_word(TextReader& reader);

// Words that must not be names of variables or buffers in a text.
bool is_reserved_word(std::string_view word);

}  // namespace tessera::inline arith
