#include "driver/compile.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "arith/simplify.h"
#include "codegen/llvm/llvm_codegen.h"
#include "codegen/llvm/target.h"
#include "driver/api/version.h"
#include "driver/build_module.h"
#include "driver/declared_kernels.h"
#include "driver/devices.h"
#include "driver/formats.h"
#include "driver/open_sizes.h"
#include "driver/pass_limit.h"
#include "driver/text/schedule_tool.h"
#include "driver/variants.h"
#include "graph/data_sizes.h"
#include "graph/printer.h"
#include "graph_passes/pass.h"
#include "interp/graph_interp.h"
#include "loop/intrinsic.h"
#include "loop/printer.h"
#include "loop_passes/pass.h"
#include "lower/lower.h"
#include "ops/op_table.h"
#include "program/join_pieces.h"
#include "program/memory_plan.h"
#include "program/pass.h"
#include "program/printer.h"
#include "program/size_formula.h"
#include "schedule/choose.h"
#include "support/error.h"
#include "support/hash.h"
#include "support/mapped_file.h"
#include "support/nearest_names.h"
#include "support/symbolic_shape_error.h"
#include "tessera/tessera.h"

namespace tessera::inline driver {

namespace {

// Steps that are always there, by the names under which --print-ir-after and --time-passes know them.
constexpr std::string_view kImport = "import", kLower = "lower", kSchedule = "schedule", kPlanMemory = "plan_memory",
                           kKernels = "kernels", kPlaceCalls = "place_calls", kJoinPieces = "join_pieces",
                           kCodegen = "codegen", kLink = "link";

// A part of the import: without it ranges of sizes are read at samples of them.
constexpr std::string_view kSymbolicSizes = "symbolic_sizes";

bool contains(const std::vector<std::string>& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

std::vector<std::string> pass_names() {
  std::vector<std::string> names;
  const auto add = [&](std::string_view name) {
    if (!contains(names, name)) names.emplace_back(name);
  };
  for (const GraphPass& pass : graph_pipeline()) add(pass.name);
  for (const ProgramPass& pass : program_pipeline()) add(pass.name);
  for (const LoopPass& pass : loop_pipeline()) add(pass.name);
  return names;
}

// What runs at -O0 is no optimisation: later steps rely on it.
bool is_needed(std::string_view name) {
  const GraphPass* graph_pass = find_graph_pass(name);
  const LoopPass* loop_pass = find_loop_pass(name);
  return (graph_pass && graph_pass->min_level == 0) || (loop_pass && loop_pass->min_level == 0);
}

[[noreturn]] void fail_unknown(const std::string& flag, const std::string& name,
                               const std::vector<std::string>& known) {
  throw UserError({.id = "TSR-4020",
                   .message = fmt::format("{}: there is no pass '{}'", flag, name),
                   .node = {},
                   .legal = fmt::format("{}", fmt::join(known, ", ")),
                   .hint = did_you_mean(name, known)});
}

ImportOptions import_options(const CompileOptions& options) {
  ImportOptions result;
  for (const auto& [name, bounds] : options.dims) result.dims[name] = {bounds.lo, bounds.hi};
  result.shapes = options.shapes;
  return result;
}

Intrinsics declared_kernels(const std::vector<std::string>& files) {
  std::vector<std::pair<std::string, std::string>> texts;
  for (const std::string& file : files)
    texts.emplace_back(std::string(MappedFile::open(file, "kernel declaration", "TSR-4026")->text()), file);
  return declared_intrinsics(texts);
}

std::string kernels_text(const Program& program) {
  std::string text;
  for (const Kernel& kernel : program.kernels) text += print(kernel.program) + '\n';
  return text;
}

ModuleInfo describe(const ImportedModel& model, const Target& target, const DriverOptions& options) {
  ModuleInfo info = module_info(model.flow ? model.flow->name : model.graph.name, target);
  info.model_digest = model_digest(model);
  const auto count = [&](const Graph& graph) {
    for (const Node& node : graph.nodes())
      if (node.op->name != "constant") ++info.operators[node.attrs.get_or<std::string>("name", node.op->name)];
  };
  count(model.graph);
  if (model.flow) {
    for (const Graph& piece : model.flow->pieces) count(piece);
    for (const FlowStep* step : steps_in_order(model.flow->body))
      if (step->piece < 0) ++info.operators[std::string("flow.") + flow_op_name(step->op)];
  }
  info.options["opt-level"] = std::to_string(options.compile.opt_level);
  if (options.compile.precision != "f32") info.options["precision"] = options.compile.precision;
  if (!options.compile.places.empty())
    info.options["places"] = fmt::format("{}", fmt::join(options.compile.places, ","));
  if (!options.compile.variants.empty())
    info.options["variants"] = fmt::format("{}", fmt::join(options.compile.variants, ","));
  info.variants = variant_table(options.compile, target, variant_targets(options.compile, target));
  if (options.compile.fp32 != "fma") {
    const bool pieces = fp32_of(options.compile) != Fp32Products::kFma;
    info.options["fp32"] = options.compile.fp32 == "pieces" ? "pieces" : pieces ? "auto: pieces" : "auto: fma";
  }
  if (options.compile.numerics != "default") info.options["numerics"] = options.compile.numerics;
  if (options.max_applications != INT64_MAX) info.options["pass-limit"] = std::to_string(options.max_applications);
  if (!options.compile.disabled_passes.empty()) {
    info.options["disabled-passes"] = fmt::format("{}", fmt::join(options.compile.disabled_passes, ","));
  }
  if (!options.graph_choice.empty()) info.options["graph-choice"] = to_string(options.graph_choice);
  return info;
}

// The passes and schedule steps that the user or the choice for the model leaves out.
std::set<std::string> disabled_steps(const DriverOptions& options) {
  std::set<std::string> disabled = options.compile.disabled_passes;
  disabled.insert(options.graph_choice.steps.begin(), options.graph_choice.steps.end());
  return disabled;
}

bool is_enabled(std::string_view pass, const DriverOptions& options) {
  return !disabled_steps(options).contains(std::string(pass));
}

// A graph as a program of naive kernels; none when only the graph was asked for, which is in `graphs` then.
std::optional<Program> make_program(Graph graph, const Target& target, const DriverOptions& options, PassRunner& runner,
                                    PassLimit& limit, std::vector<Graph>& graphs) {
  const int opt_level = options.compile.opt_level;
  GraphInterpreter evaluator;
  const KnownSymbols known(graph.symbols);

  // Simplify the graph and group operators that become one kernel.
  using Kind = PassApplication::Kind;
  const Numerics most = loosest(numerics_of(options.compile));
  const PassContext context{
      standard_ops(), evaluator, target, opt_level, options.remarks, precision_of(options.compile), most};
  for (const GraphPass& pass : graph_pipeline()) {
    if (opt_level < pass.min_level || !pass.may_run(most) || !is_enabled(pass.name, options)) continue;
    const bool optional = pass.min_level > 0;
    if (optional && !limit.allow({Kind::kGraphPass, std::string(pass.name), ""})) continue;
    const bool kept = optional && limit.at_limit();
    if (kept) limit.before = print(graph, {.elide_constants = true});
    graph = runner.run(pass.name, [&] { return pass.run(graph, context); });
    if (kept) limit.after = print(graph, {.elide_constants = true});
  }
  if (options.emit == Emit::kGraph) {
    graphs.push_back(std::move(graph));
    return {};
  }

  // Each group becomes a kernel with a naive loop program.
  return runner.run(kLower, [&] { return lower_graph(graph); });
}

// The same program with its memory planned. Where a text of it was asked for, that stands in `text`.
Program plan_program(Program program, const Target& target, const DriverOptions& options, PassRunner& runner,
                     PassLimit& limit, std::string& text) {
  using Kind = PassApplication::Kind;
  const int opt_level = options.compile.opt_level;
  // Rules write the loops that suit the machine, and loop passes bring them into the shape that code generation wants.
  const auto run_program_passes = [&](ProgramPhase phase) {
    for (const ProgramPass& pass : program_pipeline()) {
      if (pass.phase != phase || opt_level < pass.min_level || !is_enabled(pass.name, options)) continue;
      if (!limit.allow({Kind::kProgramPass, std::string(pass.name), ""})) continue;
      if (limit.at_limit()) limit.before = print(program, {.elide_constants = true});
      program = runner.run(pass.name, [&] {
        pass.run(program, target);
        return std::move(program);
      });
      if (limit.at_limit()) limit.after = print(program, {.elide_constants = true});
    }
  };
  run_program_passes(ProgramPhase::kLowered);
  if (!options.compile.kernels.empty()) {
    program = runner.run(kKernels, [&] {
      use_declared_kernels(program, declared_kernels(options.compile.kernels), target, opt_level,
                           options.compile.disabled_passes, rule_numerics(options.compile), options.remarks);
      return std::move(program);
    });
  }
  if (!options.compile.places.empty()) {
    program = runner.run(kPlaceCalls, [&] {
      place_calls(program, options.compile.places);
      return std::move(program);
    });
  }
  ptrdiff_t kept_kernel = -1;
  program = runner.run(kSchedule, [&] {
    const auto allow = [&](std::string_view rule, const Kernel& kernel) {
      if (makes_chains(rule) && (options.chains || !options.graph_choice.chains.empty())) {
        const std::string chain = name_of_chain(rule, kernel);
        if (options.chains) options.chains->push_back(chain);
        if (options.graph_choice.chains.contains(chain)) return false;
      }
      const bool allowed = limit.allow({Kind::kScheduleRule, std::string(rule), kernel.loc});
      if (limit.at_limit()) limit.before = print(kernel.program), kept_kernel = &kernel - program.kernels.data();
      return allowed;
    };
    schedule_program(program, target, opt_level, disabled_steps(options), allow, options.tuned,
                     rule_numerics(options.compile));
    return std::move(program);
  });
  if (kept_kernel >= 0) limit.after = print(program.kernels[static_cast<size_t>(kept_kernel)].program);
  const LoopPassContext loop_context{target, opt_level};
  for (const LoopPass& pass : loop_pipeline()) {
    if (opt_level < pass.min_level || !is_enabled(pass.name, options)) continue;
    program = runner.run(pass.name, [&] {
      for (Kernel& kernel : program.kernels) {
        const bool optional = pass.min_level > 0;
        if (optional && !limit.allow({Kind::kLoopPass, std::string(pass.name), kernel.loc})) continue;
        const bool kept = optional && limit.at_limit();
        if (kept) limit.before = print(kernel.program);
        kernel.program = pass.run(kernel.program, loop_context);
        if (kept) limit.after = print(kernel.program);
      }
      return std::move(program);
    });
  }

  // Order the calls, and give every buffer its place.
  run_program_passes(ProgramPhase::kScheduled);
  program = runner.run(kPlanMemory, [&] {
    plan_memory(program);
    return std::move(program);
  });
  if (options.emit == Emit::kLoop || options.emit == Emit::kProgram)
    text += options.emit == Emit::kLoop ? kernels_text(program) : print(program, {.elide_constants = true});
  return program;
}

}  // namespace

namespace {

ReadOutcome named(ReadOutcome outcome, const std::string& name) {
  auto* model = std::get_if<ImportedModel>(&outcome);
  if (!model) return outcome;
  model->graph.name = name;
  if (model->flow) {
    auto flow = std::make_shared<Flow>(*model->flow);
    flow->name = name;
    model->flow = std::move(flow);
  }
  return outcome;
}

using ReadModel = std::function<ReadOutcome(const ImportOptions&)>;

// The model, whose flow, if it is one or becomes one, says that this is why.
ImportedModel with_reason(ImportedModel model, const NoGraph& why) {
  if (model.as_flow)
    model.as_flow = [as_flow = std::move(model.as_flow), why] {
      auto flow = as_flow();
      if (auto* made = std::get_if<ImportedModel>(&flow)) *made = as_flow_because(std::move(*made), why);
      return flow;
    };
  return as_flow_because(std::move(model), why);
}

// The model for one choice of the symbols' values, and how to read it for another.
ImportedModel read_samples(const ImportOptions& import, const std::vector<SymbolRange>& symbols, PassRunner& runner,
                           const ReadModel& read, bool reads_open) {
  const auto read_at = [read, import,
                        symbols](const std::vector<int64_t>& values) -> std::variant<ImportedModel, SizesRefused> {
    ImportOptions fixed = import;
    fixed.loop_nodes = false;  // programs of several sizes are compared call by call
    for (size_t i = 0; i < symbols.size(); ++i) fixed.dims[symbols[i].var->name] = {values[i], values[i]};
    ReadOutcome outcome = read(fixed);
    if (const auto* refused = std::get_if<NodesRefused>(&outcome))
      return SizesRefused{refused_at(*refused, symbols, values)};
    return imported(std::move(outcome));
  };
  const auto as_flow = [read, import]() -> std::variant<ImportedModel, Diagnostic> {
    ImportOptions open = import;
    open.leave_open = true;
    ReadOutcome outcome = read(open);
    if (const auto* refused = std::get_if<NodesRefused>(&outcome)) return refused->diagnostic;
    return imported(std::move(outcome));
  };
  ImportedModel model = runner.run(kImport, [&] {
    auto first = read_at(first_points(symbols)[0]);
    if (const auto* refused = std::get_if<SizesRefused>(&first)) throw UserError(refused->diagnostic);
    return std::get<ImportedModel>(std::move(first));
  });
  if (model.flow)
    return runner.run(kImport, [&] {
      auto flow = as_flow();
      if (const auto* reason = std::get_if<Diagnostic>(&flow)) throw UserError(*reason);
      return as_flow_because(std::get<ImportedModel>(std::move(flow)), model.flow->why);
    });
  model.symbols = symbols;
  model.at = [read_at, symbols](const std::vector<int64_t>& values) -> GraphOrRefusal {
    auto at_values = read_at(values);
    if (auto* refused = std::get_if<SizesRefused>(&at_values)) return std::move(*refused);
    auto& own = std::get<ImportedModel>(at_values);
    if (own.flow) return SizesRefused{open_flow_refused(symbols), true};
    return std::move(own.graph);
  };
  if (reads_open) model.as_flow = as_flow;
  return model;
}

// A model of fixed sizes: where it is a graph with sizes that data decide, it can be read as a flow, too.
ImportedModel read_with_data_sizes(const DriverOptions& driver, const ImportOptions& import, const ReadModel& read) {
  ImportOptions with_data_sizes = import;
  with_data_sizes.data_sizes = !driver.compile.disabled_passes.contains(std::string(kSymbolicSizes));
  ImportedModel model = imported(read(with_data_sizes));
  if (has_data_symbols(model.graph)) model.at_samples = [import, read] { return imported(read(import)); };
  return model;
}

// With the ranges of --dim left open: one graph whose shapes are expressions of them, else the model for one choice of
// their values, and how to read it for another.
ImportedModel read_for_sizes(const DriverOptions& driver, const CompileOptions& options, PassRunner& runner,
                             const ModelReader& reader, const std::string& name) {
  const ReadModel read = [read = reader.read, name](const ImportOptions& import) { return named(read(import), name); };
  const ImportOptions import = import_options(options);
  const std::vector<SymbolRange> symbols = open_ranges(options);
  if (symbols.empty()) return runner.run(kImport, [&] { return read_with_data_sizes(driver, import, read); });
  const bool reads_open = reader.reads_open;
  if (reader.reads_symbols && !options.disabled_passes.contains(std::string(kSymbolicSizes))) {
    ImportOptions open = import;
    open.symbols = symbols;
    ReadOutcome outcome = runner.run(kImport, [&] { return read(open); });
    const auto* reason = std::get_if<NoGraph>(&outcome);
    if (!reason) {
      ImportedModel model = imported(std::move(outcome));
      model.at_samples = [import, symbols, read, reads_open] {
        const RunnerOptions nobody;
        PassRunner unwatched(nobody);
        return read_samples(import, symbols, unwatched, read, reads_open);
      };
      return model;
    }
    if (driver.remarks) driver.remarks->refused(std::string(kSymbolicSizes), reason->node, reason->reason);
    return with_reason(read_samples(import, symbols, runner, read, reads_open), *reason);
  }
  return read_samples(import, symbols, runner, read, reads_open);
}

}  // namespace

ImportedModel read_model(const ModelReader& reader, const std::string& name, const DriverOptions& options,
                         PassRunner& runner) {
  check_options(options);
  const CompileOptions& given = options.compile;
  return read_for_sizes(options, reader.with_declared_sizes ? reader.with_declared_sizes(given) : given, runner, reader,
                        name);
}

namespace {

// The name says more than what exporters write there.
ImportedModel read_source(const ModelSource& source, const DriverOptions& options, PassRunner& runner) {
  check_options(options);
  return read_model(format_of(source).open(source), source.name(), options, runner);
}

Graph one_graph(ImportedModel model) {
  refuse_ranges(model, "what is asked for");
  return graph_alone(std::move(model));
}

}  // namespace

ImportedModel read_model(const std::string& path, const DriverOptions& options, PassRunner& runner) {
  return read_source({path, {}}, options, runner);
}

ImportedModel read_model(const ModelBytes& model, const DriverOptions& options, PassRunner& runner) {
  return read_source({std::nullopt, model}, options, runner);
}

Graph import_model(const std::string& path, const DriverOptions& options, PassRunner& runner) {
  refuse_ranges(options.compile, "what is asked for");
  return one_graph(read_model(path, options, runner));
}

Graph import_model(const ModelBytes& model, const DriverOptions& options, PassRunner& runner) {
  refuse_ranges(options.compile, "what is asked for");
  return one_graph(read_model(model, options, runner));
}

Compiled compile_graph(Graph graph, const DriverOptions& options, PassRunner& runner) {
  return compile_imported({std::move(graph), nullptr}, options, runner);
}

std::string model_hash_of(const Graph& graph, const DriverOptions& options) {
  DriverOptions plain = options;
  plain.emit = Emit::kModule;
  plain.remarks = nullptr;
  plain.graph_choice = {};
  const RunnerOptions nobody;
  PassRunner unwatched(nobody);
  PassLimit no_limit;
  std::vector<Graph> none;
  const Program program = *make_program(graph, deciding_target(options.compile), plain, unwatched, no_limit, none);
  Hasher hasher;
  hasher.add(model_hash(program));
  hasher.add(static_cast<uint64_t>(options.compile.opt_level));
  for (const std::string& pass : options.compile.disabled_passes) hasher.add(pass);
  for (const std::string& kernel : options.compile.kernels) hasher.add(kernel);
  for (const std::string& place : options.compile.places) hasher.add(place);
  return fmt::format("{:016x}", hasher.value());
}

Compiled compile_imported(ImportedModel model, const DriverOptions& options, PassRunner& runner) {
  check_options(options);
  if (options.tuned_graph) {
    DriverOptions chosen = options;
    chosen.tuned_graph = {};
    if (!model.flow && model.symbols.empty() && model.graph.symbols.empty())
      chosen.graph_choice = options.tuned_graph(model_hash_of(model.graph, options)).choice;
    return compile_imported(std::move(model), chosen, runner);
  }
  if (model.at_samples && options.emit != Emit::kGraph) {
    const std::function<ImportedModel()> at_samples = std::exchange(model.at_samples, nullptr);
    std::optional<PassLimit> before;  // the same decisions
    const bool open = std::any_of(model.graph.symbols.begin(), model.graph.symbols.end(),
                                  [](const SymbolRange& symbol) { return !symbol.is_data(); });
    if (options.pass_limit) before = *options.pass_limit;
    NoGraph why;
    try {
      Compiled compiled = compile_imported(std::move(model), options, runner);
      if (open) compiled.info.sizes = "proved at all, by shapes that are expressions";
      return compiled;
    } catch (const SymbolicShapeError& error) {
      if (options.remarks)
        options.remarks->refused(std::string(kSymbolicSizes), error.diagnostic().node, error.diagnostic().message);
      why = {error.diagnostic().node, error.diagnostic().message};
    }
    if (before) *options.pass_limit = *before;
    return compile_imported(with_reason(at_samples(), why), options, runner);
  }
  const int opt_level = options.compile.opt_level;
  const Target target = resolve_target(options.compile);
  if (!options.compile.places.empty() && (model.flow || !model.symbols.empty() || !model.graph.symbols.empty()))
    refuse_places(model.flow ? "has values that are more than tensors of fixed shapes" : "has sizes that are open");
  Compiled result;
  const Target decides = deciding_target(options.compile);
  result.info = describe(model, target, options);
  if (model.flow) result.flow = model.flow->why;

  PassLimit own_limit(options.max_applications);
  PassLimit& limit = options.pass_limit ? *options.pass_limit : own_limit;
  std::optional<Program> planned;
  std::vector<Graph> graphs;
  if (!model.flow) {
    std::optional<Program> program;
    if (model.symbols.empty() || options.emit == Emit::kGraph) {
      program = make_program(std::move(model.graph), decides, options, runner, limit, graphs);
    } else {
      const PassLimit before = limit;  // the same decisions for all sizes
      auto found = program_of_sizes(model, [&](Graph graph, const std::set<std::string>& left_out) {
        limit = before;
        DriverOptions fewer = options;
        fewer.compile.disabled_passes.insert(left_out.begin(), left_out.end());
        return *make_program(std::move(graph), decides, fewer, runner, limit, graphs);
      });
      if (const auto* refused = std::get_if<SizesRefused>(&found)) {
        if (!refused->flow_may_do || !model.as_flow) throw UserError(refused->diagnostic);
        auto flow = model.as_flow();
        auto* made = std::get_if<ImportedModel>(&flow);
        if (!made) throw UserError(refused->diagnostic);
        limit = before;
        const NoGraph why{refused->diagnostic.node, refused->diagnostic.message};
        if (made->flow && made->flow->why.reason.empty()) *made = as_flow_because(std::move(*made), why);
        return compile_imported(std::move(*made), options, runner);
      }
      auto& sized = std::get<SizedProgram>(found);
      program = std::move(sized.program);
      result.info.sizes = to_string(sized.evidence);
    }
    if (program) planned = plan_program(std::move(*program), decides, options, runner, limit, result.text);
    if (options.emit == Emit::kGraph) result.text = print(graphs[0], {.elide_constants = true});
  } else {
    std::vector<Program> pieces;
    for (int32_t number = 0; number < std::ssize(model.flow->pieces); ++number) {
      std::optional<Program> program;
      if (options.emit == Emit::kGraph || !model.flow->open.count(number)) {
        program =
            make_program(model.flow->pieces[static_cast<size_t>(number)], decides, options, runner, limit, graphs);
      } else {
        const PassLimit before = limit;  // the same decisions for all sizes
        program = program_of_piece(*model.flow, number, [&](Graph graph, const std::set<std::string>& left_out) {
          limit = before;
          DriverOptions fewer = options;
          fewer.compile.disabled_passes.insert(left_out.begin(), left_out.end());
          return *make_program(std::move(graph), decides, fewer, runner, limit, graphs);
        });
      }
      if (program) program = plan_program(std::move(*program), decides, options, runner, limit, result.text);
      if (program) pieces.push_back(std::move(*program));
    }
    if (options.emit == Emit::kGraph) {
      Flow optimized = *model.flow;
      optimized.pieces = std::move(graphs);
      result.text = print(optimized, true);
    } else if (pieces.size() == model.flow->pieces.size()) {
      planned = runner.run(kJoinPieces, [&] { return join_pieces(model.flow, std::move(pieces)); });
    }
  }
  if (!planned || options.emit == Emit::kLoop || options.emit == Emit::kProgram) {
    result.times = runner.times();
    return result;
  }
  Program program = std::move(*planned);

  // Generate machine code, and link it into the code part of a module.
  const bool keep_all = !options.runner.save_temps.empty();
  CodegenOptions codegen;
  ObjectCode object = runner.time(kCodegen, [&] {
    // At -O0 there is nothing to leave out.
    const bool optimised = opt_level > 0 && limit.allow({PassApplication::Kind::kCodegen, std::string(kCodegen), ""});
    codegen.opt_level = optimised ? opt_level : 0;
    codegen.module_name = result.info.model_name;
    if (numerics_of(options.compile) == NumericsMode::kDeterministic) codegen.bits_of = &decides;
    codegen.want_ir = keep_all || options.emit == Emit::kLlvm;
    codegen.want_asm = keep_all || options.emit == Emit::kAsm;
    return generate_llvm(program, target, codegen);
  });
  std::vector<ObjectCode> variants;
  if (options.emit == Emit::kModule)
    variants = runner.time(
        kCodegen, [&] { return variant_code(program, decides, codegen, variant_targets(options.compile, target)); });
  if (keep_all) {
    runner.save("module.ll", object.llvm_ir);
    runner.save("module.s", object.assembly);
    runner.save("module.o", {reinterpret_cast<const char*>(object.object.data()), object.object.size()});
  }
  switch (options.emit) {
    case Emit::kLlvm: result.text = std::move(object.llvm_ir); break;
    case Emit::kAsm: result.text = std::move(object.assembly); break;
    case Emit::kObj: result.code = std::move(object.object); break;
    default: {
      BuiltModule built =
          runner.time(kLink, [&] { return link_module(object, std::move(program), target, codegen, variants); });
      result.code = std::move(built.code);
      result.images = std::move(built.images);
      result.program = std::move(built.program);
    }
  }
  result.times = runner.times();
  return result;
}

Compiled compile_model(const std::string& path, const DriverOptions& options) {
  PassRunner runner(options.runner);
  return compile_imported(read_model(path, options, runner), options, runner);
}

Compiled compile_model(const ModelBytes& model, const DriverOptions& options) {
  PassRunner runner(options.runner);
  return compile_imported(read_model(model, options, runner), options, runner);
}

void write_module(const Compiled& compiled, const std::string& path) {
  write_module_file(path, {compiled.code, compiled.program, compiled.info, compiled.images});
}

AnonymousFile module_in_memory(const Compiled& compiled) {
  return write_module_memory({compiled.code, compiled.program, compiled.info, compiled.images});
}

std::string model_digest(const ImportedModel& model) {
  Hasher hasher;
  // Constants stand in it with the hash of their contents.
  hasher.add(model.flow ? print(*model.flow, true) : print(model.graph, {.elide_constants = true}));
  for (const SymbolRange& symbol : model.symbols)
    hasher.add(fmt::format("{}={}..{}:{};", symbol.var->name, symbol.lo, symbol.hi, symbol.step));
  return fmt::format("{:016x}", hasher.value());
}

DType precision_of(const CompileOptions& options) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
    if (options.precision == dtype_name(dtype)) return dtype;
  throw UserError({.id = "TSR-4027",
                   .message = fmt::format("there is no precision '{}'", options.precision),
                   .node = {},
                   .legal = "f32, bf16, f16",
                   .hint = did_you_mean(options.precision, {"f32", "bf16", "f16"})});
}

NumericsMode numerics_of(const CompileOptions& options) {
  if (options.numerics == "default") return NumericsMode::kDefault;
  if (options.numerics == "strict") return NumericsMode::kStrict;
  if (options.numerics == "deterministic") return NumericsMode::kDeterministic;
  throw UserError({.id = "TSR-4074",
                   .message = fmt::format("there are no numerics '{}'", options.numerics),
                   .node = {},
                   .legal = "default, strict, deterministic",
                   .hint = did_you_mean(options.numerics, {"default", "strict", "deterministic"})});
}

Target deciding_target(const CompileOptions& options) {
  return numerics_of(options) == NumericsMode::kDeterministic ? reference_machine() : resolve_target(options);
}

Target resolve_target(const CompileOptions& options) {
  Target target = parse_target(options.target);
  target.num_threads = options.num_threads > 0 ? options.num_threads : tessera_default_num_threads();
  return target;
}

Fp32Products fp32_of(const CompileOptions& options) {
  if (options.fp32 != "fma" && options.fp32 != "pieces" && options.fp32 != "auto")
    throw UserError({.id = "TSR-4028",
                     .message = fmt::format("there is no way '{}' of computing f32", options.fp32),
                     .node = {},
                     .legal = "fma, pieces, auto",
                     .hint = did_you_mean(options.fp32, {"fma", "pieces", "auto"})});
  if (options.fp32 == "fma") return Fp32Products::kFma;
  const Target target = parse_target(options.target);
  const bool has_tiles = best_tile_intrinsic(target) != nullptr;
  if (options.fp32 == "pieces" && !has_tiles && !best_dot_intrinsic(target, DType::kBF16))
    throw UserError(
        {.id = "TSR-4029",
         .message = fmt::format("--fp32 pieces: the target '{}' has no dot products of bf16", options.target),
         .node = {},
         .legal = "targets with amx-bf16 or avx512bf16",
         .hint = "compile with --fp32 fma, or name the features: --target x86-64-v4,+avx512bf16"});
  if (options.fp32 == "pieces") return Fp32Products::kPieces;
  return has_tiles ? Fp32Products::kPiecesIfFaster : Fp32Products::kFma;
}

RuleNumerics rule_numerics(const CompileOptions& options) { return {loosest(numerics_of(options)), fp32_of(options)}; }

namespace {

// What is asked for besides may not contradict what the numerics promise.
void check_numerics(const DriverOptions& options) {
  const CompileOptions& compile = options.compile;
  const NumericsMode mode = numerics_of(compile);
  if (mode == NumericsMode::kDefault) return;
  const auto refuse = [&](std::string_view flag, std::string_view why) {
    throw UserError({.id = "TSR-4075",
                     .message = fmt::format("{}: {} under numerics '{}'", flag, why, compile.numerics),
                     .node = {},
                     .legal = {},
                     .hint = "leave one of the two options out"});
  };
  if (compile.fp32 == "pieces") refuse("--fp32 pieces", "pieces of bf16 are another algorithm, which has no place");
  if (!compile.kernels.empty())
    refuse("--kernel", "what a function of one's own computes is not known, so it has no place");
  if (options.tuned || options.tuned_graph)
    refuse("--db", "schedules that one machine found faster have no place, because sums follow the schedule,");
  if (mode == NumericsMode::kStrict && compile.precision != "f32")
    refuse("--precision " + compile.precision, "a lower precision is another algorithm, which has no place");
}

}  // namespace

void check_options(const DriverOptions& options) {
  if (options.compile.opt_level < 0 || options.compile.opt_level > 3) {
    throw UserError({.id = "TSR-4021",
                     .message = fmt::format("there is no optimisation level {}", options.compile.opt_level),
                     .node = {},
                     .legal = "0, 1, 2, 3",
                     .hint = {}});
  }
  precision_of(options.compile);
  resolve_target(options.compile);
  fp32_of(options.compile);
  variant_targets(options.compile, resolve_target(options.compile));
  check_places(options.compile.places);
  check_numerics(options);
  std::vector<std::string> names = pass_names();
  std::vector<std::string> can_be_disabled = names;
  for (const std::string_view name : schedule_step_names()) can_be_disabled.emplace_back(name);
  can_be_disabled.emplace_back(kSymbolicSizes);
  for (const std::string& name : options.compile.disabled_passes) {
    if (!contains(can_be_disabled, name)) fail_unknown("--disable-pass", name, can_be_disabled);
    if (is_needed(name)) {
      throw UserError({.id = "TSR-4023",
                       .message = fmt::format("--disable-pass: '{}' cannot be left out", name),
                       .node = {},
                       .legal = "passes that -O0 leaves out",
                       .hint = "later steps rely on what this pass does"});
    }
  }
  for (const std::string_view step : {kImport, kLower, kKernels, kPlaceCalls, kSchedule, kPlanMemory, kJoinPieces})
    names.emplace_back(step);
  names.emplace_back("all");
  const std::string& wanted = options.runner.print_ir_after;
  if (!wanted.empty() && !contains(names, wanted)) fail_unknown("--print-ir-after", wanted, names);
}

}  // namespace tessera::inline driver
