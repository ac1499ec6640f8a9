#include "driver/analysis/explain.h"

#include <memory>

#include <fmt/format.h>

#include "driver/compile.h"
#include "driver/formats.h"
#include "driver/graph_reader.h"
#include "driver/model_file.h"
#include "driver/step_names.h"
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

// What a compile has to say for an explanation.
class ExplainObserver : public Observer {
 public:
  ExplainObserver(NodeTrail& trail, Remarks& remarks) : trail_(trail), remarks_(remarks) {}

  void graph_made(std::string_view step, const Graph& graph) override { trail_.see(step, graph); }
  void program_made(std::string_view step, const Program& seen) override {
    if (step == kPlanMemory || step == kJoinPieces)
      program = seen;  // buffers, calls and definitions; constants are shared, not copied
  }
  bool wants_remarks() const override { return true; }
  void remarked(const Remark& remark) override {
    if (remark.kind == Remark::Kind::kDone) remarks_.done(remark.pass, remark.node, remark.text, remark.other);
    else remarks_.refused(remark.pass, remark.node, remark.text, remark.other);
  }

  Program program;

 private:
  NodeTrail& trail_;
  Remarks& remarks_;
};

// A model that is read, with its nodes as whoever made it knows them.
struct OutlinedModel {
  ModelReader reader;
  ModelOutline outline;
};

OutlinedModel open_outlined(const std::string& path) {
  const ModelSource source{path, {}};
  OutlinedModel opened;
  if (looks_like_graph_file(path)) {
    const auto file = MappedFile::open(path, "model", "TSR-1001");
    const auto graph = std::make_shared<const Graph>(with_locations(read_graph_text(file->text(), path)));
    opened = {reader_of_graph(graph), outline_of(*graph)};
  } else if (is_onnx_file(path)) {
    opened = {format_of(source).open(source), outline_of(statistics_of_file(path))};
  } else {
    opened.reader = format_of(source).open(source);
    opened.outline = outline_of(graph_of_source(source));
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
  ExplainObserver seen(trail, remarks);
  options.emit = Emit::kProgram;
  options.observers.add(seen);
  PassRunner runner(options);
  const Compiled compiled =
      compile_imported(read_model(opened.reader, result.model.name, options, runner), options, runner);
  say_refused_records(seen.program, remarks);
  result.explanation = explain(result.model, trail, seen.program, remarks,
                               {deciding_target(options.compile), options.compile.opt_level,
                                options.compile.disabled_passes, rule_numerics(options.compile)});
  result.explanation.sizes = compiled.info.sizes;
  result.explanation.flow = compiled.flow;
  return result;
}

}  // namespace tessera::inline driver
