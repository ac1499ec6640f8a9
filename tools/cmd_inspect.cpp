// tessera inspect MODULE.so|MODEL
#include <iostream>
#include <memory>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "diagnose/inspect.h"
#include "driver/formats.h"
#include "driver/graph_reader.h"
#include "driver/model_file.h"
#include "support/mapped_file.h"
#include "terminal.h"

namespace tessera {

namespace {

struct InspectCommand {
  std::string file;
  bool json = false;
};

nlohmann::json inspection_of(const std::string& path) {
  if (looks_like_module(path) || path.ends_with(".so")) return inspect_module(path);
  const auto file = MappedFile::open(path, "model", "TSR-1001");
  if (is_onnx_file(path)) return inspect_onnx(statistics_of_file(path), path, std::ssize(file->text()));
  const std::string_view format = format_of({path, {}}).name;
  const Graph graph = looks_like_graph_file(path) ? read_graph_text(file->text(), path) : graph_of_source({path, {}});
  return inspect_graph(graph, path, std::ssize(file->text()), format);
}

int inspect(const InspectCommand& command) {
  const nlohmann::json inspection = inspection_of(command.file);
  std::cout << (command.json ? json_line(inspection) : inspection_text(inspection, {stdout_has_colour()}));
  return kExitOk;
}

}  // namespace

Command add_inspect_command(CLI::App& root) {
  const auto command = std::make_shared<InspectCommand>();
  CLI::App* app = root.add_subcommand("inspect", "Show what a module or a model holds; runs nothing of it");
  app->add_option("FILE", command->file, "A module, or a model: ONNX, TFLite, GGUF, or a graph as text")
      ->required()
      ->type_name("");
  app->add_flag("--json", command->json, "Print one line of JSON instead of text");
  app->footer(
      "Examples:\n"
      "  tessera inspect resnet50.so\n"
      "  tessera inspect model.onnx --json\n"
      "  tessera inspect model.graph");
  return {app, [command] { return inspect(*command); }};
}

}  // namespace tessera
