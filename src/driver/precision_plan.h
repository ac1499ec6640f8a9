// Which layers of a model have which precision, as a file says it: on each line a pattern of names, with * and ? for
// other characters, and a precision. The last line that matches a name decides; what none matches is left to others.
// Empty lines and what follows a # at the beginning of a line or behind a space are nothing.
//
//   # detector
//   *        i8
//   Conv_0   f32
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::inline driver {

enum class LayerPrecision : uint8_t { kF32, kI8 };

// Whether the name has the pattern's form. Names of nodes have brackets, which are nothing special here.
bool matches_pattern(const std::string& pattern, const std::string& name);

class PrecisionPlan {
 public:
  PrecisionPlan() = default;
  // UserError TSR-4088 for a line without a pattern and a precision, with its number; `source` is the file's name.
  PrecisionPlan(std::string_view text, const std::string& source);

  std::optional<LayerPrecision> precision_of(const std::string& layer) const;
  // The patterns that match none of the names.
  std::vector<std::string> unused(const std::vector<std::string>& layers) const;

 private:
  struct Line {
    std::string pattern;
    LayerPrecision precision;
  };
  std::vector<Line> lines_;
};

}  // namespace tessera::inline driver
