#include "driver/compile_options.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "codegen/llvm/target.h"
#include "driver/devices.h"
#include "driver/step_names.h"
#include "driver/variants.h"
#include "graph_passes/pass.h"
#include "loop/intrinsic.h"
#include "loop_passes/pass.h"
#include "program/pass.h"
#include "schedule/choose.h"
#include "support/error.h"
#include "support/nearest_names.h"
#include "target/wasm.h"
#include "tessera/tessera.h"

namespace tessera::inline driver {

namespace {

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

}  // namespace

namespace {

void add_layer_names(const Graph& graph, const std::string& around, std::set<std::string>& names) {
  for (const Node& node : graph.nodes()) {
    const std::string& own = node.loc.empty() ? around : node.loc;
    if (node.op->name == "conv" || node.op->name == "matmul" || node.op->name == "scaled_matmul") {
      names.insert(own);  // and those of nodes that were folded into it
      std::istringstream parts(own);
      for (std::string part; std::getline(parts, part, '+');) names.insert(part);
    }
    for (const GraphPtr& region : node.regions) add_layer_names(*region, own, names);
  }
}

}  // namespace

PrecisionPlan plan_of(const CompileOptions& options) {
  return {fmt::format("{}", fmt::join(options.layer_precisions, "\n")), "layer precisions"};
}

void check_layer_names(const PrecisionPlan& plan, const ImportedModel& model) {
  if (plan.empty()) return;
  std::set<std::string> found;
  add_layer_names(model.graph, "", found);
  if (model.flow)
    for (const Graph& piece : model.flow->pieces) add_layer_names(piece, "", found);
  const std::vector<std::string> names(found.begin(), found.end());
  for (const std::string& pattern : plan.unused(names))
    throw UserError({.id = "TSR-4088",
                     .message = fmt::format("'{}' is the name of no layer", pattern),
                     .node = {},
                     .legal = fmt::format("convolutions and products: {}", fmt::join(names, ", ")),
                     .hint = did_you_mean(pattern, names)});
}

DType precision_of(const CompileOptions& options) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kI8})
    if (options.precision == dtype_name(dtype)) return dtype;
  throw UserError({.id = "TSR-4027",
                   .message = fmt::format("there is no precision '{}'", options.precision),
                   .node = {},
                   .legal = "f32, bf16, f16, i8",
                   .hint = did_you_mean(options.precision, {"f32", "bf16", "f16", "i8"})});
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
  Target target = parse_target(host_target(options));
  target.num_threads = options.num_threads > 0 ? options.num_threads
                       : is_wasm(target)       ? 1  // it starts no thread
                                               : tessera_default_num_threads();
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
  const Target target = parse_target(host_target(options));
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
  if (!options.decisions->digest().empty())
    refuse("--db", "schedules that one machine found faster have no place, because sums follow the schedule,");
  if (const std::string gpu = place_of_other_sums(compile); mode == NumericsMode::kDeterministic && !gpu.empty())
    refuse("--target or --place " + gpu, "the sums of a GPU are taken in another order, which has no place");
  if (mode == NumericsMode::kStrict && compile.precision != "f32")
    refuse("--precision " + compile.precision, "a lower precision is another algorithm, which has no place");
  if (mode == NumericsMode::kStrict && plan_of(compile).narrows())
    refuse("--per-layer", "a lower precision is another algorithm, which has no place");
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
  plan_of(options.compile);
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
