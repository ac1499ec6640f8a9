// Which layers of a model have which precision, as lines say it: a pattern of names, with * and ? for other characters,
// and a precision. The last line that matches a name decides; what none matches is left to others. Empty lines and what
// follows a # at the beginning of a line or behind a space are nothing.
//
//   # detector
//   *        bf16
//   Conv_0   f32
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "types/dtype.h"

namespace tessera::inline types {

// Whether the name has the pattern's form. Names of nodes have brackets, which are nothing special here.
bool matches_pattern(const std::string& pattern, const std::string& name);

class PrecisionPlan {
 public:
  PrecisionPlan() = default;
  // UserError TSR-4088 for a line without a pattern and one of f32, bf16, f16 and i8, with its number; `source` is where
  // they stand.
  PrecisionPlan(std::string_view text, const std::string& source);

  bool empty() const { return lines_.empty(); }
  // Whether a line asks for something else than f32.
  bool narrows() const;
  std::optional<DType> precision_of(const std::string& layer) const;
  // Of a node whose location has the names of several, joined by '+': of those that lines name, the widest.
  std::optional<DType> precision_of_location(const std::string& location) const;
  // The line that decides so, as text: "Conv_* bf16"; "" when none does.
  std::string line_for_location(const std::string& location) const;
  // The patterns that match none of the names.
  std::vector<std::string> unused(const std::vector<std::string>& layers) const;

 private:
  struct Line {
    std::string pattern;
    DType precision;
  };
  const Line* find(const std::string& layer) const;
  const Line* find_for_location(const std::string& location) const;

  std::vector<Line> lines_;
};

}  // namespace tessera::inline types
