// tessera tune MODEL.onnx
#include <charconv>
#include <filesystem>
#include <iostream>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "codegen/llvm/target.h"
#include "commands.h"
#include "compile_flags.h"
#include "diagnose/text_table.h"
#include "driver/accelerators.h"
#include "driver/compile.h"
#include "driver/engine/open_model.h"
#include "package/atomic_file.h"
#include "run_flags.h"
#include "stop_on_interrupt.h"
#include "support/error.h"
#include "terminal.h"
#include "tune/remote_measurer.h"
#include "tune/report.h"
#include "tune/tuner.h"
#include "tune/unit_tuner.h"
#include "tune/worker.h"

namespace tessera {

namespace {

struct TuneCommand {
  CompileFlags compile;
  RunFlags run;
  std::string model, budget, only, mode = "evolutionary", space = "all", report, cost_model = "pretrained", save_model;
  std::vector<std::string> workers;
  std::string token;
  bool no_local = false;
  int64_t trials = 0, batch = 8;
  uint64_t seed = 1;
  double trial_seconds = 10;
  bool resume = false, no_graph = false, json = false;
};

// "60s", "3m", "1h", or a number of seconds.
double parse_budget(const std::string& text) {
  double value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string unit(stop, text.data() + text.size());
  const double scale = unit.empty() || unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3600 : 0;
  if (error == std::errc() && scale > 0 && value > 0 && value * scale <= 1e7) return value * scale;
  throw UserError({.id = "TSR-4050",
                   .message = fmt::format("--budget '{}' is no length of time", text),
                   .node = {},
                   .legal = "a number above 0 with s, m or h behind it: 60s, 3m, 1h",
                   .hint = {}});
}

SearchMode parse_mode(const std::string& name) {
  return name == "random" ? SearchMode::kRandom : name == "model" ? SearchMode::kModel : SearchMode::kEvolutionary;
}

SpaceKind parse_space(const std::string& name) {
  for (const SpaceKind kind : {SpaceKind::kSketches, SpaceKind::kAll})
    if (name == space_kind_name(kind)) return kind;
  return SpaceKind::kTemplates;
}

std::string shortened(const std::string& text, size_t most) {
  return text.size() <= most ? text : text.substr(0, most - 3) + "...";
}

// One line that is written over; nothing when standard error is no terminal.
void show_status(const TuneStatus& status) {
  if (!stderr_is_terminal()) return;
  std::string line = fmt::format("{:.0f} s: {}", status.seconds, status.doing);
  // Before the first trial of a task nothing is known of it.
  if (!status.task.empty() && status.task_default_us > 0)
    line += fmt::format(
        " {} {:.1f} us, best {:.1f} ({:.0f}% of peak), {} trials; model {:.3f} of {:.3f} ms, {:.3f} above roofline",
        shortened(status.task, 24), status.task_default_us, status.task_us, status.task_percent_of_peak, status.trials,
        status.model_us / 1e3, status.model_default_us / 1e3, status.remaining_us / 1e3);
  line = shortened(line, 159);
  fmt::print(stderr, "\r{:<159}\r{}", "", line);
  std::fflush(stderr);
}

void clear_line() {
  if (stderr_is_terminal()) fmt::print(stderr, "\r{:<159}\r", "");
}

int run_tune(const TuneCommand& command) {
  if (looks_like_module(command.model) || command.model.ends_with(".so"))
    throw UserError({.id = "TSR-4051",
                     .message = fmt::format("'{}' is a compiled module, which cannot be tuned", command.model),
                     .node = {},
                     .legal = "an ONNX model",
                     .hint = "give the model that the module was compiled from"});
  TuneOptions options;
  CompileFlags flags = command.compile;
  options.db = flags.db.empty() ? "tessera-tune.db" : flags.db;
  flags.db.clear();  // what is tuned is compared with what the rules choose
  options.driver = driver_options(flags);
  if (numerics_of(options.driver.compile) != NumericsMode::kDefault)
    throw UserError({.id = "TSR-4075",
                     .message = fmt::format("tune: sums follow the schedule, so numerics '{}' leave nothing to search",
                                            flags.numerics),
                     .node = {},
                     .legal = "--numerics default",
                     .hint = "records are of the default numerics"});
  take_input_sizes(command.model, command.run, options.driver.compile);
  const Target target = resolve_target(options.driver.compile);
  const bool here = runs_here(target);
  if (!here && command.workers.empty())
    throw UserError(
        {.id = "TSR-4052",
         .message = fmt::format("code for the target '{}' does not run on this machine", flags.target),
         .node = {},
         .legal = "a target whose features this machine has, or --workers with the same --target beside it",
         .hint = fmt::format(
             "start a worker: tessera worker --token FILE --target {} --runner \"{}\" (where qemu is installed, or an "
             "empty --runner on a machine of that kind), and give --workers 127.0.0.1:7070 --token FILE",
             flags.target,
             target.triple.starts_with("aarch64") ? "qemu-aarch64 -L /usr/aarch64-linux-gnu" : "COMMAND")});
  options.model = command.model;
  options.trials = command.trials;
  options.batch = command.batch;
  options.only = command.only;
  if (!command.budget.empty()) options.budget_seconds = parse_budget(command.budget);
  if (options.trials == 0 && options.budget_seconds == 0) options.budget_seconds = 60;
  options.mode = parse_mode(command.mode);
  options.space = parse_space(command.space);
  options.seed = command.seed;
  options.cost_model = command.cost_model;
  options.save_model = command.save_model;
  options.resume = command.resume;
  options.search_graph = !command.no_graph;
  options.limits.run_seconds = command.trial_seconds;
  options.bind = [&](Model& model) {
    std::vector<std::string> random;
    model.bind_values(make_values(model.inputs(), command.run, random));
  };
  options.on_status = show_status;
  if (command.workers.empty() && (command.no_local || !command.token.empty()))
    throw UserError({.id = "TSR-4053",
                     .message = fmt::format("{} without --workers", command.no_local ? "--no-local" : "--token"),
                     .node = {},
                     .legal = "--workers HOST:PORT,... beside it",
                     .hint = "'tessera worker' starts one"});
  if (!command.workers.empty() && command.token.empty())
    throw UserError({.id = "TSR-4053",
                     .message = "--workers without --token",
                     .node = {},
                     .legal = "--token FILE beside it: the workers' own",
                     .hint = {}});
  if (options.mode != SearchMode::kModel && (!command.save_model.empty() || command.cost_model != "pretrained"))
    throw UserError({.id = "TSR-4057",
                     .message = fmt::format("{} without --mode model, which alone has a learned model of costs",
                                            command.save_model.empty() ? "--cost-model" : "--save-model"),
                     .node = {},
                     .legal = "--mode model beside it",
                     .hint = "'tessera db train' makes a cost model of the trials of any search"});
  // A search is long: what cannot be written at its end is said at its begin.
  if (!command.report.empty()) AtomicFile(command.report, "report");
  if (!command.save_model.empty()) AtomicFile(command.save_model, "cost model");
  if (!command.workers.empty()) {
    RemoteOptions remote;
    for (const std::string& address : command.workers) remote.workers.push_back(parse_host_port(address));
    remote.token = read_token(command.token);
    remote.here = !here ? MeasureHere::kNever : command.no_local ? MeasureHere::kWhenNobodyElse : MeasureHere::kToo;
    remote.stop = &StopOnInterrupt::asked();
    remote.on_message = [](const std::string& line) {
      clear_line();
      fmt::print(stderr, "{}\n", line);
    };
    options.measurer = [remote, limits = options.limits](const Target& target) {
      return std::make_unique<RemoteMeasurer>(target, limits, remote);
    };
  }
  const StopOnInterrupt interrupt;  // records are whole in both cases
  options.stop = &StopOnInterrupt::asked();
  TuneResult result;
  try {
    result = names_accelerator(options.driver.compile.target) ? tune_unit(options) : tune_model(options);
  } catch (...) {
    clear_line();
    throw;
  }
  clear_line();
  if (!command.report.empty()) {
    write_file(command.report, "report", tune_report_html(options, result));
  }
  if (command.json) std::cout << json_line(tune_result_json(options, result));
  else std::cout << tune_result_text(options, result, {stdout_has_colour()});
  return result.interrupted ? kExitInterrupted : kExitOk;
}

}  // namespace

Command add_tune_command(CLI::App& root) {
  const auto command = std::make_shared<TuneCommand>();
  CLI::App* app =
      root.add_subcommand("tune", "Search for faster schedules of a model's kernels, on this machine or on workers");
  app->add_option("MODEL", command->model, "An ONNX file")->required()->type_name("");
  app->add_option(
         "--budget", command->budget,
         "Time for the search: 60s, 3m, 1h; default: 60s, or none with --trials. Nothing new is tried when it is over; "
         "behind it, what was found is compared in the model for about a tenth of the time more")
      ->type_name("TIME");
  app->add_option("--trials", command->trials,
                  "Trials of all kernels together, those in the records counted with --resume")
      ->check(CLI::Range(int64_t{1}, int64_t{100000000}))
      ->type_name("N");
  app->add_option("--mode", command->mode,
                  "How candidates are found: random, evolutionary, or model: evolution before a learned model of costs")
      ->check(CLI::IsMember({"random", "evolutionary", "model"}))
      ->capture_default_str()
      ->type_name("MODE");
  app->add_option("--space", command->space,
                  "What is searched: templates, the rules' knobs; sketches, generated schedules; or all")
      ->check(CLI::IsMember({"templates", "sketches", "all"}))
      ->capture_default_str()
      ->type_name("SPACE");
  app->add_option("--cost-model", command->cost_model,
                  "With --mode model: the learned model to begin with: pretrained, none, or a file")
      ->capture_default_str()
      ->type_name("pretrained|none|FILE.json");
  app->add_option("--save-model", command->save_model, "With --mode model: where to write the learned model")
      ->type_name("FILE.json");
  app->add_option("--seed", command->seed, "Of the search's random numbers")->capture_default_str()->type_name("N");
  app->add_option("--batch", command->batch, "Candidates of one round, built together")
      ->check(CLI::Range(int64_t{1}, int64_t{1024}))
      ->capture_default_str()
      ->type_name("N");
  app->add_option("--only", command->only,
                  "Tune kernels whose nodes' names hold this text, or whose hash (db show) begins with it")
      ->type_name("TEXT");
  app->add_option("--trial-time", command->trial_seconds, "Seconds after which a candidate that runs counts as hanging")
      ->check(CLI::Range(0.01, 1e5))
      ->capture_default_str()
      ->type_name("SECONDS");
  app->add_flag("--resume", command->resume, "Go on from the trials that --db holds");
  app->add_flag(
      "--no-graph", command->no_graph,
      "Search schedules alone: not which layouts images have, which products are one and which kernels run as "
      "a chain");
  app->add_option("--workers", command->workers,
                  "Machines of the target's kind that run 'tessera worker', and measure as well")
      ->delimiter(',')
      ->type_name("HOST:PORT,...");
  app->add_option("--token", command->token, "File whose first line is the workers' token")->type_name("FILE");
  app->add_flag(
      "--no-local", command->no_local,
      "Measure candidates on workers only, as long as there are any; always so when the target does not run here");
  app->add_option("--report", command->report, "Write a page with curves and tables")->type_name("FILE.html");
  app->add_flag("--json", command->json, "Print one line of JSON");
  add_input_flags(*app, command->run);
  add_compile_flags(*app, command->compile);
  app->footer(
      "Records go to --db, by default tessera-tune.db; Ctrl-C leaves the best so far there. docs/tuning.md has more.\n"
      "Examples:\n"
      "  tessera tune mobilenet_v2.onnx --budget 3m --threads 1 --db my.db --report my.html\n"
      "  tessera compile mobilenet_v2.onnx --threads 1 --db my.db\n"
      "  tessera tune mobilenet_v2.onnx --trials 500 --resume --db my.db\n"
      "For another machine, with a worker that has it, or emulates it ('tessera worker --help'):\n"
      "  tessera tune mobilenet_v2.onnx --target aarch64-unknown-linux-gnu --threads 1 --db my.db --workers "
      "127.0.0.1:7070 --token token\n"
      "For an accelerator that a file describes, by simulated cycles:\n"
      "  tessera tune resnet18_i8.onnx --target unit.json --trials 500 --db my.db");
  return {app, [command] { return run_tune(*command); }};
}

}  // namespace tessera
