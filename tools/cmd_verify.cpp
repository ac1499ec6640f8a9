// tessera verify DIR...
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <thread>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "case_runner.h"
#include "commands.h"
#include "compile_flags.h"
#include "run_flags.h"
#include "support/error.h"
#include "terminal.h"
#include "tessera/tessera.h"

namespace tessera {

namespace {

struct VerifyCommand {
  CompileFlags compile;
  std::vector<std::string> dirs;
  std::string engine = "native";
  Tolerance tolerance{.rtol = 1e-3, .atol = 1e-7, .mtol = 0};
  RunnerSettings runner{.jobs = 0, .timeout_seconds = 60};
  bool quiet = false;
  std::string against;
};

std::string verdict_text(CaseVerdict verdict) {
  const bool colour = stdout_has_colour();
  switch (verdict) {
    case CaseVerdict::kPass: return coloured("PASS", "32", colour);
    case CaseVerdict::kFail: return coloured("FAIL", "31", colour);
    case CaseVerdict::kNoData: return coloured("NO DATA", "33", colour);
    case CaseVerdict::kUnsupported: return coloured("UNSUPPORTED", "33", colour);
  }
  return "";
}

// A model beside the module of PyTorch that it came from: Python has both. Does not return where that starts.
int verify_against(const VerifyCommand& command) {
  if (command.dirs.size() != 1)
    throw UserError({.id = "TSR-4084",
                     .message = fmt::format("--against compares one model, and {} are given", command.dirs.size()),
                     .node = {},
                     .legal = "tessera verify MODEL --against module.py",
                     .hint = {}});
  const char* named = std::getenv("TESSERA_PYTHON");
  const std::string python = named ? named : "python3";
  std::vector<std::string> words = {python, "-m", "tessera._against", command.dirs[0], "--against", command.against};
  if (command.tolerance.mtol > 0) words.insert(words.end(), {"--bound", fmt::format("{}", command.tolerance.mtol)});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  throw UserError({.id = "TSR-4084",
                   .message = fmt::format("'{}' cannot be started: {}", python, std::strerror(errno)),
                   .node = {},
                   .legal = "a Python that has torch and tessera",
                   .hint = "set TESSERA_PYTHON to it"});
}

int verify(const VerifyCommand& command) {
  if (!command.against.empty()) return verify_against(command);
  CaseOptions options;
  options.open.driver = driver_options(command.compile);
  // Cases run side by side; one thread each unless asked for more.
  options.open.num_threads = options.open.driver.compile.num_threads = std::max(command.compile.threads, 1);
  options.open.engine = parse_engine(command.engine);
  options.open.cache = CacheUse::kNone;  // what is verified is the compiler of today
  options.open.warn = print_warning;
  options.tolerance = command.tolerance;
  RunnerSettings settings = command.runner;
  if (settings.jobs == 0) settings.jobs = tessera_default_num_threads();

  int passed = 0, failed = 0, without_data = 0;
  run_isolated(
      find_cases(command.dirs), settings, [&](const std::string& folder) { return run_case(folder, options); },
      [&](const std::string& folder, const CaseResult& result, double seconds) {
        ++(result.verdict == CaseVerdict::kPass     ? passed
           : result.verdict == CaseVerdict::kNoData ? without_data
                                                    : failed);
        if (result.verdict == CaseVerdict::kPass && command.quiet) return;
        fmt::print("{} {} ({:.2f} s){}{}\n", verdict_text(result.verdict), folder, seconds,
                   result.reason.empty() ? "" : ": ", result.reason);
        std::fflush(stdout);
      });
  fmt::print("{} passed, {} failed{}\n", passed, failed,
             without_data > 0 ? fmt::format(", {} without data", without_data) : "");
  return failed > 0 ? kExitMismatch : without_data > 0 ? kExitUserError : kExitOk;
}

}  // namespace

Command add_verify_command(CLI::App& root) {
  const auto command = std::make_shared<VerifyCommand>();
  CLI::App* app = root.add_subcommand("verify", "Run ONNX test cases and compare with their expected outputs");
  app->add_option(
         "DIR", command->dirs,
         "Folders; every folder in or below them with a model.onnx, a\nmodel.graph or a model.onnxjson is a case")
      ->required()
      ->type_name("");
  app->add_option("--engine", command->engine, "native (compiled code) or interp (the interpreter, slow)")
      ->capture_default_str()
      ->check(CLI::IsMember({"native", "interp"}))
      ->type_name("ENGINE");
  app->add_option("-j,--jobs", command->runner.jobs, "Cases at once; default: as many as there are CPUs at hand")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  app->add_option("--timeout", command->runner.timeout_seconds, "Seconds after which a case has failed")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 1e6))
      ->type_name("S");
  app->add_option("--against", command->against,
                  "Compare one model with what it was exported from: a .py file with a module of\nPyTorch "
                  "('model', 'make_model' or 'Model') or a .pt2 file, on generated inputs of two batch\nsizes; "
                  "says which operator of the module is the first that differs. With the Python\nof "
                  "TESSERA_PYTHON, which has torch and tessera")
      ->type_name("FILE");
  app->add_flag("-q,--quiet", command->quiet, "Print no line for cases that pass");
  add_tolerance_flags(*app, command->tolerance);
  add_compile_flags(*app, command->compile);
  app->footer(
      "A case is compiled from its model alone before any of its other files is opened; where the model leaves\n"
      "sizes open, for the shapes of a data set's inputs. Each runs in a process\n"
      "of its own, on one thread unless --threads says otherwise. Operators that are not supported count as failures.\n"
      "Of outputs that Bernoulli, Multinomial or Random... decide about, type and shape alone are compared.\n"
      "The last line is 'N passed, N failed'; exit code 2 when any failed, else 1 when a case has no data.\n"
      "Examples:\n"
      "  tessera verify onnx-cases/node\n"
      "  tessera verify resnet50 --mtol 1e-4 --threads 2\n"
      "  tessera verify model.onnx --against module.py");
  return {app, [command] { return verify(*command); }};
}

}  // namespace tessera
