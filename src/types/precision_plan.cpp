#include "types/precision_plan.h"

#include <fmt/format.h>

#include <fnmatch.h>
#include <algorithm>
#include <array>
#include <sstream>

#include "support/error.h"

namespace tessera::inline types {
namespace {

constexpr std::array kPrecisions = {DType::kF32, DType::kBF16, DType::kF16, DType::kI8};

}  // namespace

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
    const auto* precision = std::find_if(kPrecisions.begin(), kPrecisions.end(), [&](DType dtype) {
      return found.size() == 2 && found[1] == dtype_name(dtype);
    });
    if (precision == kPrecisions.end())
      throw UserError({.id = "TSR-4088",
                       .message = fmt::format("line {} of '{}' is '{}'", number, source, line),
                       .node = {},
                       .legal = "a pattern of layers and f32, bf16, f16 or i8",
                       .hint = "for instance: Conv_0 f32"});
    lines_.push_back({found[0], *precision});
  }
}

bool PrecisionPlan::narrows() const {
  return std::any_of(lines_.begin(), lines_.end(), [](const Line& line) { return line.precision != DType::kF32; });
}

const PrecisionPlan::Line* PrecisionPlan::find(const std::string& layer) const {
  const auto found = std::find_if(lines_.rbegin(), lines_.rend(),
                                  [&](const Line& line) { return matches_pattern(line.pattern, layer); });
  return found == lines_.rend() ? nullptr : &*found;
}

std::optional<DType> PrecisionPlan::precision_of(const std::string& layer) const {
  const Line* line = find(layer);
  return line ? std::optional(line->precision) : std::nullopt;
}

const PrecisionPlan::Line* PrecisionPlan::find_for_location(const std::string& location) const {
  if (const Line* whole = find(location)) return whole;
  const Line* widest = nullptr;
  std::istringstream names(location);
  for (std::string name; std::getline(names, name, '+');)
    if (const Line* line = find(name))
      if (!widest || dtype_bits(line->precision) > dtype_bits(widest->precision)) widest = line;
  return widest;
}

std::optional<DType> PrecisionPlan::precision_of_location(const std::string& location) const {
  const Line* line = find_for_location(location);
  return line ? std::optional(line->precision) : std::nullopt;
}

std::string PrecisionPlan::line_for_location(const std::string& location) const {
  const Line* line = find_for_location(location);
  return line ? fmt::format("{} {}", line->pattern, dtype_name(line->precision)) : "";
}

std::vector<std::string> PrecisionPlan::unused(const std::vector<std::string>& layers) const {
  std::vector<std::string> patterns;
  for (const Line& line : lines_)
    if (std::none_of(layers.begin(), layers.end(),
                     [&](const std::string& layer) { return matches_pattern(line.pattern, layer); }))
      patterns.push_back(line.pattern);
  return patterns;
}

}  // namespace tessera::inline types
