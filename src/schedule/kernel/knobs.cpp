#include "schedule/kernel/knobs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "support/error.h"

namespace tessera::inline schedule {
namespace {

bool is_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
  });
}

}  // namespace

std::string to_string(const KnobPoint& point) {
  if (point.values.empty()) return point.rule;
  std::string text = point.rule + "{";
  for (size_t i = 0; i < point.values.size(); ++i)
    text += fmt::format("{}{}={}", i ? "," : "", point.values[i].first, point.values[i].second);
  return text + "}";
}

std::string_view rule_name_of(std::string_view point_text) { return point_text.substr(0, point_text.find('{')); }

std::optional<KnobPoint> parse_knob_point(std::string_view text, std::string& why) {
  KnobPoint point;
  point.rule = rule_name_of(text);
  if (!is_name(point.rule)) {
    why = fmt::format("'{}' does not begin with a rule's name", text);
    return std::nullopt;
  }
  if (point.rule.size() == text.size()) return point;
  std::string_view rest = text.substr(point.rule.size() + 1);
  if (rest.empty() || rest.back() != '}' || rest.size() == 1) {
    why = fmt::format("'{}' does not end with knobs and '}}'", text);
    return std::nullopt;
  }
  rest.remove_suffix(1);
  while (true) {
    const std::string_view item = rest.substr(0, rest.find(','));
    const size_t equals = item.find('=');
    int64_t value = 0;
    bool good = equals != std::string_view::npos && is_name(item.substr(0, equals));
    if (good) {
      const char* end = item.data() + item.size();
      const auto [stop, error] = std::from_chars(item.data() + equals + 1, end, value);
      good = error == std::errc() && stop == end;
    }
    if (!good) {
      why = fmt::format("'{}' is no knob=number", item);
      return std::nullopt;
    }
    const std::string name(item.substr(0, equals));
    if (std::any_of(point.values.begin(), point.values.end(), [&](const auto& v) { return v.first == name; })) {
      why = fmt::format("'{}' has two values", name);
      return std::nullopt;
    }
    point.values.emplace_back(name, value);
    if (item.size() == rest.size()) return point;
    rest.remove_prefix(item.size() + 1);
  }
}

int64_t KnobSpace::size() const {
  int64_t count = 1;
  for (const Knob& knob : knobs)
    if (__builtin_mul_overflow(count, static_cast<int64_t>(knob.values.size()), &count)) return INT64_MAX;
  return count;
}

KnobPoint KnobSpace::point(int64_t number) const {
  KnobPoint result{rule, {}};
  for (const Knob& knob : knobs) result.values.emplace_back(knob.name, 0);
  for (size_t i = knobs.size(); i-- > 0;) {
    const auto count = static_cast<int64_t>(knobs[i].values.size());
    result.values[i].second = knobs[i].values[static_cast<size_t>(number % count)];
    number /= count;
  }
  return result;
}

KnobPoint KnobSpace::preferred() const {
  KnobPoint result{rule, {}};
  for (const Knob& knob : knobs) result.values.emplace_back(knob.name, knob.preferred);
  return result;
}

int64_t Knobs::choose(const std::string& name, std::vector<int64_t> values, int64_t preferred) {
  check(std::none_of(seen_.begin(), seen_.end(), [&](const Knob& knob) { return knob.name == name; }),
        "a rule asks twice for knob " + name);
  values.push_back(preferred);
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  int64_t chosen = preferred;
  if (point_)
    for (const auto& [named, value] : point_->values) {
      if (named != name) continue;
      if (std::binary_search(values.begin(), values.end(), value)) {
        chosen = value;
      } else if (refused_.empty()) {
        refused_ = fmt::format("{}={} is not one of {}", name, value, fmt::join(values, ", "));
      }
    }
  seen_.push_back({name, std::move(values), preferred});
  return chosen;
}

std::string Knobs::unknown_knob() const {
  if (!point_) return "";
  for (const auto& [name, value] : point_->values)
    if (std::none_of(seen_.begin(), seen_.end(), [&](const Knob& knob) { return knob.name == name; }))
      return fmt::format("the rule has no knob '{}' for this kernel", name);
  return "";
}

}  // namespace tessera::inline schedule
