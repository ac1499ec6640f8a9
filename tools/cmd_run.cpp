// tessera run MODULE.so|MODEL.onnx
#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "compile_flags.h"
#include "compile_watch.h"
#include "diagnose/compare.h"
#include "driver/analysis/trace_file.h"
#include "driver/compile.h"
#include "driver/engine/output_guard.h"
#include "driver/parallelize.h"
#include "driver/process_rank.h"
#include "flag_use.h"
#include "labels.h"
#include "progress.h"
#include "run_flags.h"
#include "step_progress.h"
#include "support/error.h"
#include "terminal.h"

namespace tessera {

namespace {

struct RunCommand {
  CompileFlags compile;
  RunFlags run;
  std::string model, profile, output_dir, labels;
  std::vector<std::string> outputs, expected;
  Tolerance tolerance;
  bool json = false;
};

// For each output of the model, what a list of specs says of it: the spec, or nothing.
std::vector<const TensorSpec*> specs_of_outputs(const std::vector<TensorSpec>& specs, const Model& model,
                                                const std::string& flag) {
  std::vector<const TensorSpec*> result;
  for (const int index : match_specs(specs, model.outputs(), flag)) {
    result.push_back(index < 0 ? nullptr : &specs[static_cast<size_t>(index)]);
  }
  return result;
}

// Names may hold any bytes in ONNX; JSON wants UTF-8.
std::string dump(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

struct OutputReport {
  std::string name;
  const RunValue* value = nullptr;
  const Comparison* comparison = nullptr;  // null: nothing was expected
  std::vector<LabelledScore> best = {};    // of an output with a number for each of --labels
};

void print_text(const OutputReport& report) {
  fmt::print("output '{}': {}  {}\n", report.name, value_type_text(*report.value), value_summary(*report.value));
  for (const LabelledScore& best : report.best) fmt::print("  {:>10.6g}  {}\n", best.score, best.label);
  if (!report.comparison) return;
  const bool colour = stdout_has_colour();
  fmt::print("  {}: {}\n",
             report.comparison->agrees ? coloured("agrees", "32", colour) : coloured("MISMATCH", "31", colour),
             report.comparison->text);
}

// The range and the mean of what is finite, and the first elements; numbers that JSON does not have are null.
void describe_elements(const Tensor& tensor, nlohmann::json& entry) {
  constexpr int64_t kShown = 16;
  const int64_t count = tensor.num_elements();
  nlohmann::json values = nlohmann::json::array();
  if (tensor.dtype() == DType::kString) {
    for (int64_t i = 0; i < std::min(count, kShown); ++i) values.push_back(tensor.strings()[static_cast<size_t>(i)]);
    entry["values"] = std::move(values);
    return;
  }
  double low = HUGE_VAL, high = -HUGE_VAL, sum = 0;
  int64_t finite = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double value = tensor.get_double(i);
    const bool is_finite = std::isfinite(value);
    if (i < kShown) values.push_back(is_finite ? nlohmann::json(value) : nlohmann::json());
    if (!is_finite) continue;
    low = std::min(low, value), high = std::max(high, value), sum += value, ++finite;
  }
  if (finite > 0) entry["min"] = low, entry["max"] = high, entry["mean"] = sum / static_cast<double>(finite);
  entry["not_finite"] = count - finite;
  entry["values"] = std::move(values);
}

// DIR/NAME.npy for each output, .pb for values that are not tensors. Names may hold slashes, which no file name can.
void write_all(const std::string& folder, const std::vector<OutputReport>& reports) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw UserError({.id = "TSR-6103",
                     .message = fmt::format("folder '{}' cannot be made: {}", folder, error.message()),
                     .node = {},
                     .legal = "a folder that exists or can be made",
                     .hint = "give another folder to --output-dir"});
  for (const OutputReport& report : reports) {
    std::string name = report.name;
    std::replace(name.begin(), name.end(), '/', '_');
    write_value_file(fmt::format("{}/{}{}", folder, name, report.value->is_tensor() ? ".npy" : ".pb"), *report.value,
                     report.name);
  }
}

void print_json(const std::string& model, double run_ms, const std::vector<OutputReport>& reports) {
  nlohmann::json outputs = nlohmann::json::array();
  for (const OutputReport& report : reports) {
    nlohmann::json entry = {{"name", report.name}};
    if (report.value->is_tensor()) {
      entry["dtype"] = dtype_name(report.value->tensor.dtype());
      entry["shape"] = report.value->tensor.dims();
    } else {
      entry["type"] = value_type_text(*report.value);
    }
    if (report.value->is_tensor()) describe_elements(report.value->tensor, entry);
    if (report.comparison) entry["agrees"] = report.comparison->agrees, entry["comparison"] = report.comparison->text;
    for (const LabelledScore& best : report.best)
      entry["best"].push_back({{"index", best.index}, {"score", best.score}, {"label", best.label}});
    outputs.push_back(std::move(entry));
  }
  std::cout << dump({{"model", model}, {"run_ms", run_ms}, {"outputs", outputs}}) << '\n';
}

int run(const RunCommand& command) {
  // What the command line says is checked before anything is compiled.
  const std::vector<TensorSpec> expect_specs = parse_tensor_specs(command.expected, true);
  std::vector<TensorSpec> write_specs;
  for (const std::string& text : command.outputs) write_specs.push_back(parse_tensor_spec(text, true));
  for (const std::string& text : command.run.inputs) parse_tensor_spec(text);
  const std::vector<std::string> labels =
      command.labels.empty() ? std::vector<std::string>{} : read_labels(command.labels);

  const std::vector<std::string> read = files_of_model(command.model);
  for (const TensorSpec& spec : write_specs) refuse_to_overwrite(spec.path, read);
  if (!command.profile.empty()) refuse_to_overwrite(command.profile, read);
  OpenedModel opened;
  FlagUse use;
  std::string times;
  CompileOptions sizes;
  bool is_module = false;
  double run_ms = 0;  // this first run; `bench` measures
  {
    Progress progress("preparing " + std::filesystem::path(command.model).filename().string());
    OpenOptions options;
    options.driver = driver_options(command.compile, &use);
    CompileWatch watch(command.compile.max_seconds);
    StepProgress steps(progress, &watch);
    options.driver.observers.add(steps);
    options.engine = parse_engine(command.run.engine);
    options.num_threads = command.compile.threads;
    options.cache = command.run.no_cache ? CacheUse::kNone : CacheUse::kFindAndKeep;
    options.warn = print_warning;
    options.input_shapes = shapes_of(command.run);
    is_module = is_module_path(command.model);
    if (is_module) refuse_compile_flags(command.compile, command.model);
    sizes = options.driver.compile;
    opened = open_model(command.model, options);
    times = time_report(command.compile, opened.times);
  }
  std::cerr << times;
  if (opened.from_cache || opened.compile_seconds > 0) print_lines(use, command.compile);
  Model& model = *opened.model;
  const auto writes = specs_of_outputs(write_specs, model, "--output");
  const auto expectations = specs_of_outputs(expect_specs, model, "--expected-output");
  std::vector<std::string> random;
  for (const std::string& line : opened.taken) fmt::print(stderr, "{}\n", line);
  std::vector<RunValue> inputs = make_values(model, sizes, is_module, command.run, random);
  for (const std::string& name : random) {
    fmt::print(stderr, "input '{}': random (seed 0); give a tensor with --input\n", name);
  }
  {
    Progress progress("running " + std::filesystem::path(command.model).filename().string());
    model.bind_values(std::move(inputs));
    const auto begin = std::chrono::steady_clock::now();
    if (command.profile.empty()) model.run();
    else profile_run(model, command.profile);
    run_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  }

  if (!process_rank().is_first()) return kExitOk;  // all processes have the same outputs, and one writes them
  bool all_agree = true;
  std::vector<OutputReport> reports;
  const std::vector<RunValue> results = model.value_results();
  std::vector<Comparison> comparisons(results.size());
  for (size_t i = 0; i < results.size(); ++i) {
    const RunValue& result = results[i];
    OutputReport report{model.outputs()[i].name, &result};
    constexpr size_t kBest = 5;
    if (!labels.empty() && result.is_tensor()) report.best = best_labels(result.tensor, labels, kBest);
    if (writes[i]) write_value_file(writes[i]->path, result, report.name);
    if (expectations[i]) {
      comparisons[i] = compare(result, read_value_file(*expectations[i], model.outputs()[i]), command.tolerance);
      report.comparison = &comparisons[i];
      all_agree = all_agree && comparisons[i].agrees;
    }
    reports.push_back(report);
    if (!command.json) print_text(report);
  }
  if (command.json) print_json(command.model, run_ms, reports);
  if (!command.output_dir.empty()) write_all(command.output_dir, reports);
  return all_agree ? kExitOk : kExitMismatch;
}

}  // namespace

Command add_run_command(CLI::App& root) {
  const auto command = std::make_shared<RunCommand>();
  CLI::App* app = root.add_subcommand("run", "Run a module, or a model (compiled first, and kept in a cache)");
  app->add_option("MODEL", command->model, "A module, or a model: an ONNX, TFLite, GGUF or .pt2 file")
      ->required()
      ->type_name("");
  add_run_flags(*app, command->run);
  app->add_option("-o,--output", command->outputs, "Write an output: [NAME=]@FILE.npy or @FILE.pb")
      ->allow_extra_args(false)
      ->type_name("SPEC");
  app->add_option("--output-dir", command->output_dir,
                  "Write every output to DIR/NAME.npy (.pb for values that are not tensors)")
      ->type_name("DIR");
  app->add_option("--expected-output", command->expected,
                  "Compare an output with [NAME=]@FILE.npy or @FILE.pb; exit code 2 when one differs")
      ->allow_extra_args(false)
      ->type_name("SPEC");
  app->add_option("--labels", command->labels,
                  "Print the five best classes of outputs that have a number for each line of a text with their names")
      ->type_name("FILE");
  add_tolerance_flags(*app, command->tolerance);
  app->add_flag("--json", command->json, "Print one line of JSON instead of text");
  app->add_option("--profile", command->profile,
                  "Run once more and write what each thread did as a Chrome trace (chrome://tracing, Perfetto)")
      ->type_name("FILE");
  add_compile_flags(*app, command->compile);
  add_time_limit_flag(*app, command->compile);
  app->footer(
      "Examples:\n"
      "  tessera run model.so --input @x.npy --output @y.npy\n"
      "  tessera run model.onnx --input image=@photo.jpg --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225\n"
      "  tessera run model.onnx --input 1x3x224x224xf32=random:7 --expected-output @want.npy --rtol 1e-4\n"
      "  tessera run mobilenet.tflite --input @photo.jpg --labels imagenet_labels.txt\n"
      "  tessera run model.onnx --engine interp\n"
      "  tessera run model.so --profile trace.json");
  return {app, [command] {
            const std::string model = model_of_rank(command->model);
            // Processes of torchrun have no MPI between them.
            if (const std::string device = process_rank().communicator; model != command->model && device != "mpi")
              command->compile.places.push_back("*=" + device);
            command->model = model;
            return run(*command);
          }};
}

}  // namespace tessera
