// include/tessera/compiler.h on top of the driver.
#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "driver/api/api_support.h"
#include "driver/api/api_values.h"
#include "driver/compile.h"
#include "driver/engine/interpreted_model.h"
#include "driver/open_sizes.h"
#include "support/error.h"
#include "tessera/compiler.h"

namespace tessera {

namespace {

DriverOptions driver_options(const CompileOptions& options) {
  DriverOptions driver;
  driver.compile = options;
  return driver;
}

template <typename Source>
std::unique_ptr<Model> interpret(const Source& source, const std::string& name, const CompileOptions& options) {
  const DriverOptions driver = driver_options(options);
  PassRunner runner(driver.runner);
  refuse_ranges(options, "the interpreter");
  ImportedModel model = read_model(source, driver, runner);
  return model.flow ? interpret_flow(*model.flow, name) : interpret_graph(std::move(model.graph), name);
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
  translate_errors([&] { write_module(compile_model(model_path, driver_options(options)), module_path); });
}

void compile_file(const ModelBytes& model, const std::string& module_path, const CompileOptions& options) {
  translate_errors([&] { write_module(compile_model(model, driver_options(options)), module_path); });
}

std::vector<std::byte> compile_to_memory(const std::string& model_path, const CompileOptions& options) {
  return translate_errors(
      [&] { return module_in_memory(compile_model(model_path, driver_options(options))).contents(); });
}

std::vector<std::byte> compile_to_memory(const ModelBytes& model, const CompileOptions& options) {
  return translate_errors([&] { return module_in_memory(compile_model(model, driver_options(options))).contents(); });
}

struct Interpreter::State {
  explicit State(std::unique_ptr<Model> interpreted) : model(std::move(interpreted)) {
    for (const TensorInfo& info : model->inputs()) input_values.push_back(api_info_of(info));
    for (const TensorInfo& info : model->outputs()) output_values.push_back(api_info_of(info));
    if (model->has_values()) return;
    inputs = public_infos(model->inputs());
    outputs = public_infos(model->outputs());
  }

  std::unique_ptr<Model> model;
  // Names are those of `model`.
  std::vector<tessera_tensor_info> inputs, outputs;
  std::vector<tessera_value_info> input_values, output_values;
};

Interpreter::Interpreter(const std::string& model_path, const CompileOptions& options)
    : state_(translate_errors([&] { return std::make_unique<State>(interpret(model_path, model_path, options)); })) {}

Interpreter::Interpreter(const ModelBytes& model, const CompileOptions& options)
    : state_(translate_errors([&] { return std::make_unique<State>(interpret(model, model.name, options)); })) {}

Interpreter::~Interpreter() = default;
Interpreter::Interpreter(Interpreter&& other) noexcept = default;
Interpreter& Interpreter::operator=(Interpreter&& other) noexcept = default;

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
