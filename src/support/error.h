// Errors of the compiler. Two kinds that never mix: UserError (the model, the options or the machine are at fault;
// exit code 1) and InternalError (a bug of ours; exit code 64). The run-time library has its own, without exceptions.
#pragma once

#include <exception>
#include <source_location>
#include <string>
#include <string_view>

namespace tessera::inline support {

// What a person needs to mend the problem. `id` is stable and listed in docs/errors.md; the other fields may be
// empty. Printed as "error TSR-1203: <message>" with one indented line per further field.
struct Diagnostic {
  std::string id;       // "TSR-1203"
  std::string message;  // what was found, in one sentence
  std::string node;     // the model's own node name, or file:line for text IR
  std::string legal;    // what would be legal
  std::string hint;     // what to do

  std::string to_string() const;
};

class UserError : public std::exception {
 public:
  explicit UserError(Diagnostic diagnostic);
  const Diagnostic& diagnostic() const { return diagnostic_; }
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  Diagnostic diagnostic_;
  std::string text_;
};

class InternalError : public std::exception {
 public:
  explicit InternalError(std::string message, std::source_location where = std::source_location::current());
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

// Throws InternalError when `condition` is false. For invariants of ours, never for input.
inline void check(bool condition, std::string_view message,
                  std::source_location where = std::source_location::current()) {
  if (!condition) throw InternalError(std::string(message), where);
}

}  // namespace tessera::inline support
