#include "driver/training/learner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "driver/compile.h"
#include "driver/engine/compiled_evaluator.h"
#include "driver/engine/native_model.h"
#include "driver/model_file.h"
#include "driver/open_sizes.h"
#include "driver/quantization.h"
#include "driver/read_model.h"
#include "graph/printer.h"
#include "import/onnx/onnx_import.h"
#include "import/onnx/write/onnx_export.h"
#include "ops/op_table.h"
#include "ops/op_util.h"
#include "package/atomic_file.h"
#include "support/error.h"
#include "train/fake_quantization.h"
#include "train/not_finite.h"
#include "train/weights.h"
#include "types/collective.h"

namespace tessera::inline driver {

namespace {

// The options with a value for the first open dimension of the first input, the batch, where there is none.
// Answers the dimension's name; empty: it is not open, or the user chose.
std::string set_batch(const std::string& path, DimBounds batch, CompileOptions& options) {
  const auto declared = declarations_of_file(path);
  if (!declared || declared->inputs.empty() || declared->inputs[0].dims.empty()) return "";
  const DeclaredTensor& input = declared->inputs[0];
  if (input.dims[0].value >= 0) return "";
  const std::string name = input.dim_name(0);
  if (options.dims.count(name) || options.shapes.count(input.name)) return "";
  options.dims[name] = batch;
  return name;
}

DriverOptions reading_options(const TrainingRequest& request) {
  DriverOptions options = request.driver;
  options.for_training = true;
  return options;
}

QuantizeOptions quantisation_of(const TrainingRequest& request) {
  QuantizeOptions options;
  options.weight_bits = request.settings.qat_bits;
  return options;
}

ImportedModel finished(ImportedModel model, const Finish& finish) {
  model.graph = finish(model.graph);
  if (model.at)
    model.at = [at = model.at, finish](const std::vector<int64_t>& sizes) -> GraphOrRefusal {
      GraphOrRefusal read = at(sizes);
      if (Graph* graph = std::get_if<Graph>(&read)) return finish(*graph);
      return read;
    };
  if (model.at_samples) model.at_samples = [samples = model.at_samples, finish] { return finished(samples(), finish); };
  model.as_flow = nullptr;
  return model;
}

bool has_collectives(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [](const Node& node) {
    return find_collective_kind(node.op->name) ||
           std::any_of(node.regions.begin(), node.regions.end(), [](const GraphPtr& r) { return has_collectives(*r); });
  });
}

}  // namespace

Graph read_graph(const std::string& path, const TrainingRequest& request, int64_t batch) {
  const DriverOptions nobody;
  PassRunner unwatched(nobody);
  DriverOptions options = reading_options(request);
  set_batch(path, {batch, batch, 1}, options.compile);
  ImportedModel model = read_model(path, options, unwatched);
  refuse_ranges(model, "train");
  return graph_alone(std::move(model));
}

Graph learner(const Graph& graph, const TrainingRequest& request) {
  if (!request.settings.qat) return with_own_statistics(graph, standard_ops());
  DriverOptions options = request.driver;
  return with_own_statistics(quantizable(graph, options), standard_ops());
}

Graph with_fake_integers(const Graph& learner, const TrainingRequest& request) {
  return request.settings.qat ? with_fake_quantization(learner, quantisation_of(request), standard_ops()) : learner;
}

DriverOptions options_of_graph(const TrainingRequest& request) {
  DriverOptions options = request.driver;
  options.compile.dims.clear();
  options.compile.shapes.clear();
  return options;
}

Compiled compiled_code(Graph graph, const TrainingRequest& request) {
  DriverOptions options = options_of_graph(request);
  if (request.communicator != "mpi" && has_collectives(graph))
    options.compile.places.push_back("*=" + request.communicator);
  options.emit = Emit::kModule;
  PassRunner runner(options);
  return compile_graph(std::move(graph), options, runner);
}

std::unique_ptr<Model> loaded(const Compiled& code, const TrainingRequest& request) {
  return load_module(module_in_memory(code), code.program.name, request.driver.compile.num_threads);
}

std::string cause_of(const Graph& step, const std::vector<Tensor>& inputs, const TrainingRequest& request) {
  for (size_t i = 0; i < inputs.size(); ++i)
    if (is_real(inputs[i].dtype()))
      for (int64_t e = 0; e < inputs[i].num_elements(); ++e)
        if (const double number = inputs[i].get_double(e); !std::isfinite(number))
          return fmt::format("'{}' has {} before the step", step.value(step.inputs[i]).name, number);
  const DriverOptions options = options_of_graph(request);
  try {
    const FiniteProbe probe = finite_probe(step, standard_ops());
    CompiledEvaluator evaluator(options, 1);
    std::vector<int64_t> found;
    for (const Tensor& answer : evaluator.evaluate(probe.graph, inputs)) found.push_back(answer.get_int(0));
    return first_not_finite(step, probe, found);
  } catch (const UserError&) {
    return "";  // the loss is what there is to tell of
  }
}

Finish finish_of(const TrainingRequest& request, const Model& step, const WholeStates& states, const Pruner& pruner,
                 const std::vector<std::string>& names) {
  std::vector<std::string> weights, ranges;
  std::vector<TensorPtr> values, range_values;
  for (size_t i = 0; i < names.size(); ++i) {
    const bool is_range = request.settings.qat && states.info(i).dims.empty();
    (is_range ? ranges : weights).push_back(names[i]);
    (is_range ? range_values : values).push_back(std::make_shared<const Tensor>(states.get(i)));
  }
  return [=, &request, &step, &pruner](const Graph& graph) {
    Graph learnt = with_constants(learner(without_dropouts(graph), request), weights, values);
    learnt = pruner.cut(learnt, step);
    if (request.settings.qat)
      learnt = with_integers(learnt, ranges, range_values, quantisation_of(request), standard_ops());
    return with_shared_constants(learnt, standard_ops());
  };
}

namespace {

Compiled compiled_as_written(const TrainingRequest& request, const Finish& finish) {
  DriverOptions options = reading_options(request);
  PassRunner runner(options);
  set_batch(request.model, {1, request.settings.batch, 1}, options.compile);
  options.emit = Emit::kModule;
  return compile_imported(finished(read_model(request.model, options, runner), finish), options, runner);
}

}  // namespace

Graph finished_graph(const TrainingRequest& request, const Finish& finish) {
  DriverOptions options = reading_options(request);
  PassRunner runner(options);
  set_batch(request.model, {1, request.settings.batch, 1}, options.compile);
  const ImportedModel model = read_model(request.model, options, runner);
  if (!model.flow && model.symbols.empty()) return finish(model.graph);
  return finish(read_graph(request.model, request, request.settings.batch));
}

AnonymousFile finished_module(const TrainingRequest& request, const Finish& finish) {
  return module_in_memory(compiled_as_written(request, finish));
}

void write_trained(const TrainingRequest& request, const Finish& finish) {
  if (request.output.ends_with(".graph"))
    return write_file(request.output, "output", print(finished_graph(request, finish)));
  if (!request.output.ends_with(".onnx")) return write_module(compiled_as_written(request, finish), request.output);
  try {
    return export_onnx_file(finished_graph(request, finish), request.output);
  } catch (const NoOnnxForm&) {  // of open sizes
  }
  export_onnx_file(finish(read_graph(request.model, request, request.settings.batch)), request.output);
}

}  // namespace tessera::inline driver
