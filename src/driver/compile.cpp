#include "driver/compile.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "codegen/c/c_codegen.h"
#include "codegen/llvm/llvm_codegen.h"
#include "driver/build_module.h"
#include "driver/devices.h"
#include "driver/open_sizes.h"
#include "driver/pipeline.h"
#include "driver/step_names.h"
#include "driver/variants.h"
#include "driver/wasm_file.h"
#include "graph/printer.h"
#include "loop/printer.h"
#include "program/join_pieces.h"
#include "program/printer.h"
#include "program/size_formula.h"
#include "schedule/choose.h"
#include "support/error.h"
#include "support/hash.h"
#include "support/symbolic_shape_error.h"
#include "target/wasm.h"

namespace tessera::inline driver {

namespace {

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
  if (!options.compile.layer_precisions.empty())
    info.options["layer-precisions"] = fmt::format("{}", fmt::join(options.compile.layer_precisions, "; "));
  if (const std::vector<std::string> places = places_of(options.compile); !places.empty())
    info.options["places"] = fmt::format("{}", fmt::join(places, ","));
  if (options.compile.max_memory > 0) info.options["max-memory"] = std::to_string(options.compile.max_memory);
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

// What C source is made with: loops as they are defined, once each, and images in the order of the model: small code,
// for a machine that nobody knows. Kernels of a GPU are not joined, and read images in the order of the model.
DriverOptions options_of_steps(const DriverOptions& options) {
  DriverOptions steps = options;
  if (device_target(options.compile)) {
    for (const JoiningStep& step : joining_steps()) steps.compile.disabled_passes.emplace(step.name);
    for (const char* pass : {"assign_layouts", "merge_conv_groups"}) steps.compile.disabled_passes.emplace(pass);
  }
  if (options.emit != Emit::kCSource) return steps;
  for (const std::string_view step : schedule_step_names()) steps.compile.disabled_passes.emplace(step);
  for (const char* pass : {"assign_layouts", "merge_conv_groups", "partition_loops"})
    steps.compile.disabled_passes.emplace(pass);
  return steps;
}

// Whom the steps decide for.
Target deciding_for(const DriverOptions& options) {
  if (options.emit != Emit::kCSource) return deciding_target(options.compile);
  Target machine = reference_machine();
  machine.features.insert("scalar-loops");  // which makes its kernels a family of their own
  return machine;
}

// From an imported model to what was asked for.
class Compile {
 public:
  Compile(const DriverOptions& options, PassRunner& runner)
      : options_(options_of_steps(options)),
        runner_(runner),
        target_(resolve_target(options.compile)),
        decides_(deciding_for(options)) {}

  Compiled run(ImportedModel model) {
    if (!places_of(options_.compile).empty()) check_may_be_placed(model);
    result_.info = describe(model, target_, options_);
    if (model.flow) result_.flow = model.flow->why;

    std::optional<Program> program = model.flow ? program_of_flow(model.flow) : program_of_graph(model);
    if (flow_instead_) return Compile(options_, runner_).run(std::move(*flow_instead_));
    if (program && options_.emit != Emit::kLoop && options_.emit != Emit::kProgram) generate(std::move(*program));
    result_.times = runner_.times();
    return std::move(result_);
  }

 private:
  void check_may_be_placed(const ImportedModel& model) const {
    if (model.flow) refuse_places("has values that are more than tensors of fixed shapes", "devices run");
    if (model.symbols.empty() && model.graph.symbols.empty()) return;
    if (const std::string kind = place_of_fixed_sizes(options_.compile); !kind.empty())
      refuse_places("has sizes that are open", fmt::format("'{}' runs", kind));
  }

  // The steps down to a naive program; empty when the graph alone was asked for, which is in `graphs_` then.
  std::optional<Program> lower(Graph graph, const DriverOptions& options) {
    Pipeline pipeline(options, decides_, runner_, applications_);
    graph = pipeline.simplify(std::move(graph));
    if (options_.emit != Emit::kGraph) return pipeline.lower(graph);
    graphs_.push_back(std::move(graph));
    return {};
  }

  // The same for a few sizes of one model, with the same decisions for all of them.
  auto lower_each_size() {
    return [this, before = applications_](Graph graph, const std::set<std::string>& left_out) {
      applications_ = before;
      DriverOptions fewer = options_;
      fewer.compile.disabled_passes.insert(left_out.begin(), left_out.end());
      return *lower(std::move(graph), fewer);
    };
  }

  // And from there to a planned one. Where a text of it was asked for, that stands in the result.
  std::optional<Program> plan(std::optional<Program> program) {
    if (!program) return {};
    program = Pipeline(options_, decides_, runner_, applications_).schedule_and_plan(std::move(*program));
    if (options_.emit == Emit::kLoop) result_.text += kernels_text(*program);
    if (options_.emit == Emit::kProgram) result_.text += print(*program, {.elide_constants = true});
    return program;
  }

  std::optional<Program> program_of_graph(ImportedModel& model) {
    std::optional<Program> program = model.symbols.empty() || options_.emit == Emit::kGraph
                                         ? lower(std::move(model.graph), options_)
                                         : program_of_samples(model);
    if (options_.emit == Emit::kGraph) result_.text = print(graphs_[0], {.elide_constants = true});
    return plan(std::move(program));
  }

  // One program for a range of sizes, of those for some of them. Empty where a flow does instead.
  std::optional<Program> program_of_samples(ImportedModel& model) {
    auto found = program_of_sizes(model, lower_each_size());
    if (auto* sized = std::get_if<SizedProgram>(&found)) {
      result_.info.sizes = to_string(sized->evidence);
      return std::move(sized->program);
    }
    const auto& refused = std::get<SizesRefused>(found);
    if (!refused.flow_may_do || !model.as_flow) throw UserError(refused.diagnostic);
    auto flow = model.as_flow();
    auto* made = std::get_if<ImportedModel>(&flow);
    if (!made) throw UserError(refused.diagnostic);
    if (made->flow && made->flow->why.reason.empty())
      *made = as_flow_because(std::move(*made), {refused.diagnostic.node, refused.diagnostic.message});
    flow_instead_ = std::move(*made);
    return {};
  }

  // The programs of the flow's pieces as one.
  std::optional<Program> program_of_flow(const std::shared_ptr<const Flow>& model) {
    const Flow& flow = *model;
    std::vector<Program> pieces;
    for (int32_t number = 0; number < std::ssize(flow.pieces); ++number) {
      const bool open = options_.emit != Emit::kGraph && flow.open.contains(number);
      std::optional<Program> piece = open ? program_of_piece(flow, number, lower_each_size())
                                          : lower(flow.pieces[static_cast<size_t>(number)], options_);
      if ((piece = plan(std::move(piece)))) pieces.push_back(std::move(*piece));
    }
    if (options_.emit == Emit::kGraph) {
      Flow optimized = flow;
      optimized.pieces = std::move(graphs_);
      result_.text = print(optimized, true);
      return {};
    }
    return runner_.run(kJoinPieces, [&] { return join_pieces(model, std::move(pieces)); });
  }

  void print_c(const Program& program) {
    CSource c = runner_.time(kCodegen, [&] {
      return generate_c(program, {options_.c_name.empty() ? program.name : options_.c_name, result_.info.producer});
    });
    result_.header = std::move(c.header);
    result_.text = std::move(c.source);
  }

  // Modules and programs are ELF files, which no engine of WebAssembly reads; and the other way round.
  void check_has_form() const {
    const bool for_wasm = is_wasm(target_);
    const bool is_module = options_.emit == Emit::kModule || options_.emit == Emit::kExecutable;
    if (for_wasm ? !is_module : options_.emit != Emit::kWasm) return;
    throw UserError({.id = "TSR-4079",
                     .message = for_wasm ? "there are no modules for WebAssembly in the run time's form"
                                         : fmt::format("--emit wasm: '{}' is another target", options_.compile.target),
                     .node = {},
                     .legal = for_wasm ? "--emit wasm" : "--target wasm32, or none",
                     .hint = {}});
  }

  // Machine code, and the parts of a module.
  void generate(Program program) {
    if (options_.emit == Emit::kCSource) return print_c(program);
    if (options_.emit == Emit::kGpuSource) {
      result_.text = runner_.time(kCodegen, [&] { return gpu_source(program, options_.compile); });
      return;
    }
    check_has_form();
    CodegenOptions codegen;
    const bool keep_all = !options_.runner.save_temps.empty();
    // At -O0 there is nothing to leave out.
    const bool optimised = Pipeline(options_, decides_, runner_, applications_).may_optimize_code(program);
    codegen.opt_level = optimised ? options_.compile.opt_level : 0;
    codegen.module_name = result_.info.model_name;
    if (numerics_of(options_.compile) == NumericsMode::kDeterministic) codegen.bits_of = &decides_;
    if (options_.emit == Emit::kWasm) {
      result_.code = runner_.time(kCodegen, [&] { return wasm_file(program, target_, codegen, result_.info); });
      return;
    }
    codegen.want_ir = keep_all || options_.emit == Emit::kLlvm;
    codegen.want_asm = keep_all || options_.emit == Emit::kAsm;
    const ObjectCode object = runner_.time(kCodegen, [&] { return generate_llvm(program, target_, codegen); });
    if (keep_all) {
      runner_.save("module.ll", object.llvm_ir);
      runner_.save("module.s", object.assembly);
      runner_.save("module.o", {reinterpret_cast<const char*>(object.object.data()), object.object.size()});
    }
    switch (options_.emit) {
      case Emit::kLlvm: result_.text = object.llvm_ir; return;
      case Emit::kAsm: result_.text = object.assembly; return;
      case Emit::kObj: result_.code = object.object; return;
      default: break;
    }
    std::vector<ObjectCode> variants;
    if (const std::vector<VariantTarget> targets = variant_targets(options_.compile, target_); !targets.empty())
      variants = runner_.time(kCodegen, [&] { return variant_code(program, decides_, codegen, targets); });
    BuiltModule built =
        runner_.time(kLink, [&] { return link_module(object, std::move(program), target_, codegen, variants); });
    result_.code = std::move(built.code);
    result_.images = std::move(built.images);
    result_.program = std::move(built.program);
  }

  const DriverOptions options_;
  PassRunner& runner_;
  const Target target_, decides_;
  int64_t applications_ = 0;
  Compiled result_;
  std::vector<Graph> graphs_;  // what Emit::kGraph asks for
  std::optional<ImportedModel> flow_instead_;
};

// A graph with symbols as it is; where a pass does not know how to go on with an expression, at samples of the sizes.
Compiled compile_symbols(ImportedModel model, const DriverOptions& options, PassRunner& runner) {
  const std::function<ImportedModel()> at_samples = std::exchange(model.at_samples, nullptr);
  const bool open = std::any_of(model.graph.symbols.begin(), model.graph.symbols.end(),
                                [](const SymbolRange& symbol) { return !symbol.is_data(); });
  NoGraph why;
  try {
    Compiled compiled = Compile(options, runner).run(std::move(model));
    if (open) compiled.info.sizes = "proved at all, by shapes that are expressions";
    return compiled;
  } catch (const SymbolicShapeError& error) {
    why = {error.diagnostic().node, error.diagnostic().message};
  }
  options.observers.tell(&Observer::remarked, not_symbolic(why));
  return Compile(options, runner).run(with_reason(at_samples(), why));
}

// The options with what their decisions say of the whole model.
DriverOptions with_graph_choice(const ImportedModel& model, const DriverOptions& options) {
  DriverOptions chosen = options;
  if (model.flow || !model.symbols.empty() || !model.graph.symbols.empty()) return chosen;
  const auto graph = options.decisions->choose_graph([&] { return model_hash_of(model.graph, options); });
  if (!graph) return chosen;
  options.observers.tell(&Observer::graph_chosen, *graph);
  chosen.graph_choice = graph->choice;
  return chosen;
}

}  // namespace

Compiled compile_imported(ImportedModel model, const DriverOptions& options, PassRunner& runner) {
  check_options(options);
  const DriverOptions chosen = with_graph_choice(model, options);
  if (model.at_samples && options.emit != Emit::kGraph) return compile_symbols(std::move(model), chosen, runner);
  return Compile(chosen, runner).run(std::move(model));
}

Compiled compile_graph(Graph graph, const DriverOptions& options, PassRunner& runner) {
  return compile_imported({std::move(graph), nullptr}, options, runner);
}

std::string model_hash_of(const Graph& graph, const DriverOptions& options) {
  DriverOptions plain = options;
  plain.emit = Emit::kModule;
  plain.observers = {};
  plain.graph_choice = {};
  plain.max_applications = INT64_MAX;
  const DriverOptions nobody;
  PassRunner unwatched(nobody);
  int64_t applications = 0;
  const Target decides = deciding_target(options.compile);
  Pipeline pipeline(plain, decides, unwatched, applications);
  const Program program = pipeline.lower(pipeline.simplify(graph));
  Hasher hasher;
  hasher.add(model_hash(program));
  hasher.add(static_cast<uint64_t>(options.compile.opt_level));
  for (const std::string& pass : options.compile.disabled_passes) hasher.add(pass);
  for (const std::string& kernel : options.compile.kernels) hasher.add(kernel);
  for (const std::string& place : places_of(options.compile)) hasher.add(place);
  return fmt::format("{:016x}", hasher.value());
}

Compiled compile_model(const std::string& path, const DriverOptions& options) {
  PassRunner runner(options);
  return compile_imported(read_model(path, options, runner), options, runner);
}

Compiled compile_model(const ModelBytes& model, const DriverOptions& options) {
  PassRunner runner(options);
  return compile_imported(read_model(model, options, runner), options, runner);
}

void write_module(const Compiled& compiled, const std::string& path) {
  write_module_file(path, {compiled.code, compiled.program, compiled.info, compiled.images});
}

void write_program(const Compiled& compiled, const std::string& path) {
  write_executable(path, {compiled.code, compiled.program, compiled.info, compiled.images});
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

}  // namespace tessera::inline driver
