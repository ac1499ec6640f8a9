#include "driver/pipeline.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "arith/simplify.h"
#include "diagnose/text_table.h"
#include "driver/compile_options.h"
#include "driver/declared_kernels.h"
#include "driver/devices.h"
#include "driver/step_names.h"
#include "driver/text/schedule_tool.h"
#include "graph_passes/pass.h"
#include "interp/graph_interp.h"
#include "loop/naive_loops.h"
#include "loop_passes/pass.h"
#include "lower/lower.h"
#include "ops/op_table.h"
#include "program/memory_plan.h"
#include "program/rematerialize.h"
#include "schedule/choose.h"
#include "support/mapped_file.h"

namespace tessera::inline driver {

namespace {

using Kind = PassApplication::Kind;

constexpr size_t kMostNamed = 12;  // values in an error

// The passes and schedule steps that the user or the choice for the model leaves out.
std::set<std::string> disabled_steps(const DriverOptions& options) {
  std::set<std::string> disabled = options.compile.disabled_passes;
  disabled.insert(options.graph_choice.steps.begin(), options.graph_choice.steps.end());
  return disabled;
}

std::string size_text(int64_t bytes) { return bytes_text(static_cast<double>(bytes)); }

Intrinsics declared_kernels(const std::vector<std::string>& files) {
  std::vector<std::pair<std::string, std::string>> texts;
  for (const std::string& file : files)
    texts.emplace_back(std::string(MappedFile::open(file, "kernel declaration", "TSR-4026")->text()), file);
  return declared_intrinsics(texts);
}

}  // namespace

Pipeline::Pipeline(const DriverOptions& options, const Target& decides, PassRunner& runner, int64_t& applications)
    : options_(options),
      decides_(decides),
      disabled_(disabled_steps(options)),
      runner_(runner),
      applications_(applications) {}

bool Pipeline::may_run(std::string_view pass, int min_level) const {
  return options_.compile.opt_level >= min_level && is_enabled(pass);
}

bool Pipeline::may_apply(PassApplication& application) {
  application.number = ++applications_;
  return applications_ <= options_.max_applications;
}

template <typename Ir, typename Change>
void Pipeline::apply(PassApplication application, bool counts, Ir& ir, const Change& change) {
  if (!counts) return change(ir);
  if (!may_apply(application)) return;
  options_.observers.tell(&Observer::application_begins, application, ChangedIr(&ir));
  change(ir);
  options_.observers.tell(&Observer::application_ended, application, ChangedIr(&ir));
}

Remarks* Pipeline::remarks() { return options_.observers.want_remarks() ? &remarks_ : nullptr; }

void Pipeline::tell_remarks() {
  for (; told_ < remarks_.list().size(); ++told_) options_.observers.tell(&Observer::remarked, remarks_.list()[told_]);
}

Graph Pipeline::simplify(Graph graph) {
  GraphInterpreter evaluator;
  const KnownSymbols known(graph.symbols);
  const Numerics most = loosest(numerics_of(options_.compile));
  const PrecisionPlan plan = plan_of(options_.compile);
  const PassContext context{standard_ops(),
                            evaluator,
                            decides_,
                            options_.compile.opt_level,
                            remarks(),
                            precision_of(options_.compile),
                            most,
                            &plan,
                            device_products(options_.compile)};
  for (const GraphPass& pass : graph_pipeline()) {
    if (!may_run(pass.name, pass.min_level) || !pass.may_run(most)) continue;
    apply({Kind::kGraphPass, std::string(pass.name), ""}, pass.min_level > 0, graph,
          [&](Graph& g) { g = runner_.run(pass.name, [&] { return pass.run(g, context); }); });
    tell_remarks();
  }
  return graph;
}

Program Pipeline::lower(const Graph& graph) {
  const KnownSymbols known(graph.symbols);
  return runner_.run(kLower, [&] { return lower_graph(graph); });
}

Program Pipeline::schedule_and_plan(Program program) {
  run_program_passes(ProgramPhase::kLowered, program);
  use_kernels_of_the_user(program);
  move_to_devices(program);
  schedule(program);
  run_loop_passes(program);
  run_program_passes(ProgramPhase::kScheduled, program);
  program = runner_.run(kPlanMemory, [&] {
    plan_memory(program);
    return std::move(program);
  });
  check_memory(program);
  return program;
}

// Within 5 percent: places leave gaps.
void Pipeline::check_memory(const Program& program) const {
  const int64_t most = options_.compile.max_memory;
  const int64_t needed = session_bytes(program);
  if (most == 0 || needed <= most + most / 20) return;
  const MemoryPeak peak = memory_peak(program);
  std::string values;
  for (size_t i = 0; i < std::min(peak.values.size(), kMostNamed); ++i)
    values += fmt::format("{}'{}' ({}, {})", i == 0 ? "" : "; ", peak.values[i].name, size_text(peak.values[i].bytes),
                          peak.values[i].why);
  if (peak.values.size() > kMostNamed) values += fmt::format("; and {} more", peak.values.size() - kMostNamed);
  const int64_t states = needed - program.arena_bytes;
  throw UserError({.id = "TSR-4081",
                   .message = fmt::format("{} of memory are needed, {} of them for states, and {} are allowed. Most is "
                                          "needed at '{}', where these are alive: {}",
                                          size_text(needed), size_text(states), size_text(most), peak.at, values),
                   .node = {},
                   .legal = fmt::format("{} or more", size_text(needed)),
                   .hint = "allow more memory, or give a smaller batch"});
}

bool Pipeline::may_optimize_code(const Program& program) {
  PassApplication application{Kind::kCodegen, std::string(kCodegen), ""};
  if (options_.compile.opt_level == 0 || !may_apply(application)) return false;
  options_.observers.tell(&Observer::application_begins, application, ChangedIr(&program));
  return true;
}

void Pipeline::run_program_passes(ProgramPhase phase, Program& program) {
  for (const ProgramPass& pass : program_pipeline()) {
    if (pass.phase != phase || !may_run(pass.name, pass.min_level)) continue;
    apply({Kind::kProgramPass, std::string(pass.name), ""}, pass.min_level > 0, program, [&](Program& p) {
      p = runner_.run(pass.name, [&] {
        pass.run(p, {decides_, options_.compile.max_memory});
        return std::move(p);
      });
    });
  }
}

void Pipeline::use_kernels_of_the_user(Program& program) {
  if (options_.compile.kernels.empty()) return;
  program = runner_.run(kKernels, [&] {
    use_declared_kernels(program, declared_kernels(options_.compile.kernels), decides_, options_.compile.opt_level,
                         options_.compile.disabled_passes, rule_numerics(options_.compile), remarks());
    return std::move(program);
  });
  tell_remarks();
}

void Pipeline::move_to_devices(Program& program) {
  if (!needs_places(program, places_of(options_.compile))) return;
  program = runner_.run(kPlaceCalls, [&] {
    place_calls(program, options_.compile, remarks(), options_.decisions.get());
    return std::move(program);
  });
  tell_remarks();
}

bool Pipeline::may_join(std::string_view step, const Kernel& made) const {
  options_.observers.tell(&Observer::chain_offered, step, made);
  const std::set<std::string>& left_alone = options_.graph_choice.chains;
  return left_alone.empty() || !left_alone.contains(name_of_chain(step, made));
}

// Rules are asked kernel by kernel: each that takes one is an application.
void Pipeline::schedule(Program& program) {
  std::vector<std::pair<PassApplication, size_t>> applied;  // with the kernel's place
  const auto allow = [&](std::string_view rule, const Kernel& kernel) {
    if (makes_chains(rule) && (runs_on_gpu(program, kernel) || !may_join(rule, kernel))) return false;
    PassApplication application{Kind::kScheduleRule, std::string(rule), kernel.loc};
    if (!may_apply(application)) return false;
    if (kernel.joined) {
      if (options_.observers.empty()) return true;
      // It has its loops already, and is not yet among the program's kernels.
      const LoopProgram apart = naive_loops(*kernel.joined);
      options_.observers.tell(&Observer::application_begins, application, ChangedIr(&apart));
      options_.observers.tell(&Observer::application_ended, application, ChangedIr(&kernel.program));
      return true;
    }
    options_.observers.tell(&Observer::application_begins, application, ChangedIr(&kernel.program));
    applied.emplace_back(std::move(application), static_cast<size_t>(&kernel - program.kernels.data()));
    return true;
  };
  const ChoosePoint choose = [&](const Kernel& kernel) { return options_.decisions->choose_schedule(kernel); };
  program = runner_.run(kSchedule, [&] {
    schedule_on_gpus(program, loosest(numerics_of(options_.compile)), remarks());
    schedule_program(program, decides_, options_.compile.opt_level, disabled_, allow, choose,
                     rule_numerics(options_.compile), remarks());
    return std::move(program);
  });
  for (const auto& [application, kernel] : applied)
    options_.observers.tell(&Observer::application_ended, application, ChangedIr(&program.kernels[kernel].program));
  tell_remarks();
}

void Pipeline::run_loop_passes(Program& program) {
  const LoopPassContext context{decides_, options_.compile.opt_level};
  for (const LoopPass& pass : loop_pipeline()) {
    if (!may_run(pass.name, pass.min_level)) continue;
    program = runner_.run(pass.name, [&] {
      for (Kernel& kernel : program.kernels) {
        if (has_fixed_loops(program, kernel) || (!pass.suits_gpus && runs_on_gpu(program, kernel))) continue;
        apply({Kind::kLoopPass, std::string(pass.name), kernel.loc}, pass.min_level > 0, kernel.program,
              [&](LoopProgram& loops) { loops = pass.run(loops, context); });
      }
      return std::move(program);
    });
  }
}

}  // namespace tessera::inline driver
