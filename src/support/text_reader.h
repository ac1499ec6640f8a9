// Reads the text forms of our IRs: tokens on demand, white space and `//` comments skipped, and one way to complain.
// Never reads past the end; every failure is a UserError whose `node` is "file:line:column".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::inline support {

class TextReader {
 public:
  // `text` must outlive the reader.
  TextReader(std::string_view text, std::string file) : text_(text), file_(std::move(file)) {}

  bool at_end();
  // The next character that is neither white space nor comment; '\0' at the end.
  char peek();
  // Whether the next characters are exactly `token`; a word (letters) must also end there.
  bool peek_is(std::string_view token);
  bool accept(std::string_view token);
  void expect(std::string_view token);

  // Letters, digits and '_', not starting with a digit. `what` says what it names, for the message.
  std::string word(std::string_view what);
  // Letters, digits and '_' in any order: "4x8xf32".
  std::string_view word_characters(std::string_view what);
  // A symbol's name: words joined by single dots ("p2o.Dim.1"), or anything in quotes.
  std::string symbol(std::string_view what);
  // The characters of a value's or graph's name after its sigil: bare ([A-Za-z0-9_./]+) or quoted.
  std::string name(char sigil, std::string_view what);
  // With the escapes of these text forms, and those of MLIR (\HH).
  std::string quoted(std::string_view what);
  // Sign, digits, fraction, exponent; or [-]inf, nan. Not converted.
  std::string_view number(std::string_view what);
  int64_t integer(std::string_view what);
  // The hexadecimal digits after 0x.
  std::string_view hex_digits(std::string_view what);

  // The same with the 0x; empty, and nothing is read, when no such number stands there.
  std::string_view hex_number();

  // The place of the next token, "file:line:column".
  std::string position();
  [[noreturn]] void fail(const std::string& id, const std::string& message, const std::string& legal = "");
  // "expected <what>, found <the next token>".
  [[noreturn]] void fail_expected(std::string_view what);

 private:
  void skip();
  std::string found();

  std::string_view text_;
  std::string file_;
  size_t at_ = 0;
  size_t counted_to_ = 0, line_begin_ = 0;  // `line_`, which begins there, has this place
  int64_t line_ = 1;
};

bool is_bare_name(std::string_view name);
// `name` as the text forms write it after its sigil: bare when possible, else quoted.
std::string name_text(std::string_view name);
// A symbol's name as shapes and formulas write it.
std::string symbol_text(std::string_view name);
std::string quoted_text(std::string_view text);

}  // namespace tessera::inline support
