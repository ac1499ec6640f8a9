#include "driver/analysis/diff.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "driver/compile.h"
#include "driver/engine/interpreted_model.h"
#include "driver/engine/native_model.h"
#include "driver/engine/open_model.h"
#include "driver/model_file.h"
#include "graph/op_def.h"
#include "graph/printer.h"
#include "import/onnx/read/tensor_proto.h"
#include "import/onnx/write/onnx_export.h"
#include "package/atomic_file.h"
#include "support/error.h"

namespace tessera::inline driver {

namespace {

// Values of the model's nodes that passes turned into constants, by name.
using FoldedValues = std::map<std::string, TensorPtr>;

class ModelValues : public ValueSource {
 public:
  ModelValues(std::unique_ptr<Model> model, std::vector<Tensor> inputs, FoldedValues folded = {})
      : model_(std::move(model)), folded_(std::move(folded)) {
    model_->bind(std::move(inputs));
    for (const auto& [name, value] : folded_) names_.push_back(name);
    for (std::string& name : model_->watchable())
      if (!folded_.count(name)) names_.push_back(std::move(name));
  }

  std::vector<std::string> names() const override { return names_; }

  void run(const std::set<std::string>& wanted, const See& see) override {
    for (const auto& [name, value] : folded_)
      if (wanted.count(name) && !see(name, *value)) return;
    model_->run_watched([&](const std::string& name) { return wanted.count(name) && !folded_.count(name); }, see);
  }

 private:
  std::unique_ptr<Model> model_;
  FoldedValues folded_;
  std::vector<std::string> names_;
};

// The constants of a graph after all passes.
FoldedValues folded_values(const Graph& graph) {
  FoldedValues folded;
  for (const Node& node : graph.nodes()) {
    if (node.op->kind != OpKind::kConstant) continue;
    const TensorPtr& value = node.attrs.get<TensorPtr>("value");
    if (value->dtype() != DType::kString) folded[graph.value(node.outputs[0]).name] = value;
  }
  return folded;
}

std::unique_ptr<ValueSource> open_compiled(const Graph& graph, const std::vector<Tensor>& inputs, DriverOptions options,
                                           int num_threads, const std::string& name) {
  FoldedValues folded;
  options.emit = Emit::kModule;
  const auto seen = options.runner.on_graph;
  options.runner.on_graph = [&](std::string_view step, const Graph& after) {
    folded = folded_values(after);
    if (seen) seen(step, after);
  };
  PassRunner runner(options.runner);
  const Compiled compiled = compile_graph(graph, options, runner);
  return std::make_unique<ModelValues>(load_module(module_in_memory(compiled), name, num_threads), inputs,
                                       std::move(folded));
}

std::unique_ptr<ValueSource> open_module(const DiffRequest& request, const DiffSubject& subject) {
  std::unique_ptr<Model> module = load_module(request.against, request.num_threads);
  const auto fail = [&](const std::string& found, const std::string& legal) {
    throw UserError({.id = "TSR-4045",
                     .message = fmt::format("module '{}' {}", request.against, found),
                     .node = {},
                     .legal = legal,
                     .hint = "compile it from the same model, or from an earlier version of it"});
  };
  const std::vector<TensorInfo>& infos = module->inputs();
  if (infos.size() != subject.inputs.size())
    fail(fmt::format("has {} inputs", infos.size()), fmt::format("the model's {} inputs", subject.inputs.size()));
  std::vector<Tensor> inputs;
  for (const TensorInfo& info : infos) {
    const auto same = std::find_if(subject.inputs.begin(), subject.inputs.end(),
                                   [&](const TensorInfo& input) { return input.name == info.name; });
    if (same == subject.inputs.end() || same->dtype != info.dtype || (info.is_static() && same->dims != info.dims))
      fail(fmt::format("has an input '{}' of type {}", info.name, info.type_text()), "the model's own inputs");
    inputs.push_back(subject.tensors[static_cast<size_t>(same - subject.inputs.begin())]);
  }
  return std::make_unique<ModelValues>(std::move(module), std::move(inputs));
}

// By label, what the operators of an ONNX file are called; none for graphs, which have their own names.
std::map<std::string, std::string> op_types_of(const std::string& model) {
  std::map<std::string, std::string> types;
  if (is_graph_without_onnx(model)) return types;
  for (const OnnxNodeEntry& node : statistics_of_file(model).nodes) types[node.label] = node.op_type;
  return types;
}

void check_against(const std::string& against) {
  if (against == "interp" || against == "O0" || against == "onnxruntime") return;
  if (looks_like_module(against) || against.ends_with(".so")) return;
  throw UserError({.id = "TSR-4045",
                   .message = fmt::format("--against '{}' is nothing to compare with", against),
                   .node = {},
                   .legal = "interp, onnxruntime, O0, or the path of a module",
                   .hint = {}});
}

}  // namespace

DiffSubject open_subject(const DiffRequest& request) {
  check_against(request.against);
  if (looks_like_module(request.model)) {
    throw UserError({.id = "TSR-4043",
                     .message = fmt::format("'{}' is a compiled module", request.model),
                     .node = {},
                     .legal = "a model",
                     .hint = "give the model that the module was compiled from; a module can be what it is compared "
                             "with: --against MODULE.so"});
  }
  PassRunner runner(request.driver.runner);
  Graph graph = import_model(request.model, request.driver, runner);
  Graph call = graph;
  call.states.clear();
  DiffSubject subject{std::move(graph), {}, {}, GraphParts(std::move(call), op_types_of(request.model)), {}, {}};
  const std::unique_ptr<Model> interpreted = interpret_graph(subject.graph, request.model);
  subject.inputs = interpreted->inputs();
  subject.tensors = fitting_inputs(subject.inputs, request.make_inputs(subject.inputs));
  subject.part_tensors = subject.tensors;
  for (size_t i = 0; i < subject.graph.states.size(); ++i) {
    const TensorType& type = subject.graph.type(subject.graph.state_input(i));
    const TensorPtr& initial = subject.graph.states[i].initial;
    subject.part_tensors.push_back(initial ? *initial : Tensor(type.dtype, type.dims()));
  }
  const std::vector<std::string> watchable = interpreted->watchable();
  const std::set<std::string> names(watchable.begin(), watchable.end());
  for (const Value& value : subject.graph.values()) {
    if (!names.count(value.name) || subject.parts.producer(value.name) < 0) continue;
    if (value.type.dtype == DType::kString) continue;
    std::vector<int64_t> dims;
    for (const Expr& dim : value.type.shape) dims.push_back(as_int(dim).value_or(-1));  // data decide it
    subject.values.push_back({value.name, value.type.dtype, std::move(dims)});
  }
  return subject;
}

std::unique_ptr<ValueSource> open_reference(const DiffRequest& request, const DiffSubject& subject) {
  if (request.against == "interp")
    return std::make_unique<ModelValues>(interpret_graph(subject.graph, request.model), subject.tensors);
  if (request.against == "O0") {
    DriverOptions options = request.driver;
    options.compile.opt_level = 0;
    options.compile.disabled_passes.clear();
    options.runner.save_temps.clear();
    return open_compiled(subject.graph, subject.tensors, options, request.num_threads, request.model);
  }
  if (request.against == "onnxruntime") {
    check(request.onnxruntime != nullptr, "nobody makes the reference of ONNX Runtime");
    return request.onnxruntime(subject);
  }
  return open_module(request, subject);
}

std::unique_ptr<ValueSource> open_tested(const DiffRequest& request, const DiffSubject& subject) {
  return open_compiled(subject.graph, subject.tensors, request.driver, request.num_threads, request.model);
}

std::vector<Tensor> run_compiled(const Graph& part, const std::vector<Tensor>& inputs, const DriverOptions& options,
                                 int num_threads) {
  DriverOptions quiet = options;
  quiet.emit = Emit::kModule;
  quiet.runner = {};
  quiet.runner.spoil_graph = options.runner.spoil_graph;
  quiet.runner.spoil_program = options.runner.spoil_program;
  PassRunner runner(quiet.runner);
  const Compiled compiled = compile_graph(part, quiet, runner);
  const std::unique_ptr<Model> model = load_module(module_in_memory(compiled), "part", num_threads);
  model->bind(inputs);
  model->run();
  return model->results();
}

std::vector<Tensor> run_interpreted(const Graph& part, const std::vector<Tensor>& inputs) {
  const std::unique_ptr<Model> model = interpret_graph(part, "part");
  model->bind(inputs);
  model->run();
  return model->results();
}

Difference diff_model(const DiffRequest& request) {
  const DiffSubject subject = open_subject(request);
  const std::unique_ptr<ValueSource> reference = open_reference(request, subject);
  return diff_subject(request, subject, *reference);
}

Difference diff_subject(const DiffRequest& request, const DiffSubject& subject, ValueSource& reference) {
  const std::unique_ptr<ValueSource> tested = open_tested(request, subject);
  FindOptions options = request.find;
  for (const TensorInfo& value : subject.values) options.cuts.insert(value.name);
  const PartRunners runners{[&](const Graph& part, const std::vector<Tensor>& inputs) {
                              return run_compiled(part, inputs, request.driver, request.num_threads);
                            },
                            run_interpreted};
  return find_difference(subject.parts, subject.part_tensors, reference, *tested, runners, options);
}

std::string write_case(const Reproduction& reproduction, const std::string& model, const std::string& folder,
                       CutFormat format) {
  namespace fs = std::filesystem;
  std::optional<std::string> onnx;
  if (format == CutFormat::kOnnx || (format == CutFormat::kLikeModel && !is_graph_without_onnx(model))) {
    try {
      onnx = export_onnx_bytes(reproduction.graph);
    } catch (const UserError&) {
      if (format == CutFormat::kOnnx) throw;  // control flow, or more than 2 GB
    }
  }
  const fs::path data = fs::path(folder) / "test_data_set_0";
  std::error_code error;
  fs::create_directories(data, error);
  if (error) {
    throw UserError({.id = "TSR-6103",
                     .message = fmt::format("folder '{}' cannot be made: {}", data.string(), error.message()),
                     .node = {},
                     .legal = "a folder that exists or can be made",
                     .hint = "give another folder to --output"});
  }
  // Files of an earlier case would be read with these.
  std::vector<fs::path> old;
  for (const auto& entry : fs::directory_iterator(data, error)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".pb") && (name.starts_with("input_") || name.starts_with("output_"))) old.push_back(entry);
  }
  for (const fs::path& path : old) fs::remove(path, error);
  const std::string name = onnx ? "model.onnx" : "model.graph";
  write_file((fs::path(folder) / name).string(), "model", onnx ? *onnx : print(reproduction.graph));
  fs::remove(fs::path(folder) / (onnx ? "model.graph" : "model.onnx"), error);
  const auto write = [&](const char* stem, const std::vector<Tensor>& tensors, const std::vector<std::string>& names) {
    for (size_t i = 0; i < tensors.size(); ++i)
      write_tensor_proto_file((data / fmt::format("{}_{}.pb", stem, i)).string(), tensors[i], names[i]);
  };
  write("input", reproduction.inputs, reproduction.part.inputs);
  write("output", reproduction.outputs, reproduction.part.outputs);
  return name;
}

}  // namespace tessera::inline driver
