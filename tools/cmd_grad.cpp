// tessera grad MODEL -o FILE.graph
#include <functional>
#include <iostream>
#include <map>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "compile_flags.h"
#include "driver/api/graph_access.h"
#include "driver/compile.h"
#include "driver/engine/output_guard.h"
#include "driver/open_sizes.h"
#include "graph/printer.h"
#include "package/atomic_file.h"
#include "support/error.h"
#include "terminal.h"
#include "tessera/derivatives.h"

namespace tessera {

namespace {

struct GradCommand {
  CompileFlags flags;
  std::string model, output = "-", of, as = "value-and-gradient";
  std::vector<std::string> wrt;
  bool json = false;
};

using Make = std::function<builder::Graph(const builder::Graph&, const GradCommand&)>;

const std::map<std::string, Make>& kinds() {
  static const std::map<std::string, Make> table = {
      {"gradient", [](const auto& g, const auto& c) { return builder::grad(g, c.of, c.wrt); }},
      {"value-and-gradient", [](const auto& g, const auto& c) { return builder::value_and_grad(g, c.of, c.wrt); }},
      {"vjp", [](const auto& g, const auto& c) { return builder::vjp(g, c.wrt); }},
      {"jvp", [](const auto& g, const auto& c) { return builder::jvp(g, c.wrt); }},
      {"jacobian", [](const auto& g, const auto& c) { return builder::jacobian(g, c.of, c.wrt); }},
      {"hessian", [](const auto& g, const auto& c) { return builder::hessian(g, c.of, c.wrt); }},
      {"hvp", [](const auto& g, const auto& c) { return builder::hvp(g, c.of, c.wrt); }},
  };
  return table;
}

Graph read_graph(const GradCommand& command) {
  const DriverOptions nobody;
  PassRunner unwatched(nobody);
  ImportedModel model = read_model(command.model, driver_options(command.flags), unwatched);
  if (!model.symbols.empty()) refuse_ranges(model, "grad");  // read at one size; a graph may have symbols of its own
  return graph_alone(std::move(model));
}

std::vector<std::string> types_of(const builder::Values& values) {
  std::vector<std::string> list;
  for (const builder::Value& value : values) list.push_back(fmt::format("{}: {}", value.name(), value.type()));
  return list;
}

// The public API's errors are the command line's.
builder::Graph derived_graph(const GradCommand& command) {
  const builder::Graph graph = builder::GraphAccess::graph(read_graph(command));
  try {
    return kinds().at(command.as)(graph, command);
  } catch (const CompileError& error) {
    const CompileError::Details& d = error.details();
    if (error.is_bug()) throw;
    throw UserError({d.id, d.message, d.node, d.legal, d.hint});
  }
}

int differentiate(const GradCommand& command) {
  const bool to_file = command.output != "-";
  if (!to_file && command.json)
    throw UserError({.id = "TSR-4069",
                     .message = "--json, and the output itself, would both go to standard output",
                     .node = {},
                     .legal = "-o FILE with --json",
                     .hint = {}});
  if (to_file) refuse_to_overwrite(command.output, files_of_model(command.model));
  const builder::Graph derived = derived_graph(command);
  if (to_file) write_file(command.output, "output", derived.text());
  else std::cout << derived.text() << std::flush;
  const auto inputs = types_of(derived.inputs()), outputs = types_of(derived.outputs());
  if (command.json)
    std::cout << json_line({{"model", command.model},
                            {"output", command.output},
                            {"as", command.as},
                            {"inputs", inputs},
                            {"outputs", outputs}});
  else if (to_file) fmt::print("{}: ({}) -> ({})\n", command.output, fmt::join(inputs, ", "), fmt::join(outputs, ", "));
  return kExitOk;
}

std::vector<std::string> kind_names() {
  std::vector<std::string> names;
  for (const auto& [name, make] : kinds()) names.push_back(name);
  return names;
}

}  // namespace

Command add_grad_command(CLI::App& root) {
  const auto command = std::make_shared<GradCommand>();
  CLI::App* app = root.add_subcommand("grad", "Write the derivatives of a model as a graph");
  app->add_option("MODEL", command->model, "The model: ONNX, TFLite, GGUF, or a graph as text")
      ->required()
      ->type_name("");
  app->add_option("--of", command->of, "The output whose elements' sum is differentiated; the first one")
      ->type_name("OUTPUT");
  app->add_option("--wrt", command->wrt,
                  "An input to differentiate by, as often as there are some; all of real numbers")
      ->allow_extra_args(false)
      ->type_name("INPUT");
  app->add_option(
         "--as", command->as,
         "What is written. vjp: inputs for cotangents of outputs, gradients. jvp: inputs for tangents, tangents of "
         "outputs. hvp: gradients, and second derivatives along tangents")
      ->capture_default_str()
      ->check(CLI::IsMember(kind_names()))
      ->type_name("KIND");
  app->add_option("-o,--output", command->output, "FILE.graph, or - for standard output")
      ->capture_default_str()
      ->type_name("FILE");
  add_fixed_size_flags(*app, command->flags);
  app->add_flag("--json", command->json, "Print one line of JSON instead of text");
  app->footer(
      "What is written is a model like any other: 'tessera compile', 'run' and 'grad' take it.\n"
      "Examples:\n"
      "  tessera grad model.onnx --wrt input -o gradient.graph\n"
      "  tessera grad loss.graph --as hessian --wrt w");
  return {app, [command] { return differentiate(*command); }};
}

}  // namespace tessera
