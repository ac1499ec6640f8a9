// tessera opt FILE.graph|FILE.loop|FILE.program --pass=a,b
#include <algorithm>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "commands.h"
#include "compile_flags.h"
#include "driver/text/text_tool.h"
#include "graph_passes/pass.h"
#include "loop_passes/pass.h"
#include "package/atomic_file.h"
#include "schedule/choose.h"
#include "support/error.h"
#include "support/mapped_file.h"

namespace tessera {

namespace {

struct OptCommand {
  std::string file, kind, output = "-";
  std::vector<std::string> passes;
  int opt_level = 3;
  std::string target = "x86-64-v3";
  std::string precision = "f32";
  int64_t max_memory = 0;
  std::string fp32 = "fma";
  int threads = 1;
  bool elide_constants = false, list_passes = false;
};

std::string read_text(const std::string& file) {
  if (file == "-") return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
  return std::string(MappedFile::open(file, "text IR", "TSR-4026")->text());
}

int list_passes() {
  for (const char* kind : {"graph", "loop", "program"}) {
    fmt::print("{}: {}\n", kind, fmt::join(passes_of(parse_ir_kind(kind)), ", "));
  }
  // What each may do to the bits of results; passes of programs keep them.
  std::map<Numerics, std::vector<std::string_view>> by_numerics;
  const auto add = [&](const auto& steps) {
    for (const auto& step : steps) {
      std::vector<std::string_view>& names = by_numerics[step.numerics];
      if (std::find(names.begin(), names.end(), step.name) == names.end()) names.push_back(step.name);
    }
  };
  add(graph_pipeline());
  add(loop_pipeline());
  add(joining_steps());
  add(schedule_rules());
  fmt::print("\nwhat they may do to the bits of results, schedule rules among them:\n");
  for (const auto& [numerics, names] : by_numerics)
    fmt::print("{}: {}\n", numerics_name(numerics), fmt::join(names, ", "));
  return kExitOk;
}

int opt(const OptCommand& command) {
  if (command.list_passes) return list_passes();
  if (command.file.empty()) {
    throw UserError(
        {.id = "TSR-4001", .message = "FILE is required", .node = {}, .legal = {}, .hint = "see 'tessera opt --help'"});
  }
  TextJob job;
  job.kind = command.kind.empty() ? kind_of_file(command.file) : parse_ir_kind(command.kind);
  job.text = read_text(command.file);
  job.file = command.file == "-" ? "<stdin>" : command.file;
  job.passes = command.passes;
  job.compile.opt_level = command.opt_level;
  job.compile.target = command.target;
  job.compile.precision = command.precision;
  job.compile.max_memory = command.max_memory;
  job.compile.fp32 = command.fp32;
  job.compile.num_threads = command.threads;
  job.elide_constants = command.elide_constants;
  const std::string text = run_text_job(job);
  if (command.output == "-") {
    std::cout << text << std::flush;
    return kExitOk;
  }
  write_file(command.output, "output", text);
  return kExitOk;
}

}  // namespace

Command add_opt_command(CLI::App& root) {
  const auto command = std::make_shared<OptCommand>();
  CLI::App* app = root.add_subcommand("opt", "Run passes on a program in text form and print the result");
  app->add_option("FILE", command->file, "FILE.graph, FILE.loop or FILE.program; '-' reads standard input")
      ->type_name("");
  app->add_option("--pass", command->passes, "Passes in order; none: parse, verify and print")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAME[,NAME...]");
  app->add_option("--kind", command->kind, "graph, loop or program; default: by the extension")
      ->check(CLI::IsMember({"graph", "loop", "program"}))
      ->type_name("KIND");
  app->add_option("-o,--output", command->output, "Where to write; '-' is standard output")
      ->capture_default_str()
      ->type_name("FILE");
  app->add_option("-O", command->opt_level, "Optimisation level that passes see: 0 to 3")
      ->capture_default_str()
      ->check(CLI::Range(0, 3))
      ->type_name("LEVEL");
  app->add_option("--target", command->target, "Target that passes see; see 'tessera compile --help'")
      ->capture_default_str()
      ->type_name("TARGET");
  app->add_option("--max-memory", command->max_memory, "What rematerialize makes the program fit into, as 300M")
      ->transform(CLI::AsSizeValue(true))
      ->check(CLI::Range(int64_t{1}, INT64_MAX / 2))
      ->type_name("BYTES");
  app->add_option("--precision", command->precision, "Precision that passes see: f32, bf16 or f16")
      ->capture_default_str()
      ->type_name("TYPE");
  app->add_option("--fp32", command->fp32, "How f32 products are computed: fma, pieces or auto")
      ->capture_default_str()
      ->type_name("WAY");
  app->add_option("--threads", command->threads, "Threads that passes see")
      ->capture_default_str()
      ->check(CLI::Range(1, kMostThreads))
      ->type_name("N");
  app->add_flag("--elide-constants", command->elide_constants, "Print large constants as their hash");
  app->add_flag("--list-passes", command->list_passes, "Print the passes of every kind");
  app->footer(
      "The text is verified when it is read and after every pass, and the result reads back to the same text.\n"
      "Examples:\n"
      "  tessera opt model.graph --pass=fold_constants,cse,dce\n"
      "  tessera opt model.graph --pass=pipeline               (all graph passes of the level, as a compile runs "
      "them)\n"
      "  tessera opt model.graph --pass=lower,schedule,plan_memory --target x86-64-v4\n"
      "  tessera compile model.onnx --emit graph | tessera opt - --kind graph");
  return {app, [command] { return opt(*command); }};
}

}  // namespace tessera
