// tessera bench MODULE.so|MODEL.onnx
#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>
#include <numeric>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "compile_flags.h"
#include "progress.h"
#include "run_flags.h"

namespace tessera {

namespace {

struct BenchCommand {
  CompileFlags compile;
  RunFlags run;
  std::string model;
  int repeat = 0;   // 0: by time
  int warm_up = 0;  // 0: by time
  bool json = false;
};

using Clock = std::chrono::steady_clock;

double milliseconds_of(Model& model) {
  const Clock::time_point begin = Clock::now();
  model.run();
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

// Runs `times` times, or (0) until `budget_ms` are over, at least `at_least` times.
std::vector<double> run_timed(Model& model, int times, double budget_ms, size_t at_least) {
  std::vector<double> samples;
  double total = 0;
  while (times > 0 ? samples.size() < static_cast<size_t>(times) : samples.size() < at_least || total < budget_ms) {
    samples.push_back(milliseconds_of(model));
    total += samples.back();
  }
  return samples;
}

// REQUIRES: sorted and not empty. Between samples it interpolates.
double quantile(const std::vector<double>& sorted, double q) {
  const double place = q * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<size_t>(place);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (place - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

int bench(const BenchCommand& command) {
  constexpr double kWarmUpMs = 200, kBudgetMs = 1000;
  OpenedModel opened;
  std::string times;
  std::vector<double> samples;
  {
    Progress progress("benchmarking " + std::filesystem::path(command.model).filename().string());
    OpenOptions options;
    options.driver = driver_options(command.compile);
    options.driver.runner.on_step = [&](std::string_view step) { progress.update(std::string(step)); };
    options.engine = parse_engine(command.run.engine);
    options.num_threads = command.compile.threads;
    options.use_cache = false;  // compile_s is part of the answer
    options.warn = print_warning;
    opened = open_model(command.model, options);
    times = time_report(command.compile, opened.times);
    std::vector<std::string> random;
    opened.model->bind(make_inputs(*opened.model, command.run, random));
    progress.update("warming up");
    run_timed(*opened.model, command.warm_up, kWarmUpMs, 2);
    progress.update("measuring");
    samples = run_timed(*opened.model, command.repeat, kBudgetMs, 5);
  }
  std::cerr << times;
  std::sort(samples.begin(), samples.end());
  const auto count = static_cast<double>(samples.size());
  const double mean = std::accumulate(samples.begin(), samples.end(), 0.0) / count;
  double squares = 0;
  for (const double sample : samples) squares += (sample - mean) * (sample - mean);
  const double deviation = std::sqrt(squares / count);
  const double median = quantile(samples, 0.5), p90 = quantile(samples, 0.9), p99 = quantile(samples, 0.99);
  const int threads = opened.model->num_threads();
  if (command.json) {
    const nlohmann::json json = {{"model", command.model},
                                 {"engine", command.run.engine},
                                 {"threads", threads},
                                 {"repeats", samples.size()},
                                 {"min_ms", samples.front()},
                                 {"median_ms", median},
                                 {"mean_ms", mean},
                                 {"p90_ms", p90},
                                 {"p99_ms", p99},
                                 {"stddev_ms", deviation},
                                 {"compile_s", opened.compile_seconds},
                                 {"load_s", opened.load_seconds}};
    std::cout << json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  } else {
    fmt::print("{}: median {:.3f} ms  (min {:.3f}, p90 {:.3f}, p99 {:.3f}, mean {:.3f}, stddev {:.3f})\n",
               command.model, median, samples.front(), p90, p99, mean, deviation);
    fmt::print("{} runs after warm-up, {} thread{}, compiled in {:.2f} s, loaded in {:.3f} s\n", samples.size(),
               threads, threads == 1 ? "" : "s", opened.compile_seconds, opened.load_seconds);
  }
  return kExitOk;
}

}  // namespace

Command add_bench_command(CLI::App& root) {
  const auto command = std::make_shared<BenchCommand>();
  CLI::App* app = root.add_subcommand("bench", "Measure how long a model takes");
  app->add_option("MODEL", command->model, "A module, or an ONNX file (compiled first)")->required()->type_name("");
  app->add_option("--repeat", command->repeat, "Timed runs; default: for one second, at least 5")
      ->check(CLI::Range(1, 100000000))
      ->type_name("N");
  app->add_option("--warm-up", command->warm_up, "Runs before that; default: for 0.2 seconds, at least 2")
      ->check(CLI::Range(1, 100000000))
      ->type_name("N");
  app->add_flag("--json", command->json, "Print one line of JSON: median_ms, min_ms, p90_ms, p99_ms, compile_s, ...");
  add_run_flags(*app, command->run);
  add_compile_flags(*app, command->compile);
  app->footer(
      "Examples:\n"
      "  tessera bench resnet50.so --threads 1\n"
      "  tessera bench model.onnx --repeat 100 --json");
  return {app, [command] { return bench(*command); }};
}

}  // namespace tessera
