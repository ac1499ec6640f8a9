// The two forms of an explanation: for people, and as JSON (documented in docs/cli.md).
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "diagnose/explain.h"

namespace tessera::inline diagnose {

namespace {

using Align = TextTable::Align;

std::string plural(size_t count, const std::string& word) {
  return fmt::format("{} {}{}", count, word, count == 1 ? "" : "s");
}

std::string became(const Explanation& explanation, const NodeNote& node) {
  if (node.fate == "kernel") {
    std::vector<std::string> texts;
    for (const int index : node.kernels) {
      const KernelNote& kernel = explanation.kernels[static_cast<size_t>(index)];
      texts.push_back(fmt::format("kernel {} ({})", index, kernel.rule));
    }
    return fmt::format("{}", fmt::join(texts, ", "));
  }
  if (node.fate == "view") return "a view: other shape, same bytes";
  if (node.fate == "constant") return "a constant, computed while compiling (" + node.gone_after + ")";
  if (node.fate == "unused") return "nothing: no output needs it";
  return "nothing of its own: removed or merged by " + node.gone_after;
}

std::vector<std::string> fused_with(const Explanation& explanation, const NodeNote& node) {
  std::vector<std::string> names;
  for (const int index : node.kernels) {
    for (const std::string& name : explanation.kernels[static_cast<size_t>(index)].nodes) {
      if (name != node.name && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

double predicted_us(const KernelNote& kernel) {
  for (const RuleNote& rule : kernel.rules) {
    if (rule.chosen) return rule.predicted_us;
  }
  return -1;
}

std::string known(double value, std::string (*text)(double)) { return value < 0 ? "?" : text(value); }

std::string kernel_text(int index, const KernelNote& kernel, const TextStyle& style) {
  std::string text = fmt::format(
      "{}\n  computes   {}\n  nodes      {}\n", painted(fmt::format("kernel {}: {}", index, kernel.name), "1", style),
      kernel.result,
      kernel.nodes.empty() ? "none of the model's: a copy" : fmt::format("{}", fmt::join(kernel.nodes, ", ")));
  for (size_t i = 0; i < kernel.operands.size(); ++i)
    text += fmt::format("  {}{}\n", i == 0 ? "reads      " : "           ", kernel.operands[i]);
  for (size_t i = 0; i < kernel.joins.size(); ++i)
    text += fmt::format("  {}{}\n", i == 0 ? "joins      " : "           ", kernel.joins[i]);
  text += fmt::format("  schedule   {}\n  layout     {}\n  work       {} FLOP, {}\n", kernel.schedule, kernel.layout,
                      known(static_cast<double>(kernel.flops), count_text),
                      known(static_cast<double>(kernel.bytes), bytes_text));
  if (!kernel.only_if.empty()) text += fmt::format("  only if    {}\n", fmt::join(kernel.only_if, " and "));
  TextTable rules({{"rule"}, {"predicted", Align::kRight}, {""}});
  for (const RuleNote& rule : kernel.rules) {
    rules.add({rule.rule, rule.declined.empty() ? time_text(rule.predicted_us) : "-",
               rule.chosen             ? "chosen"
               : rule.declined.empty() ? "possible"
                                       : "declined: " + rule.declined},
              rule.chosen             ? "32"
              : rule.declined.empty() ? ""
                                      : "2");
  }
  return text + rules.to_string(style, 2);
}

std::string remarks_text(const NodeNote& node, const TextStyle& style) {
  std::string text;
  for (const Remark& remark : node.done)
    text += fmt::format("  {} {}: {}{}\n", painted("done   ", "32", style), remark.pass, remark.text,
                        remark.other.empty() ? "" : " (for " + remark.other + ")");
  for (const Remark& remark : node.refused)
    text +=
        fmt::format("  {} {}: {}{}\n", painted("refused", "33", style), remark.pass,
                    remark.other.empty() ? "" : fmt::format("{} with {}: ", remark.node, remark.other), remark.text);
  return text;
}

nlohmann::json json_of(const Remark& remark) {
  nlohmann::json json = {{"pass", remark.pass}, {"node", remark.node}, {"text", remark.text}};
  if (!remark.other.empty()) json["other"] = remark.other;
  return json;
}

nlohmann::json json_of(int index, const KernelNote& kernel) {
  nlohmann::json rules = nlohmann::json::array();
  for (const RuleNote& rule : kernel.rules) {
    nlohmann::json entry = {{"rule", rule.rule}, {"chosen", rule.chosen}};
    if (rule.declined.empty()) entry["predicted_us"] = rule.predicted_us;
    else entry["declined"] = rule.declined;
    rules.push_back(std::move(entry));
  }
  return {{"index", index},
          {"name", kernel.name},
          {"nodes", kernel.nodes},
          {"rule", kernel.rule},
          {"schedule", kernel.schedule},
          {"rules", std::move(rules)},
          {"operands", kernel.operands},
          {"joins", kernel.joins},
          {"result", kernel.result},
          {"layout", kernel.layout},
          {"only_if", kernel.only_if},
          {"flops", kernel.flops},
          {"bytes", kernel.bytes},
          {"predicted_us", predicted_us(kernel)}};
}

nlohmann::json json_of(const Explanation& explanation, const NodeNote& node) {
  nlohmann::json done = nlohmann::json::array(), refused = nlohmann::json::array();
  for (const Remark& remark : node.done) done.push_back(json_of(remark));
  for (const Remark& remark : node.refused) refused.push_back(json_of(remark));
  nlohmann::json json = {{"name", node.name},
                         {"op_type", node.op_type},
                         {"fate", node.fate},
                         {"kernels", node.kernels},
                         {"done", std::move(done)},
                         {"refused", std::move(refused)},
                         {"fused_with", fused_with(explanation, node)}};
  if (!node.gone_after.empty()) json["gone_after"] = node.gone_after;
  return json;
}

std::string flow_text(const Explanation& explanation) {
  if (!explanation.flow) return "";
  const std::string why = explanation.flow->to_string();
  return fmt::format("a flow: steps of a run, and pieces between them{}\n", why.empty() ? "" : ", because of " + why);
}

nlohmann::json json_of(const NoGraph& why) { return {{"node", why.node}, {"reason", why.reason}}; }

}  // namespace

std::string to_text(const Explanation& explanation, const TextStyle& style) {
  size_t in_kernels = 0, views = 0, constants = 0, removed = 0;
  for (const NodeNote& node : explanation.nodes) {
    in_kernels += node.fate == "kernel";
    views += node.fate == "view";
    constants += node.fate == "constant";
    removed += node.fate == "removed" || node.fate == "unused";
  }
  std::string text = fmt::format("{}: for {} at -O{}\n{}{}{} became {}: {} in kernels, {}, {}, {} removed\n\n",
                                 painted(explanation.model, "1", style), explanation.target, explanation.opt_level,
                                 explanation.sizes.empty() ? "" : explanation.sizes + "\n", flow_text(explanation),
                                 plural(explanation.nodes.size(), "node"), plural(explanation.kernels.size(), "kernel"),
                                 in_kernels, plural(views, "view"), plural(constants, "constant"), removed);

  TextTable nodes({{"node", Align::kLeft, 48}, {"operator", Align::kLeft, 24}, {"became"}});
  for (const NodeNote& node : explanation.nodes)
    nodes.add({node.name, node.op_type, became(explanation, node)}, node.fate == "kernel" ? "" : "2");
  text += nodes.to_string(style) + "\n";

  TextTable kernels({{"#", Align::kRight},
                     {"rule"},
                     {"predicted", Align::kRight},
                     {"FLOP", Align::kRight},
                     {"bytes", Align::kRight},
                     {"result", Align::kLeft, 48},
                     {"nodes"}});
  for (size_t i = 0; i < explanation.kernels.size(); ++i) {
    const KernelNote& kernel = explanation.kernels[i];
    kernels.add({std::to_string(i), kernel.rule, known(predicted_us(kernel), time_text),
                 known(static_cast<double>(kernel.flops), count_text),
                 known(static_cast<double>(kernel.bytes), bytes_text), kernel.result,
                 fmt::format("{}", fmt::join(kernel.nodes, " + "))});
  }
  text += kernels.to_string(style);

  TextTable precisions({{"layer", Align::kLeft, 48}, {"precision"}});
  for (const NodeNote& node : explanation.nodes)
    for (const Remark& remark : node.done)
      if (remark.pass == "lower_precision") precisions.add({node.name, remark.text});
  if (!precisions.empty()) text += "\n" + precisions.to_string(style);

  // Each refusal once, though both of its nodes carry it.
  std::vector<Remark> refused;
  for (const NodeNote& node : explanation.nodes) {
    for (const Remark& remark : node.refused) {
      if (std::find(refused.begin(), refused.end(), remark) == refused.end()) refused.push_back(remark);
    }
  }
  TextTable refusals(
      {{"not done", Align::kLeft, 24}, {"node", Align::kLeft, 48}, {"with", Align::kLeft, 48}, {"because"}});
  for (const Remark& remark : refused) refusals.add({remark.pass, remark.node, remark.other, remark.text});
  if (!refusals.empty()) text += "\n" + refusals.to_string(style);
  return text;
}

std::string to_text(const Explanation& explanation, const NodeNote& node, const TextStyle& style) {
  std::string text =
      fmt::format("{} ({}) became {}\n", painted(node.name, "1", style), node.op_type, became(explanation, node));
  const std::vector<std::string> others = fused_with(explanation, node);
  if (!others.empty()) text += fmt::format("  fused with {}\n", fmt::join(others, ", "));
  if (explanation.flow && explanation.flow->node == node.name) text += "  " + flow_text(explanation);
  text += remarks_text(node, style);
  for (const int index : node.kernels)
    text += "\n" + kernel_text(index, explanation.kernels[static_cast<size_t>(index)], style);
  return text;
}

nlohmann::json to_json(const Explanation& explanation) {
  nlohmann::json nodes = nlohmann::json::array(), kernels = nlohmann::json::array();
  for (const NodeNote& node : explanation.nodes) nodes.push_back(json_of(explanation, node));
  for (size_t i = 0; i < explanation.kernels.size(); ++i)
    kernels.push_back(json_of(static_cast<int>(i), explanation.kernels[i]));
  nlohmann::json json = {{"model", explanation.model},
                         {"target", explanation.target},
                         {"opt_level", explanation.opt_level},
                         {"nodes", std::move(nodes)},
                         {"kernels", std::move(kernels)}};
  if (!explanation.sizes.empty()) json["sizes"] = explanation.sizes;
  if (explanation.flow) json["flow"] = json_of(*explanation.flow);
  return json;
}

nlohmann::json to_json(const Explanation& explanation, const NodeNote& node) {
  nlohmann::json json = json_of(explanation, node);
  if (explanation.flow && explanation.flow->node == node.name) json["flow"] = json_of(*explanation.flow);
  nlohmann::json kernels = nlohmann::json::array();
  for (const int index : node.kernels)
    kernels.push_back(json_of(index, explanation.kernels[static_cast<size_t>(index)]));
  json["kernels"] = std::move(kernels);
  return json;
}

}  // namespace tessera::inline diagnose
