#include "driver/explain.h"

#include <filesystem>

#include <fmt/format.h>

#include "driver/compile.h"
#include "driver/open_model.h"
#include "support/error.h"

namespace tessera {

ModelExplanation explain_model(const std::string& path, DriverOptions options) {
  check_options(options);
  if (looks_like_module(path)) {
    throw UserError({.id = "TSR-4041",
                     .message = fmt::format("'{}' is a compiled module, which no longer knows why it became so", path),
                     .node = {},
                     .legal = "an ONNX model",
                     .hint = "give the model that it was compiled from, or use 'tessera inspect' on the module"});
  }
  ModelExplanation result;
  result.model = read_onnx_statistics(path);
  result.model.graph_name = std::filesystem::path(path).stem();

  std::set<std::string> labels;
  for (const OnnxNodeEntry& node : result.model.nodes) labels.insert(node.label);
  NodeTrail trail(std::move(labels));
  Remarks remarks;
  Program program;
  options.emit = Emit::kProgram;
  options.remarks = &remarks;
  options.runner.on_graph = [&](std::string_view step, const Graph& graph) { trail.see(step, graph); };
  options.runner.on_program = [&](std::string_view step, const Program& seen) {
    if (step == "plan_memory" || step == "join_pieces")
      program = seen;  // buffers, calls and definitions; constants are shared, not copied
  };
  compile_model(path, options);
  result.explanation =
      explain(result.model, trail, program, remarks,
              {resolve_target(options.compile), options.compile.opt_level, options.compile.disabled_passes});
  return result;
}

}  // namespace tessera
