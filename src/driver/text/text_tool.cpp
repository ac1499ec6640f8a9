#include "driver/text/text_tool.h"

#include <algorithm>
#include <filesystem>
#include <variant>

#include <fmt/format.h>

#include "arith/simplify.h"
#include "driver/compile.h"
#include "graph/parser.h"
#include "graph/printer.h"
#include "graph/verify.h"
#include "graph_passes/pass.h"
#include "interp/graph_interp.h"
#include "loop/parser.h"
#include "loop/printer.h"
#include "loop/verify.h"
#include "loop_passes/pass.h"
#include "lower/lower.h"
#include "ops/op_table.h"
#include "program/memory_plan.h"
#include "program/parser.h"
#include "program/pass.h"
#include "program/printer.h"
#include "program/verify.h"
#include "schedule/choose.h"
#include "support/error.h"
#include "support/nearest_names.h"

namespace tessera::inline driver {

namespace {

using Loops = std::vector<LoopProgram>;
using Ir = std::variant<Graph, Loops, Program>;  // in the order of IrKind

constexpr const char* kKindNames[] = {"graph", "loop", "program"};
constexpr std::string_view kLower = "lower", kSchedule = "schedule", kPlanMemory = "plan_memory",
                           kPipeline = "pipeline";

std::string print_ir(const Graph& graph, bool elide) { return print(graph, {.elide_constants = elide}); }
std::string print_ir(const Program& program, bool elide) { return print(program, {.elide_constants = elide}); }
std::string print_ir(const Loops& loops, bool) {
  std::string text;
  for (const LoopProgram& loop : loops) text += (text.empty() ? "" : "\n") + print(loop);
  return text;
}

Ir parse_ir(IrKind kind, std::string_view text, const std::string& file) {
  switch (kind) {
    case IrKind::kGraph: return parse_graph(text, standard_ops(), file);
    case IrKind::kLoop: return parse_loop_programs(text, file);
    case IrKind::kProgram: break;
  }
  return parse_program(text, file);
}

std::vector<std::string> violations_of(const Ir& ir) {
  if (const auto* graph = std::get_if<Graph>(&ir)) return verify(*graph);
  if (const auto* program = std::get_if<Program>(&ir)) return verify(*program);
  std::vector<std::string> all;
  for (const LoopProgram& loop : std::get<Loops>(ir)) {
    const std::vector<std::string> found = verify(loop);
    all.insert(all.end(), found.begin(), found.end());
  }
  return all;
}

std::string text_of(const Ir& ir, bool elide) {
  return std::visit([&](const auto& value) { return print_ir(value, elide); }, ir);
}

class Pipeline {
 public:
  explicit Pipeline(const TextJob& job)
      : job_(job),
        target_(resolve_target(job.compile)),
        context_{standard_ops(), evaluator_, target_, job.compile.opt_level, nullptr, precision_of(job.compile)},
        loop_context_{target_, job.compile.opt_level},
        ir_(parse_ir(job.kind, job.text, job.file)) {
    if (const std::vector<std::string> violations = violations_of(ir_); !violations.empty()) {
      throw UserError(
          {.id = "TSR-3300",
           .message = fmt::format("the {} breaks its rules: {}", kKindNames[ir_.index()], fmt::join(violations, "; ")),
           .node = job.file,
           .legal = {},
           .hint = {}});
    }
  }

  void run(const std::string& pass) {
    apply(pass);
    const std::vector<std::string> violations = violations_of(ir_);
    check(violations.empty(), fmt::format("after {}: {}", pass, fmt::join(violations, "; ")));
  }

  std::string finish() const {
    std::string text = text_of(ir_, job_.elide_constants);
    const Ir again = parse_ir(static_cast<IrKind>(ir_.index()), text, "<printed>");
    check(text_of(again, job_.elide_constants) == text, "print, parse, print gives another text");
    return text;
  }

 private:
  void apply(const std::string& pass) {
    if (auto* graph = std::get_if<Graph>(&ir_)) {
      const KnownSymbols known(graph->symbols);
      if (const GraphPass* found = find_graph_pass(pass)) {
        ir_ = found->run(*graph, context_);
        return;
      }
      if (pass == kLower) {
        ir_ = lower_graph(*graph);
        return;
      }
      if (pass == kPipeline) return apply_pipeline();
    } else if (const LoopPass* found = find_loop_pass(pass)) {
      if (auto* loops = std::get_if<Loops>(&ir_)) {
        for (LoopProgram& loop : *loops) loop = found->run(loop, loop_context_);
      } else {
        for (Kernel& kernel : std::get<Program>(ir_).kernels)
          kernel.program = found->run(kernel.program, loop_context_);
      }
      return;
    } else if (auto* program = std::get_if<Program>(&ir_)) {
      if (pass == kSchedule)
        return schedule_program(*program, target_, job_.compile.opt_level, {}, {}, {}, {.fp32 = fp32_of(job_.compile)});
      if (pass == kPlanMemory) return plan_memory(*program);
      if (const ProgramPass* program_pass = find_program_pass(pass))
        return program_pass->run(*program, {target_, job_.compile.max_memory});
    }
    fail_unknown(pass);
  }

  // All graph passes of the level, as a compile runs them.
  void apply_pipeline() {
    for (const GraphPass& pass : graph_pipeline())
      if (job_.compile.opt_level >= pass.min_level) run(std::string(pass.name));
  }

  [[noreturn]] void fail_unknown(const std::string& pass) const {
    const auto kind = static_cast<IrKind>(ir_.index());
    for (const IrKind other : {IrKind::kGraph, IrKind::kLoop, IrKind::kProgram}) {
      const std::vector<std::string> names = passes_of(other);
      if (std::find(names.begin(), names.end(), pass) == names.end()) continue;
      throw UserError({.id = "TSR-4024",
                       .message = fmt::format("pass '{}' works on a {}, and this is a {}", pass,
                                              kKindNames[static_cast<int>(other)], kKindNames[ir_.index()]),
                       .node = {},
                       .legal = fmt::format("{}", fmt::join(passes_of(kind), ", ")),
                       .hint = {}});
    }
    throw UserError({.id = "TSR-4020",
                     .message = fmt::format("--pass: there is no pass '{}'", pass),
                     .node = {},
                     .legal = fmt::format("{}", fmt::join(passes_of(kind), ", ")),
                     .hint = did_you_mean(pass, passes_of(kind))});
  }

  const TextJob& job_;
  const Target target_;
  GraphInterpreter evaluator_;
  const PassContext context_;
  const LoopPassContext loop_context_;
  Ir ir_;
};

}  // namespace

std::string run_text_job(const TextJob& job) {
  Pipeline pipeline(job);
  for (const std::string& pass : job.passes) pipeline.run(pass);
  return pipeline.finish();
}

std::vector<std::string> passes_of(IrKind kind) {
  std::vector<std::string> names;
  const auto add = [&](std::string_view name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.emplace_back(name);
  };
  if (kind == IrKind::kGraph) {
    for (const GraphPass& pass : graph_pipeline()) add(pass.name);
    add(kPipeline);
    add(kLower);
    return names;
  }
  if (kind == IrKind::kProgram) add(kSchedule);
  for (const LoopPass& pass : loop_pipeline()) add(pass.name);
  if (kind == IrKind::kProgram) {
    for (const ProgramPass& pass : program_pipeline()) add(pass.name);
    add(kPlanMemory);
  }
  return names;
}

IrKind kind_of_file(const std::string& path) {
  const std::string extension = std::filesystem::path(path).extension();
  if (extension.size() > 1) {
    const auto name = std::find(std::begin(kKindNames), std::end(kKindNames), extension.substr(1));
    if (name != std::end(kKindNames)) return parse_ir_kind(*name);
  }
  throw UserError({.id = "TSR-4025",
                   .message = fmt::format("the kind of '{}' cannot be told by its extension", path),
                   .node = {},
                   .legal = ".graph, .loop, .program",
                   .hint = "name the kind with --kind"});
}

IrKind parse_ir_kind(const std::string& name) {
  for (const IrKind kind : {IrKind::kGraph, IrKind::kLoop, IrKind::kProgram}) {
    if (name == kKindNames[static_cast<int>(kind)]) return kind;
  }
  throw InternalError("no such kind of IR: " + name);
}

}  // namespace tessera::inline driver
