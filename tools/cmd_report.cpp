// tessera report MODEL -o FILE.html
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "compile_flags.h"
#include "diagnose/inspect.h"
#include "driver/analysis/explain.h"
#include "driver/analysis/kernel_times.h"
#include "driver/compile.h"
#include "driver/engine/native_model.h"
#include "driver/engine/open_model.h"
#include "driver/engine/output_guard.h"
#include "graph/flow.h"
#include "package/atomic_file.h"
#include "progress.h"
#include "report_page.h"
#include "run_flags.h"
#include "step_progress.h"
#include "support/error.h"
#include "terminal.h"

namespace tessera {

namespace {

struct ReportCommand {
  CompileFlags compile;
  RunFlags run;
  std::string model, output = "report.html";
  bool quiet = false;
};

// The nodes of a graph with the numbers of those that they read; constants are left out.
nlohmann::json nodes_json(const Graph& graph) {
  nlohmann::json list = nlohmann::json::array();
  std::map<ValueId, size_t> made;
  for (const Node& node : graph.nodes()) {
    if (node.op->kind == OpKind::kConstant) continue;
    nlohmann::json inputs = nlohmann::json::array(), types = nlohmann::json::array();
    for (const ValueId input : node.inputs)
      if (const auto source = made.find(input); source != made.end()) inputs.push_back(source->second);
    for (const ValueId output : node.outputs) {
      made[output] = list.size();
      types.push_back(graph.type(output).to_string());
    }
    const std::string op =
        node.op->kind == OpKind::kComposite ? node.attrs.get<std::string>("name") : std::string(node.op->name);
    list.push_back({{"name", node.loc.empty() ? graph.value(node.outputs[0]).name : node.loc},
                    {"op", op},
                    {"inputs", std::move(inputs)},
                    {"types", std::move(types)}});
  }
  return list;
}

// As JSON in a page: nothing in it ends the script.
std::string in_page(const nlohmann::json& data) {
  std::string text = data.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  for (size_t at = 0; (at = text.find('<', at)) != std::string::npos; at += 6) text.replace(at, 1, "\\u003c");
  return text;
}

int report(const ReportCommand& command) {
  if (is_module_path(command.model))
    throw UserError({.id = "TSR-4083",
                     .message = fmt::format("'{}' is a module, which does not have its model's graph", command.model),
                     .node = {},
                     .legal = "a model",
                     .hint = "give the file that it was compiled from"});
  refuse_to_overwrite(command.output, files_of_model(command.model));
  Progress progress("reporting on " + std::filesystem::path(command.model).filename().string());
  StepProgress steps(progress);
  const auto driver = [&] {
    DriverOptions options = driver_options(command.compile);
    options.observers.add(steps);
    return options;
  };
  const ModelExplanation explained = explain_model(command.model, driver());
  const DriverOptions nobody;
  PassRunner unwatched(nobody);
  const Graph graph = graph_alone(read_model(command.model, driver_options(command.compile), unwatched));
  AnonymousFile module = module_in_memory(compile_model(command.model, driver()));
  nlohmann::json inspected = inspect_module(module.path());
  inspected.erase("path");
  const std::unique_ptr<Model> model =
      load_module(std::move(module), std::filesystem::path(command.model).stem().string(), command.compile.threads);
  std::vector<std::string> random;
  model->bind_values(make_values(*model, {}, true, command.run, random));
  model->run();
  progress.update("measuring kernels");
  constexpr int kRuns = 15;
  const std::vector<KernelTime> times = time_kernels(*model, kRuns);
  const int threads = model->num_threads();
  const MachinePeaks peaks = measure_roofline(threads, model->kernels());
  const nlohmann::json explanation = to_json(explained.explanation);
  const nlohmann::json data = {{"model", std::filesystem::path(command.model).filename().string()},
                               {"target", explained.explanation.target},
                               {"threads", threads},
                               {"nodes", nodes_json(graph)},
                               {"kernels", kernels_json(*model, times, peaks)},
                               {"roofline", roofline_json(peaks, threads)},
                               {"explained", explanation},
                               {"module", std::move(inspected)}};
  std::string page(kReportPage);
  constexpr std::string_view kPlace = "__DATA__";
  page.replace(page.find(kPlace), kPlace.size(), in_page(data));
  write_file(command.output, "page", page);
  progress.finish();
  if (!command.quiet) fmt::print("{}: {} nodes, {} kernels\n", command.output, data["nodes"].size(), times.size());
  return kExitOk;
}

}  // namespace

Command add_report_command(CLI::App& root) {
  const auto command = std::make_shared<ReportCommand>();
  CLI::App* app = root.add_subcommand("report", "Write one page about a model: graph, kernels, roofline, memory");
  app->add_option("MODEL", command->model, "The model")->required()->type_name("");
  app->add_option("-o,--output", command->output, "The page, one file that needs no network")
      ->capture_default_str()
      ->type_name("FILE");
  add_input_flags(*app, command->run);
  app->add_flag("-q,--quiet", command->quiet, "Print nothing when it is written");
  add_compile_flags(*app, command->compile);
  app->footer(
      "The model is compiled and run on inputs as for run; times are those of this machine.\n"
      "Examples:\n"
      "  tessera report resnet50.onnx -o resnet50.html\n"
      "  tessera report model.onnx --dim batch=8 --threads 2");
  return {app, [command] { return report(*command); }};
}

}  // namespace tessera
