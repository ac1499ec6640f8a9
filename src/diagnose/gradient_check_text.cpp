#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "diagnose/gradient_check.h"

namespace tessera::inline diagnose {
namespace {

// What is no finite number is null.
nlohmann::json number(double value) { return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(); }

std::string verdict(const CheckedGradient& value) {
  if (!value.agrees) return fmt::format("differs: {:.6g}, by differences {:.6g}", value.gradient, value.difference);
  if (value.checks > 0) return "agrees";
  if (!value.complete) return "not checked";
  return value.kinks + value.undefined > 0 ? "cannot be told" : "has no elements";
}

}  // namespace

std::string to_text(const GradientCheck& check, const TextStyle& style) {
  using enum TextTable::Align;
  TextTable table({{"value"},
                   {"type"},
                   {"what"},
                   {"checks", kRight},
                   {"near kinks", kRight},
                   {"not finite", kRight},
                   {"max rel. difference", kRight},
                   {"gradient"}});
  int checks = 0, kinks = check.operator_kinks, wrong = 0;
  for (const CheckedGradient& value : check.values) {
    table.add({value.name, value.type, value.is_parameter ? "parameter" : "input", fmt::format("{}", value.checks),
               fmt::format("{}", value.kinks), fmt::format("{}", value.undefined),
               value.checks > 0 ? fmt::format("{:.1e}", value.max_relative) : "-", verdict(value)},
              value.agrees ? "" : "31");
    checks += value.checks;
    kinks += value.kinks;
    wrong += value.agrees ? 0 : 1;
  }
  std::string text = table.to_string(style);
  text +=
      fmt::format("{} values, {} checks; {} operators alone; {} checks near kinks or hidden by rounding do not count\n",
                  check.values.size(), checks, check.operators, kinks);
  for (const std::string& note : check.notes) text += "note: " + note + "\n";
  if (check.wrong) {
    const WrongOperator& o = *check.wrong;
    text += painted(fmt::format("first wrong operator: {} ({})\n", o.op_type, o.node), "31", style);
    text += fmt::format("  its gradient of {} {} is {:.6g}, by differences {:.6g}\n", o.operand, o.type, o.gradient,
                        o.difference);
  } else if (wrong > 0) {
    text += painted(fmt::format("the gradients of {} values differ\n", wrong), "31", style);
  } else {
    const bool complete = std::all_of(check.values.begin(), check.values.end(), [](const CheckedGradient& v) {
      return v.complete && (v.checks > 0 || v.kinks + v.undefined == 0);
    });
    text +=
        painted(complete ? "all gradients agree with differences\n" : "what could be told agrees with differences\n",
                "32", style);
  }
  return text;
}

nlohmann::json to_json(const GradientCheck& check) {
  nlohmann::json values = nlohmann::json::array();
  for (const CheckedGradient& value : check.values)
    values.push_back({{"name", value.name},
                      {"type", value.type},
                      {"parameter", value.is_parameter},
                      {"checks", value.checks},
                      {"near_kinks", value.kinks},
                      {"not_finite", value.undefined},
                      {"complete", value.complete},
                      {"agrees", value.agrees},
                      {"max_relative_difference", number(value.max_relative)},
                      {"gradient", number(value.gradient)},
                      {"difference", number(value.difference)}});
  nlohmann::json json = {{"agrees", check.agrees()},     {"values", values},
                         {"operators", check.operators}, {"operator_near_kinks", check.operator_kinks},
                         {"first_wrong", nullptr},       {"notes", check.notes}};
  if (check.wrong)
    json["first_wrong"] = {{"node", check.wrong->node},
                           {"operator", check.wrong->op_type},
                           {"operand", check.wrong->operand},
                           {"type", check.wrong->type},
                           {"max_relative_difference", number(check.wrong->relative)},
                           {"gradient", number(check.wrong->gradient)},
                           {"difference", number(check.wrong->difference)}};
  return json;
}

}  // namespace tessera::inline diagnose
