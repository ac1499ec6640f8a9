#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "diagnose/find_difference.h"

namespace tessera::inline diagnose {

namespace {

void add_row(TextTable& table, const ValueReport& report, std::string_view colour) {
  const Comparison& c = report.comparison;
  table.add({report.node, report.op_type, report.value, report.type,
             c.differing > 0 ? fmt::format("{:.3g}", c.max_difference) : "", fmt::format("{}", c.differing), c.where,
             c.got, c.want},
            colour);
}

TextTable make_table() {
  using Align = TextTable::Align;
  return TextTable({{"node", Align::kLeft, 40},
                    {"op", Align::kLeft, 24},
                    {"value", Align::kLeft, 40},
                    {"type", Align::kLeft, 32},
                    {"max|d|", Align::kRight, 12},
                    {"elements", Align::kRight, 12},
                    {"worst at", Align::kLeft, 24},
                    {"got", Align::kRight, 16},
                    {"want", Align::kRight, 16}});
}

nlohmann::json to_json(const ValueReport& report) {
  const Comparison& c = report.comparison;
  return {{"value", report.value},
          {"node", report.node},
          {"op_type", report.op_type},
          {"type", report.type},
          {"max_abs", c.max_difference},
          {"max_reference", c.max_reference},
          {"elements", c.differing},
          {"where", c.where},
          {"got", c.got},
          {"want", c.want},
          {"comparison", c.text}};
}

}  // namespace

std::string to_text(const Difference& difference, const TextStyle& style) {
  std::string text;
  if (!difference.first) {
    text = fmt::format("{}: {} values compared\n", painted("agrees", "32", style), difference.compared);
  } else {
    const ValueReport& first = *difference.first;
    text = fmt::format("{}: {} values compared; the first node that goes wrong is {} ({})\n",
                       painted("DIFFERS", "31", style), difference.compared, painted(first.node, "1", style),
                       first.op_type);
    TextTable table = make_table();
    add_row(table, first, "31");
    for (const ValueReport& report : difference.further) add_row(table, report, "");
    text += table.to_string(style, 2);
    if (const auto& found = difference.reproduction) {
      if (difference.alone) {
        text += "Compiled alone, on the reference's values, the node shows it.\n";
      } else {
        text += fmt::format("{} {} nodes together show it: {}\n",
                            difference.right_alone ? "Alone the node is right; these" : "These", found->nodes.size(),
                            fmt::join(found->nodes, ", "));
      }
      if (found->output.value != first.value)
        text += fmt::format("  there '{}': {}\n", found->output.value, found->output.comparison.text);
    } else {
      text += "No part of the model that was compiled alone shows it, beyond what rounding explains.\n";
    }
  }
  for (const std::string& note : difference.notes) text += fmt::format("note: {}\n", note);
  return text;
}

nlohmann::json to_json(const Difference& difference) {
  nlohmann::json json = {{"agrees", !difference.first.has_value()},
                         {"compared", difference.compared},
                         {"outputs", difference.outputs},
                         {"notes", difference.notes}};
  if (difference.first) json["first"] = to_json(*difference.first);
  nlohmann::json further = nlohmann::json::array();
  for (const ValueReport& report : difference.further) further.push_back(to_json(report));
  json["further"] = std::move(further);
  if (const auto& found = difference.reproduction) {
    json["reproduction"] = {{"nodes", found->nodes},
                            {"alone", difference.alone},
                            {"inputs", found->part.inputs},
                            {"outputs", found->part.outputs},
                            {"output", to_json(found->output)}};
  }
  return json;
}

}  // namespace tessera::inline diagnose
