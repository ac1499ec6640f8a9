#include "driver/analysis/explain.h"

#include <memory>

#include <fmt/format.h>

#include "driver/compile.h"
#include "driver/formats.h"
#include "driver/graph_reader.h"
#include "driver/model_file.h"
#include "support/error.h"
#include "support/mapped_file.h"

namespace tessera::inline driver {

namespace {

// Schedules of tuning records that a kernel does not take, at each of its calls.
void say_refused_records(const Program& program, Remarks& remarks) {
  for (const KernelCall& call : program.calls)
    if (const std::string& reason = program.kernels[static_cast<size_t>(call.kernel)].refused_tuning; !reason.empty())
      remarks.refused("tuned", call.loc, reason);
}

// A model that is read, with its nodes as whoever made it knows them.
struct OutlinedModel {
  ModelReader reader;
  ModelOutline outline;
};

OutlinedModel open_outlined(const std::string& path) {
  const ModelSource source{path, {}};
  OutlinedModel opened;
  if (is_graph_without_onnx(path)) {
    const auto graph = std::make_shared<const Graph>(with_locations(graph_of_file(path)));
    opened = {looks_like_graph_file(path) ? reader_of_graph(graph) : format_of(source).open(source), outline_of(*graph)};
  } else {
    opened = {format_of(source).open(source), outline_of(statistics_of_file(path))};
  }
  opened.outline.name = source.name();
  return opened;
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
  OutlinedModel opened = open_outlined(path);
  result.model = std::move(opened.outline);

  std::set<std::string> labels;
  for (const OutlineNode& node : result.model.nodes) labels.insert(node.label);
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
  PassRunner runner(options.runner);
  const Compiled compiled =
      compile_imported(read_model(opened.reader, result.model.name, options, runner), options, runner);
  say_refused_records(program, remarks);
  result.explanation = explain(result.model, trail, program, remarks,
                               {deciding_target(options.compile), options.compile.opt_level,
                                options.compile.disabled_passes, rule_numerics(options.compile)});
  result.explanation.sizes = compiled.info.sizes;
  result.explanation.flow = compiled.flow;
  return result;
}

}  // namespace tessera::inline driver
