// tessera reduce MODEL -o SMALL.onnx|SMALL.graph
#include <iostream>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "diff_flags.h"
#include "driver/analysis/reduce.h"
#include "driver/engine/output_guard.h"
#include "driver/formats.h"
#include "terminal.h"

namespace tessera {

namespace {

struct ReduceCommand {
  DiffFlags flags;
  std::string output, command;
  double seconds = 60, timeout = 20;
  bool quiet = false, json = false;
};

int reduce(const ReduceCommand& command) {
  ReduceRequest request;
  request.model = command.flags.model;
  const char* ending = is_onnx_file(request.model) ? ".onnx" : ".graph";
  request.output =
      command.output.empty() ? default_case_folder(command.flags.model, "reduced") + ending : command.output;
  refuse_to_overwrite(request.output, files_of_model(request.model));
  request.command = command.command;
  request.against = command.flags.against;
  for (const std::string& text : command.flags.run.inputs) parse_tensor_spec(text);
  request.driver = driver_options(command.flags.compile);
  take_input_sizes(request.model, command.flags.run, request.driver.compile);
  request.num_threads = command.flags.compile.threads;
  request.tolerance = command.flags.tolerance;
  request.seconds = command.seconds;
  request.timeout = command.timeout;
  const RunFlags run = command.flags.run;
  request.make_inputs = [run](const std::vector<TensorInfo>& infos) {
    std::vector<std::string> random;
    return make_inputs(infos, run, random);
  };
  if (!command.quiet) request.step = [](const std::string& text) { fmt::print(stderr, "{}\n", text); };
  const ReduceResult result = reduce_failure(request);
  if (command.json) {
    std::cout << json_line({{"model", request.model},
                            {"output", request.output},
                            {"failure", result.failure},
                            {"cut", result.cut},
                            {"nodes_before", result.nodes_before},
                            {"nodes", result.nodes},
                            {"elements_before", result.elements_before},
                            {"elements", result.elements},
                            {"trials", result.trials},
                            {"time_is_up", result.time_is_up}});
  } else {
    std::cout << fmt::format("{}: {} of {} nodes, {} of {} elements of weights, after {} trials{}\nwritten to {}\n",
                             result.failure, result.nodes, result.nodes_before, result.elements, result.elements_before,
                             result.trials, result.time_is_up ? "; the time was up (--budget)" : "", request.output);
  }
  return kExitOk;
}

}  // namespace

Command add_reduce_command(CLI::App& root) {
  const auto command = std::make_shared<ReduceCommand>();
  CLI::App* app = root.add_subcommand("reduce", "Make a failing model smaller while it keeps failing");
  app->add_option("MODEL", command->flags.model, "The model: ONNX, TFLite, or a graph as text")
      ->required()
      ->type_name("");
  app->add_option("--against", command->flags.against,
                  "What the compiled model must agree with: interp (the interpreter) or O0 (compiled without\n"
                  "optimisations)")
      ->capture_default_str()
      ->check(CLI::IsMember({"interp", "O0"}))
      ->type_name("interp|O0");
  app->add_option("--command", command->command,
                  "A command for the shell, with {model} for the model's file: it fails as long as it ends with the\n"
                  "same code (not 0) as for MODEL")
      ->type_name("CMD");
  app->add_option("-o,--output", command->output,
                  "Where the smallest model is kept: FILE.graph is text, everything else ONNX; default:\n"
                  "MODEL-reduced.onnx, or MODEL-reduced.graph for a graph")
      ->type_name("FILE");
  app->add_option("--budget", command->seconds, "Seconds for everything")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e6))
      ->type_name("SECONDS");
  app->add_option("--timeout", command->timeout, "Seconds after which one trial counts as a hang")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 1e6))
      ->type_name("SECONDS");
  app->add_flag("-q,--quiet", command->quiet, "Print nothing for the models on the way");
  app->add_flag("--json", command->json, "Print one line of JSON instead of text");
  add_input_flags(*app, command->flags.run);
  add_tolerance_flags(*app, command->flags.tolerance);
  add_compile_flags(*app, command->flags.compile);
  app->footer(
      "What is made smaller is the graph that the model is imported as; an ONNX model that cannot be imported, or "
      "that\n"
      "no longer makes the command fail when its graph is written as ONNX, is cut as the file that it is.\n"
      "Examples:\n"
      "  tessera reduce model.onnx -o small.onnx\n"
      "  tessera reduce model.onnx --input @x.npy --budget 300\n"
      "  tessera reduce model.onnx --dim n=1..64 -o small.graph\n"
      "  tessera reduce model.onnx --command 'tessera compile {model} -o /dev/null -q'");
  return {app, [command] { return reduce(*command); }};
}

}  // namespace tessera
