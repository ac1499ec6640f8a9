// Types, numbers and operations of the loop IR as text of C, or of a language that is like it (dialect.h). Compound
// results stand in parentheses.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "arith/expr.h"
#include "codegen/source/dialect.h"
#include "types/dtype.h"

namespace tessera::inline source_codegen {

// Whether there is C for elements of the type.
bool has_c_type(DType dtype);
// What a value is computed as ("f32" of a bf16, "int" of a bool), and how it lies in memory ("u16", "u8"): names that
// helper_text defines. In headers: the standard's ("float", "uint8_t").
std::string_view value_type(DType dtype);
std::string_view storage_type(DType dtype);
std::string_view public_type(DType dtype);

// A C identifier of any text, which is no word of the language.
std::string identifier(std::string_view text);
// "x == y" of "(x == y)": for `if`, where some compilers take double parentheses for a mistake.
std::string_view without_parentheses(std::string_view text);

// Writes operations, and remembers which helper functions and headers they want.
class COps {
 public:
  // The dialect outlives the object.
  explicit COps(const Dialect& dialect = c99()) : dialect_(dialect) {}
  const Dialect& dialect() const { return dialect_; }

  std::string constant(const ExprNode& node);
  std::string number(DType dtype, double value);   // of a float type
  std::string number(DType dtype, int64_t value);  // of an integer type or bool
  // An element in memory as a value, and back.
  std::string from_storage(DType dtype, std::string stored);
  std::string to_storage(DType dtype, std::string value);

  std::string unary(UnaryOp op, DType operand, DType result, const std::string& a);
  std::string binary(BinaryOp op, DType operand, const std::string& a, const std::string& b);
  std::string fma(DType dtype, const std::string& a, const std::string& b, const std::string& c);
  std::string cast(DType to, DType from, const std::string& a);

  // The types, and the helpers that were used, each behind those that it calls.
  std::string helper_text() const;
  bool needs_math() const { return needs_math_; }
  bool needs_string() const { return needs_string_; }
  void use_string() { needs_string_ = true; }

 private:
  std::string call(const std::string& helper, DType dtype, const std::vector<std::string>& arguments);
  std::string math(std::string_view function, DType dtype, const std::string& a);
  std::string rounded(DType dtype, std::string value);  // to f16 or bf16
  std::string wrapped(DType dtype, const std::string& a, std::string_view op, const std::string& b) const;
  void want(const std::string& helper);

  const Dialect& dialect_;
  std::vector<std::string> wanted_;  // in the order in which they are defined
  std::set<std::string> known_;
  bool needs_math_ = false, needs_string_ = false;
};

}  // namespace tessera::inline source_codegen
