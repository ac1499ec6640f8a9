#include "driver/precision_plan.h"

#include <fmt/format.h>

#include <fnmatch.h>
#include <algorithm>
#include <sstream>

#include "support/error.h"

namespace tessera::inline driver {

bool matches_pattern(const std::string& pattern, const std::string& name) {
  std::string escaped;
  for (const char c : pattern) {
    if (c == '[' || c == ']' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return fnmatch(escaped.c_str(), name.c_str(), 0) == 0;
}

PrecisionPlan::PrecisionPlan(std::string_view text, const std::string& source) {
  std::istringstream stream{std::string(text)};
  std::string line;
  for (int number = 1; std::getline(stream, line); ++number) {
    std::istringstream words(line);
    std::vector<std::string> found;
    for (std::string word; words >> word && word[0] != '#';) found.push_back(word);
    if (found.empty()) continue;
    const bool is_real = found.size() == 2 && found[1] == "f32", is_byte = found.size() == 2 && found[1] == "i8";
    if (!is_real && !is_byte)
      throw UserError({.id = "TSR-4088",
                       .message = fmt::format("line {} of '{}' is '{}'", number, source, line),
                       .node = {},
                       .legal = "a pattern of layers and f32 or i8",
                       .hint = "for instance: Conv_0 f32"});
    lines_.push_back({found[0], is_real ? LayerPrecision::kF32 : LayerPrecision::kI8});
  }
}

std::optional<LayerPrecision> PrecisionPlan::precision_of(const std::string& layer) const {
  std::optional<LayerPrecision> precision;
  for (const Line& line : lines_)
    if (matches_pattern(line.pattern, layer)) precision = line.precision;
  return precision;
}

std::vector<std::string> PrecisionPlan::unused(const std::vector<std::string>& layers) const {
  std::vector<std::string> patterns;
  for (const Line& line : lines_)
    if (std::none_of(layers.begin(), layers.end(),
                     [&](const std::string& layer) { return matches_pattern(line.pattern, layer); }))
      patterns.push_back(line.pattern);
  return patterns;
}

}  // namespace tessera::inline driver
