#include "driver/pipeline.h"

#include <string>
#include <utility>
#include <vector>

#include "arith/simplify.h"
#include "driver/compile_options.h"
#include "driver/declared_kernels.h"
#include "driver/devices.h"
#include "driver/step_names.h"
#include "driver/text/schedule_tool.h"
#include "graph/printer.h"
#include "graph_passes/pass.h"
#include "interp/graph_interp.h"
#include "loop/naive_loops.h"
#include "loop/printer.h"
#include "loop_passes/pass.h"
#include "lower/lower.h"
#include "ops/op_table.h"
#include "program/memory_plan.h"
#include "program/printer.h"
#include "schedule/choose.h"
#include "support/mapped_file.h"

namespace tessera::inline driver {

namespace {

using Kind = PassApplication::Kind;

std::string text_of(const Graph& graph) { return print(graph, {.elide_constants = true}); }
std::string text_of(const Program& program) { return print(program, {.elide_constants = true}); }
std::string text_of(const LoopProgram& loops) { return print(loops); }

// The passes and schedule steps that the user or the choice for the model leaves out.
std::set<std::string> disabled_steps(const DriverOptions& options) {
  std::set<std::string> disabled = options.compile.disabled_passes;
  disabled.insert(options.graph_choice.steps.begin(), options.graph_choice.steps.end());
  return disabled;
}

Intrinsics declared_kernels(const std::vector<std::string>& files) {
  std::vector<std::pair<std::string, std::string>> texts;
  for (const std::string& file : files)
    texts.emplace_back(std::string(MappedFile::open(file, "kernel declaration", "TSR-4026")->text()), file);
  return declared_intrinsics(texts);
}

}  // namespace

Pipeline::Pipeline(const DriverOptions& options, const Target& decides, PassRunner& runner, PassLimit& limit)
    : options_(options), decides_(decides), disabled_(disabled_steps(options)), runner_(runner), limit_(limit) {}

bool Pipeline::may_run(std::string_view pass, int min_level) const {
  return options_.compile.opt_level >= min_level && is_enabled(pass);
}

template <typename Ir, typename Change>
void Pipeline::apply(PassApplication application, bool counts, Ir& ir, const Change& change) {
  if (counts && !limit_.allow(std::move(application))) return;
  const bool kept = counts && limit_.at_limit();
  if (kept) limit_.before = text_of(ir);
  change(ir);
  if (kept) limit_.after = text_of(ir);
}

Graph Pipeline::simplify(Graph graph) {
  GraphInterpreter evaluator;
  const KnownSymbols known(graph.symbols);
  const Numerics most = loosest(numerics_of(options_.compile));
  const PassContext context{standard_ops(),
                            evaluator,
                            decides_,
                            options_.compile.opt_level,
                            options_.remarks,
                            precision_of(options_.compile),
                            most};
  for (const GraphPass& pass : graph_pipeline()) {
    if (!may_run(pass.name, pass.min_level) || !pass.may_run(most)) continue;
    apply({Kind::kGraphPass, std::string(pass.name), ""}, pass.min_level > 0, graph,
          [&](Graph& g) { g = runner_.run(pass.name, [&] { return pass.run(g, context); }); });
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
  return runner_.run(kPlanMemory, [&] {
    plan_memory(program);
    return std::move(program);
  });
}

bool Pipeline::may_optimize_code() {
  return options_.compile.opt_level > 0 && limit_.allow({Kind::kCodegen, std::string(kCodegen), ""});
}

void Pipeline::run_program_passes(ProgramPhase phase, Program& program) {
  for (const ProgramPass& pass : program_pipeline()) {
    if (pass.phase != phase || !may_run(pass.name, pass.min_level)) continue;
    apply({Kind::kProgramPass, std::string(pass.name), ""}, true, program, [&](Program& p) {
      p = runner_.run(pass.name, [&] {
        pass.run(p, decides_);
        return std::move(p);
      });
    });
  }
}

void Pipeline::use_kernels_of_the_user(Program& program) {
  if (options_.compile.kernels.empty()) return;
  program = runner_.run(kKernels, [&] {
    use_declared_kernels(program, declared_kernels(options_.compile.kernels), decides_, options_.compile.opt_level,
                         options_.compile.disabled_passes, rule_numerics(options_.compile), options_.remarks);
    return std::move(program);
  });
}

void Pipeline::move_to_devices(Program& program) {
  if (options_.compile.places.empty()) return;
  program = runner_.run(kPlaceCalls, [&] {
    place_calls(program, options_.compile.places);
    return std::move(program);
  });
}

// Rules are asked kernel by kernel: the limit sees each that takes one.
void Pipeline::schedule(Program& program) {
  ptrdiff_t kept_kernel = -1;
  const auto allow = [&](std::string_view rule, const Kernel& kernel) {
    if (makes_chains(rule) && (options_.chains || !options_.graph_choice.chains.empty())) {
      const std::string chain = name_of_chain(rule, kernel);
      if (options_.chains) options_.chains->push_back(chain);
      if (options_.graph_choice.chains.contains(chain)) return false;
    }
    const bool allowed = limit_.allow({Kind::kScheduleRule, std::string(rule), kernel.loc});
    if (!limit_.at_limit()) return allowed;
    // A joined kernel has its loops already, and is not yet among the program's.
    limit_.before = text_of(kernel.joined ? naive_loops(*kernel.joined) : kernel.program);
    if (kernel.joined) limit_.after = text_of(kernel.program);
    else kept_kernel = &kernel - program.kernels.data();
    return allowed;
  };
  program = runner_.run(kSchedule, [&] {
    schedule_program(program, decides_, options_.compile.opt_level, disabled_, allow, options_.tuned,
                     rule_numerics(options_.compile), options_.remarks);
    return std::move(program);
  });
  if (kept_kernel >= 0) limit_.after = text_of(program.kernels[static_cast<size_t>(kept_kernel)].program);
}

void Pipeline::run_loop_passes(Program& program) {
  const LoopPassContext context{decides_, options_.compile.opt_level};
  for (const LoopPass& pass : loop_pipeline()) {
    if (!may_run(pass.name, pass.min_level)) continue;
    program = runner_.run(pass.name, [&] {
      for (Kernel& kernel : program.kernels)
        apply({Kind::kLoopPass, std::string(pass.name), kernel.loc}, pass.min_level > 0, kernel.program,
              [&](LoopProgram& loops) { loops = pass.run(loops, context); });
      return std::move(program);
    });
  }
}

}  // namespace tessera::inline driver
