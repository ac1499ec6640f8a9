// tessera gradcheck MODEL
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "compile_flags.h"
#include "diagnose/gradient_check.h"
#include "driver/compile.h"
#include "driver/graph_reader.h"
#include "driver/open_sizes.h"
#include "ops/op_table.h"
#include "progress.h"
#include "run_flags.h"
#include "terminal.h"

namespace tessera {

namespace {

struct GradcheckCommand {
  CompileFlags flags;
  RunFlags run;
  GradientCheckOptions options;
  std::string model;
  bool json = false;
};

Graph read_graph(const GradcheckCommand& command) {
  DriverOptions options = driver_options(command.flags);
  take_input_sizes(command.model, command.run, options.compile);
  const DriverOptions nobody;
  PassRunner unwatched(nobody);
  ImportedModel model = read_model(command.model, options, unwatched);
  if (!model.symbols.empty()) refuse_ranges(model, "gradcheck");
  Graph graph = graph_alone(std::move(model));
  if (std::any_of(graph.symbols.begin(), graph.symbols.end(), [](const SymbolRange& s) { return !s.is_data(); }))
    refuse_ranges(with_declared_sizes(graph, options.compile), "gradcheck");
  return graph;
}

std::vector<Tensor> inputs_of(const Graph& graph, const RunFlags& flags) {
  std::vector<TensorInfo> infos;
  for (size_t i = 0; i < graph.num_own_inputs(); ++i) {
    TensorInfo& info = infos.emplace_back();
    info.name = graph.value(graph.inputs[i]).name;
    info.dtype = graph.type(graph.inputs[i]).dtype;
    info.dims = graph.type(graph.inputs[i]).dims();
  }
  std::vector<std::string> random;
  std::vector<Tensor> inputs = make_inputs(infos, flags, random);
  for (const std::string& name : random)
    fmt::print(stderr, "input '{}': random (seed 0); give a tensor with --input\n", name);
  return inputs;
}

int gradcheck(const GradcheckCommand& command) {
  const Graph graph = read_graph(command);
  const std::vector<Tensor> inputs = inputs_of(graph, command.run);
  GradientCheck check;
  {
    Progress progress("checking gradients of " + std::filesystem::path(command.model).filename().string());
    GradientCheckOptions options = command.options;
    options.step = [&](const std::string& step) { progress.update(step); };
    check = check_gradients(graph, inputs, options, standard_ops());
  }
  if (command.json) {
    nlohmann::json json = to_json(check);
    json["model"] = command.model;
    json["tolerance"] = command.options.tolerance;
    std::cout << json_line(json);
  } else {
    std::cout << to_text(check, TextStyle{stdout_has_colour()});
  }
  return check.agrees() ? kExitOk : kExitMismatch;
}

}  // namespace

Command add_gradcheck_command(CLI::App& root) {
  const auto command = std::make_shared<GradcheckCommand>();
  CLI::App* app = root.add_subcommand("gradcheck", "Hold a model's gradients against differences");
  app->add_option("MODEL", command->model, "The model: ONNX, TFLite, GGUF, or a graph as text")
      ->required()
      ->type_name("");
  app->add_option("--tolerance", command->options.tolerance,
                  "How much a gradient may differ, relative to the larger of both and to what is usual for the value")
      ->capture_default_str()
      ->check(CLI::Range(1e-12, 1.0))
      ->type_name("R");
  app->add_option("--directions", command->options.directions, "Random directions for each input and parameter")
      ->capture_default_str()
      ->check(CLI::Range(0, 1000000))
      ->type_name("N");
  app->add_option("--elements", command->options.elements,
                  "Single elements of each, the one with the largest gradient first")
      ->capture_default_str()
      ->check(CLI::Range(0, 1000000))
      ->type_name("N");
  app->add_option("--seed", command->options.seed, "Of directions, elements and the weights of outputs")
      ->capture_default_str();
  app->add_option("--budget", command->options.max_seconds, "Seconds after which nothing further is checked")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e6))
      ->type_name("SECONDS");
  app->add_flag("--json", command->json, "Print one line of JSON instead of text");
  add_input_flags(*app, command->run);
  add_fixed_size_flags(*app, command->flags);
  app->footer(
      "The interpreter computes the model, its gradients and the differences in f64, whatever types the model has: "
      "small\n"
      "models and batches are checked sooner. The first operator whose own gradient is wrong is named.\n"
      "Exit code 0: all gradients agree, 2: some differ.\n"
      "Examples:\n"
      "  tessera gradcheck lenet.onnx --dim batch=2\n"
      "  tessera gradcheck model.onnx --input @x.npy --directions 10\n"
      "  tessera gradcheck model.graph --json");
  return {app, [command] { return gradcheck(*command); }};
}

}  // namespace tessera
