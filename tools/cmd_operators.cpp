// tessera operators [NAME]
#include <iostream>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "diagnose/text_table.h"
#include "import/onnx/operator_table.h"
#include "import/onnx/read/model_file.h"
#include "support/error.h"
#include "support/nearest_names.h"
#include "terminal.h"

namespace tessera {

namespace {

struct OperatorsCommand {
  std::string name;
  bool json = false;
};

struct Row {
  std::string domain, name;
  int64_t since = 0, until = 0;
};

std::vector<Row> rows_of(const OperatorsCommand& command) {
  std::vector<Row> rows;
  std::vector<std::string> names;
  const auto add = [&](const std::string& domain, const OperatorImporter& importer) {
    names.emplace_back(importer.op_type);
    if (command.name.empty() || command.name == importer.op_type)
      rows.push_back({domain, std::string(importer.op_type), importer.since, importer.until});
  };
  for (const OperatorImporter& importer : operator_importers()) add("ai.onnx", importer);
  for (const OperatorImporter& importer : contrib_importers()) add(std::string(kContribDomain), importer);
  if (!rows.empty()) return rows;
  const std::vector<std::string> nearest = nearest_names(command.name, names, 3);
  throw UserError({.id = "TSR-4068",
                   .message = fmt::format("there is no operator '{}' among those that are supported", command.name),
                   .node = {},
                   .legal = "what 'tessera operators' lists",
                   .hint = nearest.empty() ? "" : fmt::format("nearest are {}", fmt::join(nearest, ", "))});
}

int operators(const OperatorsCommand& command) {
  const std::vector<Row> rows = rows_of(command);
  nlohmann::json list = nlohmann::json::array();
  TextTable table({{"operator"}, {"opsets"}, {"domain"}});
  for (const Row& row : rows) {
    list.push_back({{"domain", row.domain}, {"name", row.name}, {"since", row.since}, {"until", row.until}});
    table.add({row.name, fmt::format("{} to {}", row.since, row.until), row.domain});
  }
  if (command.json) std::cout << json_line({{"operators", list}, {"newest_opset", kNewestOpset}});
  else std::cout << table.to_string({stdout_has_colour()});
  return kExitOk;
}

}  // namespace

Command add_operators_command(CLI::App& root) {
  const auto command = std::make_shared<OperatorsCommand>();
  CLI::App* app = root.add_subcommand("operators", "List the ONNX operators that are supported, with their opsets");
  app->add_option("NAME", command->name, "Only this one: Conv, Gelu")->type_name("");
  app->add_flag("--json", command->json, "Print one line of JSON instead of text");
  app->footer(
      "Limits of single operators are in docs/operators.md; 'tessera inspect MODEL.onnx' names those of a model that "
      "are\n"
      "not supported.\n"
      "Examples:\n"
      "  tessera operators\n"
      "  tessera operators Resize");
  return {app, [command] { return operators(*command); }};
}

}  // namespace tessera
