// include/tessera/compiler.h on top of the driver.
#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "driver/api/api_support.h"
#include "driver/api/api_values.h"
#include "driver/api/graph_access.h"
#include "driver/compile.h"
#include "driver/engine/interpreted_model.h"
#include "driver/engine/open_model.h"
#include "driver/engine/output_guard.h"
#include "driver/model_file.h"
#include "driver/open_sizes.h"
#include "import/gguf/gguf_import.h"
#include "support/error.h"
#include "support/mapped_file.h"
#include "tessera/compiler.h"
#include "tessera/graph.h"
#include "tessera/language_model.h"

namespace tessera {

namespace {

class CallersDecisions : public Decisions {
 public:
  explicit CallersDecisions(std::function<bool()> is_cancelled) : is_cancelled_(std::move(is_cancelled)) {}
  bool is_cancelled() override { return is_cancelled_(); }

 private:
  std::function<bool()> is_cancelled_;
};

DriverOptions driver_options(const CompileOptions& options) {
  DriverOptions driver;
  driver.compile = options;
  if (options.is_cancelled) driver.decisions = std::make_shared<CallersDecisions>(options.is_cancelled);
  return driver;
}

ImportedModel read(const std::string& path, const DriverOptions& options, PassRunner& runner) {
  return read_model(path, options, runner);
}
ImportedModel read(const ModelBytes& model, const DriverOptions& options, PassRunner& runner) {
  return read_model(model, options, runner);
}
ImportedModel read(const builder::Graph& graph, const DriverOptions& options, PassRunner& runner) {
  return read_model(reader_of(graph), graph.name(), options, runner);
}

template <typename Source>
Compiled compile(const Source& source, const CompileOptions& options) {
  const DriverOptions driver = driver_options(options);
  PassRunner runner(driver);
  return compile_imported(read(source, driver, runner), driver, runner);
}

template <typename Source>
std::unique_ptr<Model> interpret(const Source& source, const std::string& name, const CompileOptions& options) {
  const DriverOptions driver = driver_options(options);
  PassRunner runner(driver);
  refuse_ranges(options, "the interpreter");
  ImportedModel model = read(source, driver, runner);
  refuse_ranges(model, "the interpreter");
  return model.flow ? interpret_flow(*model.flow, name) : interpret_graph(std::move(model.graph), name);
}

template <typename Source>
builder::Graph graph_of(const Source& source, const CompileOptions& options) {
  const DriverOptions driver = driver_options(options);
  PassRunner runner(driver);
  ImportedModel model = read(source, driver, runner);
  if (!model.symbols.empty())
    refuse_ranges(model, "a graph of one's own");  // read at sizes; a graph has its own symbols
  return builder::GraphAccess::graph(graph_alone(std::move(model)));
}

ModelBorder border_of(const std::optional<ModelDeclarations>& declared, const std::string& what) {
  if (!declared)
    throw UserError(
        {"TSR-1002", fmt::format("{} is not a model", what), "", "an ONNX model, in JSON too, or a graph as text", ""});
  const auto tensors = [](const std::vector<DeclaredTensor>& list) {
    std::vector<ModelTensor> result;
    for (const DeclaredTensor& tensor : list) {
      ModelTensor& entry = result.emplace_back();
      entry.name = tensor.name;
      if (tensor.dtype) entry.dtype = static_cast<int32_t>(*tensor.dtype);
      entry.has_rank = tensor.has_rank;
      for (size_t axis = 0; axis < tensor.dims.size(); ++axis) {
        entry.dims.push_back(tensor.dims[axis].value);
        entry.dim_names.push_back(tensor.dims[axis].value < 0 ? tensor.dim_name(axis) : "");
      }
    }
    return result;
  };
  return {tensors(declared->inputs), tensors(declared->outputs)};
}

// With tensors of its own: those of a model may be its constants.
RunValue own_copy(const RunValue& value) {
  RunValue result(value.kind, {});
  for (const RunValue& item : value.items) result.items.push_back(own_copy(item));
  if (!value.is_tensor()) return result;
  result.tensor = value.tensor;
  if (value.tensor.dtype() == DType::kString) return result;
  result.tensor = Tensor(value.tensor.dtype(), value.tensor.dims());
  const auto bytes = static_cast<size_t>(value.tensor.num_bytes());
  if (bytes > 0) std::memcpy(result.tensor.mutable_bytes(), value.tensor.bytes(), bytes);
  return result;
}

}  // namespace

void compile_file(const std::string& model_path, const std::string& module_path, const CompileOptions& options) {
  translate_errors([&] {
    refuse_to_overwrite(module_path, files_of_model(model_path));
    write_module(compile(model_path, options), module_path);
  });
}

void compile_file(const ModelBytes& model, const std::string& module_path, const CompileOptions& options) {
  translate_errors([&] { write_module(compile(model, options), module_path); });
}

void compile_file(const builder::Graph& graph, const std::string& module_path, const CompileOptions& options) {
  translate_errors([&] { write_module(compile(graph, options), module_path); });
}

builder::Graph graph_of_model(const std::string& model_path, const CompileOptions& options) {
  return translate_errors([&] { return graph_of(model_path, options); });
}

builder::Graph graph_of_model(const ModelBytes& model, const CompileOptions& options) {
  return translate_errors([&] { return graph_of(model, options); });
}

std::vector<std::byte> compile_to_memory(const std::string& model_path, const CompileOptions& options) {
  return translate_errors([&] { return module_in_memory(compile(model_path, options)).contents(); });
}

std::vector<std::byte> compile_to_memory(const ModelBytes& model, const CompileOptions& options) {
  return translate_errors([&] { return module_in_memory(compile(model, options)).contents(); });
}

std::vector<std::byte> compile_to_memory(const builder::Graph& graph, const CompileOptions& options) {
  return translate_errors([&] { return module_in_memory(compile(graph, options)).contents(); });
}

ModelBorder read_border(const std::string& model_path) {
  return translate_errors([&] { return border_of(declarations_of_file(model_path), fmt::format("'{}'", model_path)); });
}

ModelBorder read_border(const ModelBytes& model) {
  return translate_errors([&] { return border_of(declarations_of({std::nullopt, model}), "the model"); });
}

std::string language_model_metadata(const std::string& model_path) {
  return translate_errors([&] {
    const auto file = MappedFile::open(model_path, "model", "TSR-1001");
    return metadata_json(GgufFile(file->text(), model_path));
  });
}

std::string compile_to_cache(const std::string& model_path, const CompileOptions& options) {
  return translate_errors(
      [&] { return cached_module(model_path, driver_options(options), [](const std::string&) {}); });
}

struct Interpreter::State {
  explicit State(std::unique_ptr<Model> interpreted) : model(std::move(interpreted)) {
    for (const TensorInfo& info : model->inputs()) input_values.push_back(api_info_of(info));
    for (const TensorInfo& info : model->outputs()) output_values.push_back(api_info_of(info));
    states = public_infos(model->states());
    if (model->has_values()) return;
    inputs = public_infos(model->inputs());
    outputs = public_infos(model->outputs());
  }

  std::unique_ptr<Model> model;
  // Names are those of `model`.
  std::vector<tessera_tensor_info> inputs, outputs, states;
  std::vector<tessera_value_info> input_values, output_values;
};

Interpreter::Interpreter(const std::string& model_path, const CompileOptions& options)
    : state_(translate_errors([&] { return std::make_unique<State>(interpret(model_path, model_path, options)); })) {}

Interpreter::Interpreter(const ModelBytes& model, const CompileOptions& options)
    : state_(translate_errors([&] { return std::make_unique<State>(interpret(model, model.name, options)); })) {}

Interpreter::Interpreter(const builder::Graph& graph, const CompileOptions& options)
    : state_(translate_errors([&] { return std::make_unique<State>(interpret(graph, graph.name(), options)); })) {}

Interpreter::~Interpreter() = default;
Interpreter::Interpreter(Interpreter&& other) noexcept = default;
Interpreter& Interpreter::operator=(Interpreter&& other) noexcept = default;

void Interpreter::cancel() { state_->model->cancel(); }
bool Interpreter::has_values() const { return state_->model->has_values(); }
const std::vector<tessera_tensor_info>& Interpreter::inputs() const { return state_->inputs; }
const std::vector<tessera_tensor_info>& Interpreter::outputs() const { return state_->outputs; }

const std::vector<tessera_value_info>& Interpreter::input_values() const { return state_->input_values; }
const std::vector<tessera_value_info>& Interpreter::output_values() const { return state_->output_values; }

void Interpreter::run(const std::vector<tessera_tensor>& inputs, const std::vector<tessera_tensor>& outputs) {
  translate_errors([&] {
    Model& model = *state_->model;
    if (model.has_values()) {
      throw UserError(
          {.id = "TSR-7043",
           .message = "the model has strings, sequences, optionals or maps, or shapes that only a run knows",
           .node = {},
           .legal = {},
           .hint = "run it with run_values"});
    }
    run_on(model, inputs, outputs);
  });
}

const std::vector<tessera_tensor_info>& Interpreter::states() const { return state_->states; }

void Interpreter::read_state(size_t index, const tessera_tensor& value) const {
  translate_errors([&] {
    const Tensor now = state_->model->state(index);
    require_fits_state(state_->model->states().at(index), borrow(value));
    std::memcpy(value.data, now.bytes(), static_cast<size_t>(now.num_bytes()));
  });
}

void Interpreter::write_state(size_t index, const tessera_tensor& value) {
  translate_errors([&] { state_->model->set_state(index, borrow(value)); });
}

void Interpreter::reset_states() { state_->model->reset_states(); }

std::vector<std::shared_ptr<const tessera_value>> Interpreter::run_values(
    const std::vector<const tessera_value*>& inputs) {
  return translate_errors([&] {
    Model& model = *state_->model;
    std::vector<RunValue> given;
    for (size_t i = 0; i < inputs.size(); ++i)
      given.push_back(from_api(inputs[i], i < model.inputs().size() ? model.inputs()[i].name : ""));
    model.bind_values(std::move(given));
    model.run();
    std::vector<std::shared_ptr<const tessera_value>> results;
    for (const RunValue& value : model.value_results()) {
      struct Kept {
        RunValue value;
        ApiValues values;
      };
      const auto kept = std::make_shared<Kept>(Kept{own_copy(value), {}});
      results.emplace_back(kept, kept->values.add(kept->value));
    }
    return results;
  });
}

}  // namespace tessera
