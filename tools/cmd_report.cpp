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
#include "program/memory_plan.h"
#include "progress.h"
#include "report_page.h"
#include "run_flags.h"
#include "step_progress.h"
#include "support/error.h"
#include "support/mapped_file.h"
#include "terminal.h"

namespace tessera {

namespace {

struct ReportCommand {
  CompileFlags compile;
  RunFlags run;
  std::string model, output = "report.html", against;
  bool quiet = false;
};

// The nodes of a graph with the numbers of those that they read, and what comes from each; constants are left out.
nlohmann::json nodes_json(const Graph& graph) {
  nlohmann::json list = nlohmann::json::array();
  std::map<ValueId, size_t> made;
  for (const Node& node : graph.nodes()) {
    if (node.op->kind == OpKind::kConstant) continue;
    nlohmann::json inputs = nlohmann::json::array(), edges = inputs, types = inputs;
    for (const ValueId input : node.inputs) {
      const auto source = made.find(input);
      if (source == made.end()) continue;
      inputs.push_back(source->second);
      edges.push_back(graph.type(input).to_string());
    }
    for (const ValueId output : node.outputs) {
      made[output] = list.size();
      types.push_back(graph.type(output).to_string());
    }
    const std::string op =
        node.op->kind == OpKind::kComposite ? node.attrs.get<std::string>("name") : std::string(node.op->name);
    list.push_back({{"name", node.loc.empty() ? graph.value(node.outputs[0]).name : node.loc},
                    {"op", op},
                    {"inputs", std::move(inputs)},
                    {"edges", std::move(edges)},
                    {"types", std::move(types)}});
  }
  return list;
}

// The same of a program's calls: what kernels hand to one another, with the precision and the layout that it has in
// memory. Weights are left out.
nlohmann::json calls_json(const Program& program) {
  nlohmann::json list = nlohmann::json::array();
  std::map<BufferId, size_t> made;
  const auto type_of = [&](BufferId id) { return program.buffers[static_cast<size_t>(id)].type.to_string(); };
  for (const KernelCall& call : program.calls) {
    const Kernel& kernel = program.kernels[static_cast<size_t>(call.kernel)];
    const size_t num_inputs = call.args.size() - static_cast<size_t>(kernel.program.num_outputs);
    nlohmann::json inputs = nlohmann::json::array(), edges = inputs, types = inputs;
    for (size_t i = 0; i < call.args.size(); ++i) {
      const BufferId root = storage_buffer(program, call.args[i]);
      if (i >= num_inputs) {
        made[root] = list.size();
        types.push_back(type_of(call.args[i]));
      } else if (const auto source = made.find(root); source != made.end()) {
        inputs.push_back(source->second);
        edges.push_back(type_of(call.args[i]));
      }
    }
    list.push_back({{"name", call.loc.empty() ? kernel.loc : call.loc},
                    {"op", kernel.rule},
                    {"kernel", call.kernel},
                    {"inputs", std::move(inputs)},
                    {"edges", std::move(edges)},
                    {"types", std::move(types)}});
  }
  return list;
}

constexpr std::string_view kDataBegin = "id=\"data\">", kDataEnd = "</script>";

// The data of a page that this command wrote before.
nlohmann::json data_of_page(const std::string& path) {
  const auto file = MappedFile::open(path, "page", "TSR-1001");
  const std::string_view text = file->text();
  const size_t begin = text.find(kDataBegin);
  const size_t end = begin == text.npos ? text.npos : text.find(kDataEnd, begin);
  nlohmann::json data;
  if (end != text.npos) {
    const size_t from = begin + kDataBegin.size();
    data = nlohmann::json::parse(text.substr(from, end - from), nullptr, false);
  }
  if (!data.is_object() || !data.contains("kernels") || !data.contains("module"))
    throw UserError({.id = "TSR-4089",
                     .message = fmt::format("--against: '{}' is neither a module nor a page of report", path),
                     .node = {},
                     .legal = "what 'tessera compile' or 'tessera report' wrote",
                     .hint = {}});
  return data;
}

// As JSON in a page: nothing in it ends the script.
std::string in_page(const nlohmann::json& data) {
  std::string text = data.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  for (size_t at = 0; (at = text.find('<', at)) != std::string::npos; at += 6) text.replace(at, 1, "\\u003c");
  return text;
}

// What one build of a model is and how long it takes.
struct Measured {
  nlohmann::json module, kernels, roofline;
  int threads = 1;
  size_t num_kernels = 0;
};

Measured measure(Model& model, nlohmann::json inspected, const RunFlags& flags, Progress& progress) {
  std::vector<std::string> random;
  model.bind_values(make_values(model, {}, true, flags, random));
  model.run();
  progress.update("measuring kernels");
  constexpr int kRuns = 15;
  const std::vector<KernelTime> times = time_kernels(model, kRuns);
  Measured result;
  result.threads = model.num_threads();
  const MachinePeaks peaks = measure_roofline(result.threads, model.kernels());
  inspected.erase("path");
  result.module = std::move(inspected);
  result.kernels = kernels_json(model, times, peaks);
  result.roofline = roofline_json(peaks, result.threads);
  result.num_kernels = times.size();
  return result;
}

// Another build, to be put beside this one: a module, which is measured now, or a page, whose times are those of then.
nlohmann::json other_build(const ReportCommand& command, Progress& progress) {
  nlohmann::json other = {{"name", std::filesystem::path(command.against).filename().string()}};
  if (!is_module_path(command.against)) {
    nlohmann::json data = data_of_page(command.against);
    for (const char* key : {"kernels", "module", "threads", "target"}) other[key] = data[key];
    return other;
  }
  const std::unique_ptr<Model> model = load_module(command.against, command.compile.threads);
  Measured measured = measure(*model, inspect_module(command.against), command.run, progress);
  other["target"] = measured.module.value("/target/cpu"_json_pointer, std::string());
  other["threads"] = measured.threads;
  other["kernels"] = std::move(measured.kernels);
  other["module"] = std::move(measured.module);
  return other;
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
  const Compiled compiled = compile_model(command.model, driver());
  AnonymousFile module = module_in_memory(compiled);
  nlohmann::json inspected = inspect_module(module.path());
  const std::unique_ptr<Model> model =
      load_module(std::move(module), std::filesystem::path(command.model).stem().string(), command.compile.threads);
  Measured measured = measure(*model, std::move(inspected), command.run, progress);
  nlohmann::json data = {{"model", std::filesystem::path(command.model).filename().string()},
                         {"target", explained.explanation.target},
                         {"threads", measured.threads},
                         {"nodes", nodes_json(graph)},
                         {"program", calls_json(compiled.program)},
                         {"kernels", std::move(measured.kernels)},
                         {"roofline", std::move(measured.roofline)},
                         {"explained", to_json(explained.explanation)},
                         {"module", std::move(measured.module)}};
  if (!command.against.empty()) data["against"] = other_build(command, progress);
  std::string page(kReportPage);
  constexpr std::string_view kPlace = "__DATA__";
  page.replace(page.find(kPlace), kPlace.size(), in_page(data));
  write_file(command.output, "page", page);
  progress.finish();
  if (!command.quiet)
    fmt::print("{}: {} nodes, {} kernels\n", command.output, data["nodes"].size(), measured.num_kernels);
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
  app->add_option("--against", command->against, "Another build to compare with: a module, or a page of report")
      ->type_name("OTHER");
  add_input_flags(*app, command->run);
  app->add_flag("-q,--quiet", command->quiet, "Print nothing when it is written");
  add_compile_flags(*app, command->compile);
  app->footer(
      "The model is compiled and run on inputs as for run; times are those of this machine.\n"
      "Examples:\n"
      "  tessera report resnet50.onnx -o resnet50.html\n"
      "  tessera report model.onnx --dim batch=8 --threads 2\n"
      "  tessera report model.onnx --precision bf16 --against f32.html -o bf16.html");
  return {app, [command] { return report(*command); }};
}

}  // namespace tessera
