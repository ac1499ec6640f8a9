// tessera inspect MODULE.so|MODEL.onnx
#include <iostream>
#include <memory>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "diagnose/inspect.h"
#include "driver/engine/open_model.h"
#include "terminal.h"

namespace tessera {

namespace {

struct InspectCommand {
  std::string file;
  bool json = false;
};

int inspect(const InspectCommand& command) {
  const bool is_module = looks_like_module(command.file) || command.file.ends_with(".so");
  const nlohmann::json inspection = is_module ? inspect_module(command.file) : inspect_onnx(command.file);
  std::cout << (command.json ? json_line(inspection) : inspection_text(inspection, {stdout_has_colour()}));
  return kExitOk;
}

}  // namespace

Command add_inspect_command(CLI::App& root) {
  const auto command = std::make_shared<InspectCommand>();
  CLI::App* app = root.add_subcommand("inspect", "Show what a module or an ONNX model holds; runs nothing of it");
  app->add_option("FILE", command->file, "A module, or an ONNX file")->required()->type_name("");
  app->add_flag("--json", command->json, "Print one line of JSON instead of text");
  app->footer(
      "Examples:\n"
      "  tessera inspect resnet50.so\n"
      "  tessera inspect model.onnx --json");
  return {app, [command] { return inspect(*command); }};
}

}  // namespace tessera
