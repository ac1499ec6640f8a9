// tessera bench MODULE.so|MODEL.onnx
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>
#include <numeric>
#include <optional>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "against.h"
#include "commands.h"
#include "compile_flags.h"
#include "compile_watch.h"
#include "driver/accelerators.h"
#include "driver/analysis/kernel_times.h"
#include "driver/compile.h"
#include "driver/text/accelerator_report.h"
#include "driver/text/rtl_tool.h"
#include "flag_use.h"
#include "package/atomic_file.h"
#include "progress.h"
#include "run_flags.h"
#include "runtime/cpu/affinity.h"
#include "step_progress.h"
#include "support/error.h"
#include "terminal.h"
#include "throughput.h"

namespace tessera {

namespace {

struct BenchCommand {
  CompileFlags compile;
  RunFlags run;
  std::string model;
  int repeat = -1;      // < 0: by time
  int warm_up = -1;     // < 0: by time
  double duration = 0;  // seconds; 0: one
  int concurrency = 1;
  bool json = false, kernels = false;
  std::string against;  // names of peers
  int rounds = 5;
  double against_limit = 120;
  std::optional<double> mtol;
  std::string pictures, rtl;  // folders
};

// REQUIRES: sorted and not empty. Between samples it interpolates.
double quantile(const std::vector<double>& sorted, double q) {
  const double place = q * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<size_t>(place);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (place - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

// How far results may be from f32 ones when less is asked for; as for `diff` and `run`.
double tolerance_of(DType precision) {
  return precision == DType::kBF16 ? 0x1p-5 : precision == DType::kF16 ? 0x1p-8 : 0;
}

std::vector<const PeerKind*> check_against(const BenchCommand& command) {
  std::vector<const PeerKind*> peers = parse_peers(command.against);
  if (!looks_like_module(command.model) && !command.model.ends_with(".so")) return peers;
  throw UserError(
      {.id = "TSR-4043",
       .message = fmt::format("'{}' is a compiled module, which {} cannot run", command.model, command.against),
       .node = {},
       .legal = "an ONNX model with --against",
       .hint = "give the model that the module was compiled from"});
}

[[noreturn]] void refuse_interpreter() {
  throw UserError({.id = "TSR-4066",
                   .message = "--concurrency runs several sessions of compiled code, and the interpreter has none",
                   .node = {},
                   .legal = "--engine native",
                   .hint = {}});
}

// The outputs as the interpreter has them; nothing for a model with which it would take minutes.
std::vector<Tensor> interpreted(const BenchCommand& command, OpenOptions options, const Model& model,
                                const std::vector<Tensor>& inputs) {
  constexpr double kMostFlops = 1e9;
  double flops = 0;
  for (const KernelInfo& kernel : model.kernels()) flops += static_cast<double>(std::max<int64_t>(kernel.flops, 0));
  if (flops > kMostFlops) return {};
  options.engine = Engine::kInterp;
  options.driver.runner = {};
  options.driver.observers = {};  // whoever watched the compile has gone
  const OpenedModel interpreter = open_model(command.model, options);
  interpreter.model->bind(inputs);
  interpreter.model->run();
  return interpreter.model->results();
}

// An accelerator that is simulated: what counts is its cycles, and how long the host takes for what stays there.
int bench_accelerator(const BenchCommand& command) {
  AcceleratorReport report;
  std::vector<RtlCheck> checks;
  {
    Progress progress("benchmarking " + std::filesystem::path(command.model).filename().string());
    OpenOptions options;
    options.driver = driver_options(command.compile);
    options.num_threads = command.compile.threads;
    options.cache = CacheUse::kNone;
    options.warn = print_warning;
    options.input_shapes = shapes_of(command.run);
    const Compiled compiled = compile_model(command.model, options.driver);
    const OpenedModel opened = open_model(command.model, options);
    std::vector<std::string> random;
    opened.model->bind_values(make_values(*opened.model, options.driver.compile, false, command.run, random));
    progress.update("measuring the host's kernels");
    time_runs({opened.model.get()}, {1, 0, 1});
    HostTimes host_ms;
    for (const KernelTime& time : time_kernels(*opened.model, 5)) {
      const KernelInfo& kernel = opened.model->kernels().at(static_cast<size_t>(time.kernel));
      host_ms[{kernel.name, kernel.rule}] =
          time.median_us / 1e3 / static_cast<double>(std::max<int64_t>(time.calls, 1));
    }
    progress.update("counting cycles");
    report = accelerator_report(compiled.program, host_ms);
    if (!command.pictures.empty()) {
      std::filesystem::create_directories(command.pictures);
      for (const auto& [name, picture] : accelerator_pictures(compiled.program, report))
        write_file((std::filesystem::path(command.pictures) / name).string(), "picture", picture);
    }
    if (!command.rtl.empty()) {
      progress.update("running the hardware");
      checks = check_rtl_of(compiled.program, command.rtl);
    }
  }
  bool agrees = true;
  for (const RtlCheck& check : checks) agrees = agrees && check.differences.empty();
  if (command.json) {
    nlohmann::json json = report_json(report);
    for (const RtlCheck& check : checks)
      json["hardware"].push_back(
          {{"kernel", check.kernel}, {"cycles", check.cycles}, {"differences", check.differences}});
    std::cout << json_line(json);
  } else {
    std::cout << report_text(report);
    for (const RtlCheck& check : checks) std::cout << rtl_check_text(*report.unit, check);
  }
  return agrees ? kExitOk : kExitMismatch;
}

int bench(const BenchCommand& command) {
  if (names_accelerator(command.compile.target)) return bench_accelerator(command);
  constexpr double kWarmUpMs = 200, kBudgetMs = 1000;
  constexpr int kWarmUps = 2, kRuns = 5;
  OpenedModel opened;
  FlagUse use;
  std::string times;
  TimedRuns runs;
  nlohmann::json kernels = nlohmann::json::array(), roofline;
  std::optional<AgainstResult> against;
  double default_median = 0;  // of the same model under the default numerics; 0: it is what was measured
  // Of the last minute, before we do anything.
  double load = 0;
  if (getloadavg(&load, 1) != 1) load = 0;
  std::vector<const PeerKind*> peers;
  if (!command.against.empty()) peers = check_against(command);
  {
    Progress progress("benchmarking " + std::filesystem::path(command.model).filename().string());
    OpenOptions options;
    options.driver = driver_options(command.compile, &use);
    std::optional<CompileWatch> watch(std::in_place, command.compile.max_seconds);
    StepProgress steps(progress, &*watch);
    options.driver.observers.add(steps);
    options.engine = parse_engine(command.run.engine);
    options.num_threads = command.compile.threads;
    options.cache = command.run.no_cache ? CacheUse::kNone : CacheUse::kFindAndKeep;
    if (command.concurrency > 1 && command.compile.threads == 0)
      options.num_threads = options.driver.compile.num_threads = 1;
    options.warn = print_warning;
    options.input_shapes = shapes_of(command.run);
    const bool is_module = is_module_path(command.model);
    if (is_module) refuse_compile_flags(command.compile, command.model);
    opened = open_model(command.model, options);
    watch.reset();  // what follows is no compiling
    times = time_report(command.compile, opened.times);
    std::vector<std::string> random;
    const std::vector<RunValue> values =
        make_values(*opened.model, options.driver.compile, is_module, command.run, random);
    std::vector<Tensor> inputs;
    for (const RunValue& value : values) inputs.push_back(value.tensor);
    opened.model->bind_values(values);
    std::vector<std::unique_ptr<Model>> others;
    std::vector<Model*> sessions = {opened.model.get()};
    for (int i = 1; i < command.concurrency; ++i) {
      others.push_back(opened.model->another());
      if (!others.back()) refuse_interpreter();
      others.back()->bind_values(values);
      sessions.push_back(others.back().get());
    }
    progress.update("warming up");
    time_runs(sessions, {command.warm_up, kWarmUpMs, kWarmUps * command.concurrency});
    progress.update("measuring");
    const double budget_ms = command.duration > 0 ? 1e3 * command.duration : kBudgetMs;
    runs = time_runs(sessions, {command.repeat, budget_ms, command.duration > 0 ? 1 : kRuns * command.concurrency});
    others.clear();
    if (options.driver.compile.numerics != "default" && !is_module && options.engine == Engine::kNative) {
      progress.update("measuring the default numerics");
      OpenOptions usual = options;
      usual.driver.compile.numerics = "default";
      usual.driver.runner = {};
      usual.driver.observers = {};
      const OpenedModel beside = open_model(command.model, usual);
      beside.model->bind_values(values);
      time_runs({beside.model.get()}, {command.warm_up, kWarmUpMs, kWarmUps});
      default_median = quantile(time_runs({beside.model.get()}, {command.repeat, budget_ms, kRuns}).samples_ms, 0.5);
    }
    if ((command.kernels || command.json) && !opened.model->kernels().empty()) {
      progress.update("measuring kernels");
      // As many runs as take about as long as the measurement before, but not for ever.
      const int traced = static_cast<int>(std::clamp<size_t>(runs.samples_ms.size(), 3, 50));
      const std::vector<KernelTime> kernel_times = time_kernels(*opened.model, traced);
      const int threads = opened.model->num_threads();
      const MachinePeaks peaks = measure_roofline(threads, opened.model->kernels());
      kernels = kernels_json(*opened.model, kernel_times, peaks);
      roofline = roofline_json(peaks, threads);
    }
    if (!peers.empty()) {
      if (opened.model->has_values())
        throw UserError(
            {.id = "TSR-4014",
             .message = "a model with strings, sequences, optionals or maps cannot be measured beside a peer",
             .node = {},
             .legal = "models of tensors of numbers",
             .hint = "leave out --against"});
      against = run_against(*opened.model, inputs, peers,
                            {.model_path = command.model,
                             .repeat = std::max(command.repeat, 0),
                             .rounds = command.rounds,
                             .tolerance = tolerance_of(precision_of(options.driver.compile)),
                             .asked_tolerance = command.mtol,
                             .reference = [&] { return interpreted(command, options, *opened.model, inputs); },
                             .limit_seconds = command.against_limit,
                             .on_step = [&](std::string_view what) { progress.update(std::string(what)); }});
    }
  }
  std::cerr << times;
  for (const std::string& line : opened.taken) fmt::print(stderr, "{}\n", line);
  if (opened.from_cache || opened.compile_seconds > 0) print_lines(use, command.compile);
  if (load > 0.5 * usable_cpus())
    print_warning(
        fmt::format("other programs are running (load {:.1f} on {} CPUs): times are longer than need be, and "
                    "vary more",
                    load, usable_cpus()));
  const std::vector<double>& samples = runs.samples_ms;
  const auto count = static_cast<double>(samples.size());
  const double mean = std::accumulate(samples.begin(), samples.end(), 0.0) / count;
  double squares = 0;
  for (const double sample : samples) squares += (sample - mean) * (sample - mean);
  const double deviation = std::sqrt(squares / count);
  const double median = quantile(samples, 0.5), p90 = quantile(samples, 0.9), p99 = quantile(samples, 0.99);
  const int threads = opened.model->num_threads();
  if (command.json) {
    nlohmann::json json = {{"model", command.model},
                           {"engine", command.run.engine},
                           {"threads", threads},
                           {"repeats", samples.size()},
                           {"min_ms", samples.front()},
                           {"median_ms", median},
                           {"mean_ms", mean},
                           {"p90_ms", p90},
                           {"p99_ms", p99},
                           {"stddev_ms", deviation},
                           {"runs_per_s", runs.runs_per_second()},
                           {"concurrency", command.concurrency},
                           {"from_cache", opened.from_cache},
                           {"compile_s", opened.compile_seconds},
                           {"load_s", opened.load_seconds},
                           {"kernels", std::move(kernels)},
                           {"roofline", std::move(roofline)}};
    if (default_median > 0)
      json["numerics"] = {{"mode", command.compile.numerics},
                          {"default_median_ms", default_median},
                          {"price", median / default_median}};
    if (against) json["against"] = against_json(*against, *opened.model);
    std::cout << json_line(json);
  } else {
    const bool tiny = median < 0.01;
    const double unit = tiny ? 1e-3 : 1;
    fmt::print("{}: median {:.3f} {}  (min {:.3f}, p90 {:.3f}, p99 {:.3f}, mean {:.3f}, stddev {:.3f})\n",
               command.model, median / unit, tiny ? "us" : "ms", samples.front() / unit, p90 / unit, p99 / unit,
               mean / unit, deviation / unit);
    const std::string sessions =
        command.concurrency > 1 ? fmt::format("{} sessions at once, each with ", command.concurrency) : "";
    const std::string origin = opened.compile_seconds > 0
                                   ? fmt::format(", compiled in {:.2f} s", opened.compile_seconds)
                               : opened.from_cache ? ", compiled before"
                                                   : "";
    fmt::print("{} runs after warm-up, {:.4g} runs a second, {}{} thread{}{}{}\n", samples.size(),
               runs.runs_per_second(), sessions, threads, threads == 1 ? "" : "s", origin,
               command.run.engine == "interp" ? "" : fmt::format(", loaded in {:.3f} s", opened.load_seconds));
    if (default_median > 0)
      fmt::print("price of --numerics {}: {:.2f} times the {:.3f} {} of the default\n", command.compile.numerics,
                 median / default_median, default_median / unit, tiny ? "us" : "ms");
    if (!kernels.empty()) std::cout << '\n' << kernels_text(kernels, roofline, {stdout_has_colour()});
    if (against) std::cout << '\n' << against_text(*against, *opened.model);
  }
  return against && !against->agrees() ? kExitMismatch : kExitOk;
}

}  // namespace

Command add_bench_command(CLI::App& root) {
  const auto command = std::make_shared<BenchCommand>();
  CLI::App* app = root.add_subcommand("bench", "Measure how long a model takes");
  app->add_option("MODEL", command->model, "A module, or an ONNX file (compiled first)")->required()->type_name("");
  CLI::Option* repeat = app->add_option("--repeat", command->repeat, "Timed runs; default: for one second, at least 5")
                            ->check(CLI::Range(1, 100000000))
                            ->type_name("N");
  app->add_option("--duration", command->duration, "Seconds of timed runs")
      ->check(CLI::Range(0.001, 1e6))
      ->excludes(repeat)
      ->type_name("SECONDS");
  app->add_option("--warm-up", command->warm_up, "Runs before that; default: for 0.2 seconds, at least 2")
      ->check(CLI::Range(0, 100000000))
      ->type_name("N");
  app->add_option("--concurrency", command->concurrency,
                  "Sessions that run at once, each with the inputs of its own and --threads (here: 1) threads")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  app->add_flag("--kernels", command->kernels, "Show each kernel's time, work and place under the machine's roofline");
  app->add_option(
         "--against", command->against,
         "Compare and time beside other engines (their Python packages), in turn: one or more, with commas, of\n" +
             peer_names())
      ->type_name("PEERS");
  app->add_option("--rounds", command->rounds, "Of --against")->check(CLI::Range(1, 1000))->capture_default_str();
  app->add_option("--against-limit", command->against_limit,
                  "Seconds that a peer has to be ready, and for each round; 0: no limit")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str()
      ->type_name("SECONDS");
  app->add_option(
         "--mtol", command->mtol,
         "Of --against: floats agree when |ours - theirs| <= M * max|theirs|; default 1e-4, with --precision bf16 "
         "2^-5, f16 2^-8")
      ->check(CLI::Range(0.0, 1.0))
      ->needs("--against")
      ->type_name("M");
  app->add_option(
         "--pictures", command->pictures,
         "With --target UNIT.json: a folder for pictures (SVG) of the roofline and of each layer's queues over "
         "time")
      ->type_name("FOLDER");
  app->add_option("--rtl", command->rtl,
                  "With --target UNIT.json: Verilator builds the unit's hardware in this folder and runs each layer on "
                  "it; cycles and all memories are compared with the simulators', exit code 2 when they differ")
      ->type_name("FOLDER");
  app->add_flag("--json", command->json, "Print one line of JSON: median_ms, min_ms, p90_ms, p99_ms, compile_s, ...");
  add_run_flags(*app, command->run);
  add_compile_flags(*app, command->compile);
  add_time_limit_flag(*app, command->compile);
  app->footer(
      "Examples:\n"
      "  tessera bench resnet50.so --threads 1\n"
      "  tessera bench model.onnx --repeat 100 --json\n"
      "  tessera bench resnet50.so --duration 10 --concurrency 4\n"
      "  tessera bench resnet50.so --kernels\n"
      "  tessera bench resnet50_i8.onnx --target examples/accel/vdla.json\n"
      "  tessera bench resnet50.onnx --against onnxruntime --threads 1\n"
      "  tessera bench resnet50.onnx --against onnxruntime,openvino,mnn --json");
  return {app, [command] { return bench(*command); }};
}

}  // namespace tessera
