#include "driver/analysis/explain.h"

#include <filesystem>

#include <fmt/format.h>

#include "driver/compile.h"
#include "driver/engine/open_model.h"
#include "import/onnx/write/onnx_export.h"
#include "support/error.h"

namespace tessera::inline driver {

namespace {

// Schedules of tuning records that a kernel does not take, at each of its calls.
void say_refused_records(const Program& program, Remarks& remarks) {
  constexpr std::string_view kTuned = "tuned";
  for (const KernelCall& call : program.calls)
    for (const std::string& reason : program.kernels[static_cast<size_t>(call.kernel)].refused)
      if (reason.starts_with(kTuned))
        remarks.refused(std::string(kTuned), call.loc, reason.substr(reason.find(' ') + 1));
}

// Of a model whose dimensions have their values.
DriverOptions without_dims(DriverOptions options) {
  options.compile.dims.clear();
  options.compile.shapes.clear();
  return options;
}

}  // namespace

ModelExplanation explain_model(const std::string& path, DriverOptions options) {
  check_options(options);
  if (looks_like_module(path)) {
    throw UserError({.id = "TSR-4041",
                     .message = fmt::format("'{}' is a compiled module, which no longer knows why it became so", path),
                     .node = {},
                     .legal = "a model",
                     .hint = "give the model that it was compiled from, or use 'tessera inspect' on the module"});
  }
  ModelExplanation result;
  // What is no ONNX model is explained as the one that says the same.
  const bool is_graph = looks_like_graph_file(path);
  const RunnerOptions nobody;
  PassRunner unwatched(nobody);
  const std::string bytes = is_graph ? export_onnx_bytes(import_model(path, options, unwatched)) : "";
  result.model = is_graph ? onnx_statistics_of_bytes(bytes) : read_onnx_statistics(path);
  result.model.graph_name = std::filesystem::path(path).stem();

  std::set<std::string> labels;
  for (const OnnxNodeEntry& node : result.model.nodes) labels.insert(node.label);
  NodeTrail trail(std::move(labels));
  Remarks remarks;
  Program program;
  options.emit = Emit::kProgram;
  options.remarks = &remarks;
  options.runner.on_graph = [&](std::string_view step, const Graph& graph) { trail.see(step, graph); };
  options.runner.on_program = [&, watched = options.runner.on_program](std::string_view step, const Program& seen) {
    if (watched) watched(step, seen);
    if (step == "plan_memory" || step == "join_pieces")
      program = seen;  // buffers, calls and definitions; constants are shared, not copied
  };
  const Compiled compiled =
      is_graph ? compile_model(ModelBytes{bytes, "", result.model.graph_name}, without_dims(options))
               : compile_model(path, options);
  say_refused_records(program, remarks);
  result.explanation =
      explain(result.model, trail, program, remarks,
              {resolve_target(options.compile), options.compile.opt_level, options.compile.disabled_passes});
  result.explanation.sizes = compiled.info.sizes;
  return result;
}

}  // namespace tessera::inline driver
