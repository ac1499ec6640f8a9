// tessera export MODEL -o FILE.onnx|FILE.graph
#include <iostream>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "compile_flags.h"
#include "driver/compile.h"
#include "driver/engine/output_guard.h"
#include "driver/open_sizes.h"
#include "graph/flow.h"
#include "graph/printer.h"
#include "import/onnx/onnx_import.h"
#include "import/onnx/write/onnx_export.h"
#include "package/atomic_file.h"
#include "support/error.h"
#include "terminal.h"

namespace tessera {

namespace {

struct ExportCommand {
  CompileFlags flags;
  std::string model, output;
  bool quiet = false, json = false;
};

bool is_onnx(const std::string& output) { return output.ends_with(".onnx"); }

// What is wrong with the output's name, which says the format; empty: nothing.
std::string name_problem(const std::string& output) {
  if (is_onnx(output) || output.ends_with(".graph") || output == "-") return "";
  return fmt::format("the name of '{}' says no format: FILE.onnx, FILE.graph, or - for a graph on standard output",
                     output);
}

// The model as it is read, before any pass: one graph.
Graph read_graph(const ExportCommand& command) {
  const DriverOptions nobody;
  PassRunner unwatched(nobody);
  ImportedModel model = read_model(command.model, driver_options(command.flags), unwatched);
  if (!model.symbols.empty()) refuse_ranges(model, "export");  // read at one size; a graph may have symbols of its own
  return graph_alone(std::move(model));
}

nlohmann::json types_of(const Graph& graph, const std::vector<ValueId>& values) {
  nlohmann::json list = nlohmann::json::array();
  for (const ValueId value : values)
    list.push_back({{"name", graph.value(value).name}, {"type", graph.type(value).to_string()}});
  return list;
}

int export_model(const ExportCommand& command) {
  if (command.output == "-" && command.json)
    throw UserError({.id = "TSR-4069",
                     .message = "--json, and the output itself, would both go to standard output",
                     .node = {},
                     .legal = "-o FILE with --json",
                     .hint = {}});
  if (command.output != "-") refuse_to_overwrite(command.output, files_of_model(command.model));
  const Graph graph = read_graph(command);
  if (is_onnx(command.output)) {
    export_onnx_file(graph, command.output);
  } else if (command.output == "-") {
    std::cout << print(graph) << std::flush;
  } else {
    write_file(command.output, "output", print(graph));
  }
  if (command.json)
    std::cout << json_line({{"model", command.model},
                            {"output", command.output},
                            {"format", is_onnx(command.output) ? "onnx" : "graph"},
                            {"nodes", graph.nodes().size()},
                            {"inputs", types_of(graph, graph.inputs)},
                            {"outputs", types_of(graph, graph.outputs)}});
  else if (command.output != "-" && !command.quiet) fmt::print("{}: {} nodes\n", command.output, graph.nodes().size());
  return kExitOk;
}

}  // namespace

Command add_export_command(CLI::App& root) {
  const auto command = std::make_shared<ExportCommand>();
  CLI::App* app = root.add_subcommand("export", "Write a model as an ONNX file, or as a graph in text form");
  app->add_option("MODEL", command->model, "The model: ONNX, TFLite, GGUF, or a graph as text")
      ->required()
      ->type_name("");
  app->add_option("-o,--output", command->output, "FILE.onnx, FILE.graph, or - for a graph on standard output")
      ->required()
      ->check(CLI::Validator(name_problem, ""))
      ->type_name("FILE");
  app->add_option("--dim", command->flags.dims,
                  "Value or range of a dimension that the model leaves open, by its name, or INPUT[AXIS]")
      ->allow_extra_args(false)
      ->type_name("NAME=V|LO..HI[:STEP]");
  app->add_option("--shape", command->flags.shapes, "Shape of an input whose dimensions the model leaves open")
      ->allow_extra_args(false)
      ->type_name("INPUT=1x3x640x640");
  app->add_flag("--json", command->json, "Print one line of JSON instead of text");
  app->add_flag("-q,--quiet", command->quiet, "Print nothing on success");
  app->footer(
      "Examples:\n"
      "  tessera export classifier.graph -o classifier.onnx\n"
      "  tessera export model.onnx --dim batch=1..8 -o model.graph");
  return {app, [command] { return export_model(*command); }};
}

}  // namespace tessera
