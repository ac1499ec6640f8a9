// tessera explain MODEL
#include <filesystem>
#include <iostream>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "compile_flags.h"
#include "driver/analysis/explain.h"
#include "flag_use.h"
#include "progress.h"
#include "step_progress.h"
#include "terminal.h"

namespace tessera {

namespace {

struct ExplainCommand {
  CompileFlags compile;
  std::string model, node;
  bool json = false;
};

int explain_verb(const ExplainCommand& command) {
  ModelExplanation explained;
  FlagUse use;
  {
    Progress progress("explaining " + std::filesystem::path(command.model).filename().string());
    DriverOptions options = driver_options(command.compile, &use);
    StepProgress steps(progress);
    options.observers.add(steps);
    explained = explain_model(command.model, options);
  }
  print_lines(use, command.compile);
  const Explanation& explanation = explained.explanation;
  const TextStyle style{stdout_has_colour()};
  if (command.node.empty()) {
    std::cout << (command.json ? json_line(to_json(explanation)) : to_text(explanation, style));
  } else {
    const NodeNote& node = find_node(explanation, explained.model, command.node);
    std::cout << (command.json ? json_line(to_json(explanation, node)) : to_text(explanation, node, style));
  }
  return kExitOk;
}

}  // namespace

Command add_explain_command(CLI::App& root) {
  const auto command = std::make_shared<ExplainCommand>();
  CLI::App* app = root.add_subcommand("explain", "Say what became of each node of a model, and why");
  app->add_option("MODEL", command->model, "The model: ONNX, TFLite, GGUF, or a graph as text")
      ->required()
      ->type_name("");
  app->add_option("--node", command->node, "Only this node (or the one that gives this value), in full")
      ->type_name("NAME");
  app->add_flag("--json", command->json, "Print one line of JSON instead of text");
  add_compile_flags(*app, command->compile);
  app->footer(
      "Examples:\n"
      "  tessera explain model.onnx\n"
      "  tessera explain model.onnx --node /layer1/conv1/Conv\n"
      "  tessera explain model.onnx --json --target x86-64-v3");
  return {app, [command] { return explain_verb(*command); }};
}

}  // namespace tessera
