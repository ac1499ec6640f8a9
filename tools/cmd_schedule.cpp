// tessera schedule FILE.loop --apply FILE.sched
#include <algorithm>
#include <iostream>
#include <iterator>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "compile_flags.h"
#include "driver/text/accelerator_tool.h"
#include "driver/text/rtl_tool.h"
#include "driver/text/schedule_tool.h"
#include "package/atomic_file.h"
#include "schedule/primitives/trace.h"
#include "support/error.h"
#include "support/mapped_file.h"

namespace tessera {

namespace {

struct ScheduleCommand {
  std::string file, kernel, emit, output = "-", accel, rtl, target = "native", l1, l2;
  std::vector<std::string> apply, intrinsics;
  int threads = 1;
  bool check = false, bench = false, only_scheduled = false, json = false, list_primitives = false;
  double seconds = 2;
};

const std::vector<std::pair<std::string, ScheduleEmit>> kScheduleEmits = {
    {"loop", ScheduleEmit::kLoop},     {"trace", ScheduleEmit::kTrace}, {"llvm", ScheduleEmit::kLlvm},
    {"asm", ScheduleEmit::kAsm},       {"mca", ScheduleEmit::kMca},     {"cache", ScheduleEmit::kCache},
    {"opencl", ScheduleEmit::kOpenCl}, {"cuda", ScheduleEmit::kCuda}};

std::string read_text(const std::string& file, const char* what) {
  if (file == "-") return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
  return std::string(MappedFile::open(file, what, "TSR-4026")->text());
}

int list_primitives() {
  for (const SchedulePrimitive& primitive : schedule_primitives())
    fmt::print("{}\n    {}\n", primitive.usage, primitive.summary);
  return kExitOk;
}

std::optional<CacheShape> cache_of(const std::string& text) {
  return text.empty() ? std::nullopt : std::optional(parse_cache(text));
}

void write_output(const ScheduleCommand& command, const std::string& text) {
  if (command.output == "-") {
    std::cout << text << std::flush;
    return;
  }
  write_file(command.output, "output", text);
}

// What is wanted of the scheduled loops as a stream.
int run_on_accelerator(const ScheduleCommand& command, const ScheduledLoops& loops, const Accelerator& unit) {
  const bool is_timeline = command.emit == "timeline";
  if (!command.emit.empty() && command.emit != "stream" && !is_timeline) {
    for (const auto& [name, what] : kScheduleEmits)
      if (name == command.emit) write_output(command, emit_scheduled(loops, what));
    if (!command.check && !command.bench) return kExitOk;
  }
  const InstructionStream stream = make_stream(loops, unit);
  if (command.emit == "stream" || (command.emit.empty() && !command.check && !command.bench))
    write_output(command, print(unit, stream));
  if (is_timeline) write_output(command, timeline_picture(unit, stream, simulate(unit, stream)));
  nlohmann::json report;
  bool agrees = true;
  if (command.check)
    for (const ScheduleCheck& check : check_stream_of(loops, unit, stream)) {
      agrees = agrees && check.result.agrees;
      if (!command.json)
        fmt::print("check {}: {}: {}: {}\n", check.output, check.how, check.result.agrees ? "agrees" : "DIFFERS",
                   check.result.text);
      report["check"].push_back({{"output", check.output}, {"how", check.how}, {"agrees", check.result.agrees}});
    }
  if (!command.rtl.empty() && agrees) {
    const RtlCheck check = check_rtl(unit, loops.scheduled, stream, command.rtl);
    agrees = check.differences.empty();
    if (!command.json) fmt::print("{}", rtl_check_text(unit, check));
    report["check"].push_back({{"output", check.kernel}, {"how", "hardware"}, {"agrees", agrees}});
  }
  if (command.bench && agrees) {
    const SimulatedRun run = simulate(unit, stream);
    check(run.problem.empty(), run.problem);
    if (!command.json) fmt::print("{}", simulation_text(unit, stream, run));
    report["bench"] = {{"cycles", run.cycles},
                       {"instructions", stream.instructions.size()},
                       {"multiply_adds", run.multiply_adds},
                       {"peak_per_cycle", run.peak_per_cycle},
                       {"utilisation", run.utilisation()},
                       {"dram_bytes", run.dram_bytes},
                       {"dram_busy", run.dram_busy},
                       {"ms", static_cast<double>(run.cycles) / unit.clock_mhz / 1e3}};
    for (size_t q = 0; q < unit.queues.size(); ++q)
      report["bench"]["queues"].push_back({{"name", unit.queues[q]}, {"busy", run.queues[q].busy}});
  }
  if (command.json && !report.is_null()) fmt::print("{}\n", report.dump());
  return agrees ? kExitOk : kExitMismatch;
}

int run_schedule(const ScheduleCommand& command) {
  if (command.list_primitives) return list_primitives();
  if (command.file.empty())
    throw UserError({.id = "TSR-4001",
                     .message = "FILE is required",
                     .node = {},
                     .legal = {},
                     .hint = "see 'tessera schedule --help'"});
  const auto misused = [](const std::string& message) {
    return UserError(
        {.id = "TSR-4001", .message = message, .node = {}, .legal = {}, .hint = "see 'tessera schedule --help'"});
  };
  if (command.json && !command.check && !command.bench) throw misused("--json requires --check or --bench");
  std::vector<std::string> inputs = {command.file};
  inputs.insert(inputs.end(), command.apply.begin(), command.apply.end());
  inputs.insert(inputs.end(), command.intrinsics.begin(), command.intrinsics.end());
  if (std::count(inputs.begin(), inputs.end(), "-") > 1)
    throw misused("'-', which is standard input, can be only one of FILE, --apply and --intrinsics");
  ScheduleJob job;
  job.text = read_text(command.file, "loop program");
  job.file = command.file == "-" ? "<stdin>" : command.file;
  job.kernel = command.kernel;
  for (const std::string& file : command.apply) job.traces.emplace_back(read_text(file, "schedule"), file);
  for (const std::string& file : command.intrinsics) job.intrinsics.emplace_back(read_text(file, "intrinsics"), file);
  job.compile.target = command.target;
  job.compile.num_threads = command.threads;
  if (!command.accel.empty())
    job.accelerator = std::make_shared<const Accelerator>(
        read_accelerator(read_text(command.accel, "description of an accelerator"), command.accel));
  const ScheduledLoops loops = apply_schedules(job);
  if ((command.emit == "stream" || command.emit == "timeline") && !job.accelerator)
    throw misused(fmt::format("--emit {} requires --accel", command.emit));
  if (!command.rtl.empty() && !(job.accelerator && command.check)) throw misused("--rtl requires --accel and --check");
  if (job.accelerator) return run_on_accelerator(command, loops, *job.accelerator);

  const std::string emit = command.emit.empty() && !command.check && !command.bench ? "loop" : command.emit;
  for (const auto& [name, what] : kScheduleEmits)
    if (name == emit) write_output(command, emit_scheduled(loops, what, cache_of(command.l1), cache_of(command.l2)));

  nlohmann::json report;
  bool agrees = true;
  if (command.check) {
    for (const ScheduleCheck& check : check_schedule(loops)) {
      agrees = agrees && check.result.agrees;
      if (!command.json)
        fmt::print("check {}: {}: {}: {}\n", check.output, check.how, check.result.agrees ? "agrees" : "DIFFERS",
                   check.result.text);
      report["check"].push_back({{"output", check.output},
                                 {"how", check.how},
                                 {"agrees", check.result.agrees},
                                 {"max_difference", check.result.max_difference},
                                 {"max_reference", check.result.max_reference}});
    }
  }
  if (command.bench && agrees) {
    const ScheduleBench bench = bench_schedule(loops, command.seconds, command.only_scheduled);
    const auto gflops = [&](double ms) { return ms > 0 ? bench.flops / ms / 1e6 : 0.0; };
    const auto share = [&](double ms) { return 100 * gflops(ms) / bench.peak_gflops; };
    if (!command.json) {
      const auto line = [&](const char* what, double ms) {
        fmt::print("{:<10}{:>12.4f} ms {:>10.2f} GFLOP/s {:>7.2f} % of the multiply-add peak\n", what, ms, gflops(ms),
                   share(ms));
      };
      if (!command.only_scheduled) line("original", bench.original_ms);
      line("scheduled", bench.scheduled_ms);
      fmt::print("peak      {:>28.2f} GFLOP/s, measured in the same {} rounds on {} thread{}\n", bench.peak_gflops,
                 bench.rounds, loops.num_threads, loops.num_threads == 1 ? "" : "s");
      for (const std::string& remark : bench.remarks) fmt::print("remark: {}\n", remark);
    }
    report["bench"] = {{"flops", bench.flops},
                       {"scheduled_ms", bench.scheduled_ms},
                       {"scheduled_gflops", gflops(bench.scheduled_ms)},
                       {"peak_gflops", bench.peak_gflops},
                       {"percent_of_peak", share(bench.scheduled_ms)},
                       {"rounds", bench.rounds},
                       {"threads", loops.num_threads},
                       {"remarks", bench.remarks}};
    if (!command.only_scheduled) {
      report["bench"]["original_ms"] = bench.original_ms;
      report["bench"]["original_gflops"] = gflops(bench.original_ms);
    }
  }
  if (command.json && !report.is_null()) fmt::print("{}\n", report.dump());
  return agrees ? kExitOk : kExitMismatch;
}

}  // namespace

Command add_schedule_command(CLI::App& root) {
  const auto command = std::make_shared<ScheduleCommand>();
  CLI::App* app =
      root.add_subcommand("schedule", "Rewrite a loop program by schedules in text form; check and time it");
  app->add_option("FILE", command->file, "FILE.loop; '-' reads standard input")->type_name("");
  app->add_option("--apply", command->apply, "Schedule to apply (may be given several times: one after another)")
      ->allow_extra_args(false)
      ->type_name("FILE.sched");
  app->add_option("--intrinsics", command->intrinsics,
                  "Tensor intrinsics that a text declares (several times: several)")
      ->allow_extra_args(false)
      ->type_name("FILE.intrin");
  app->add_option("--accel", command->accel,
                  "Accelerator that a file describes: a schedule may use its instructions, --emit stream prints "
                  "them, --check runs them in its simulator, and --bench counts cycles")
      ->type_name("FILE.json");
  app->add_option("--rtl", command->rtl,
                  "Of --accel with --check: Verilator builds the accelerator's hardware in this folder and runs the "
                  "stream on it; cycles and all memories are compared with the simulators'")
      ->type_name("FOLDER");
  app->add_option("--kernel", command->kernel, "The kernel of the file, where it has several")->type_name("NAME");
  std::vector<std::string> levels;
  for (const auto& [name, what] : kScheduleEmits) levels.push_back(name);
  for (const char* level : {"stream", "timeline"}) levels.emplace_back(level);
  app->add_option(
         "--emit", command->emit,
         "What to print: the scheduled loops, the schedule as it is recorded, LLVM IR, assembly, what llvm-mca says "
         "about the innermost loop, misses of simulated caches, a GPU's kernels, an accelerator's instructions, or a "
         "picture (SVG) of its queues over time; default: loop, with --accel stream, unless --check or --bench is "
         "given")
      ->check(CLI::IsMember(levels))
      ->type_name("LEVEL");
  app->add_option("--l1", command->l1, "The L1 cache of --emit cache; default: the target's")->type_name("32K/8");
  app->add_option("--l2", command->l2, "The L2 cache of --emit cache; default: the target's")->type_name("1M/8");
  app->add_option("-o,--output", command->output, "Where --emit writes; '-' is standard output")
      ->capture_default_str()
      ->type_name("FILE");
  app->add_flag("--check", command->check, "Compare with the original on random inputs; exit code 2 when it differs");
  CLI::Option* bench =
      app->add_flag("--bench", command->bench, "Time the original and the scheduled program, and the machine's peak");
  app->add_flag("--only-scheduled", command->only_scheduled, "--bench leaves the original out")->needs(bench);
  app->add_option("--seconds", command->seconds, "About how long --bench takes")
      ->capture_default_str()
      ->check(CLI::Range(0.01, 600.0))
      ->type_name("S");
  app->add_flag("--json", command->json, "Print --check and --bench as one line of JSON");
  app->add_option("--target", command->target, "Target to compile for; see 'tessera compile --help'")
      ->capture_default_str()
      ->type_name("TARGET");
  app->add_option("--threads", command->threads, "Threads of parallel loops")
      ->capture_default_str()
      ->check(CLI::Range(1, kMostThreads))
      ->type_name("N");
  app->add_flag("--list-primitives", command->list_primitives, "Print what a schedule can say");
  app->footer(
      "The language and a tutorial: docs/schedules.md and examples/schedules.\n"
      "Examples:\n"
      "  tessera schedule matmul.loop --apply tile.sched\n"
      "  tessera schedule matmul.loop --apply tile.sched --check --bench\n"
      "  tessera schedule matmul.loop --apply tile.sched --emit mca --target x86-64-v3");
  return {app, [command] { return run_schedule(*command); }};
}

}  // namespace tessera
