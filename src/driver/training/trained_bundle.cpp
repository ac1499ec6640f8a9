#include "driver/training/trained_bundle.h"

#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "driver/compile.h"
#include "graph/parser.h"
#include "graph/printer.h"
#include "ops/op_table.h"
#include "package/bundle.h"
#include "package/safetensors.h"
#include "runtime/core/digest.h"
#include "runtime/core/module_file.h"
#include "support/error.h"
#include "support/refuse.h"
#include "train/weights.h"

namespace tessera::inline driver {

namespace {

constexpr char kModel[] = "model.graph";

AnonymousFile compiled_step(Graph step, const WholeStates& states, const TrainingRequest& request) {
  std::vector<State> valued;
  for (size_t i = 0; i < step.states.size(); ++i)
    valued.push_back({step.states[i].name, std::make_shared<const Tensor>(states.get(i))});
  step.states = std::move(valued);
  DriverOptions options = options_of_graph(request);
  options.emit = Emit::kModule;
  PassRunner runner(options);
  return module_in_memory(compile_graph(std::move(step), options, runner));
}

[[noreturn]] void refuse_bundle(const std::string& what) {
  refuse("TSR-6104", what, "a file that `tessera train --with-step` wrote");
}

// Its module called "infer", whose states are what the model has learnt.
class OpenBundle {
 public:
  explicit OpenBundle(const std::string& path) {
    tessera_error error = {};
    if (file_.open_path(path.c_str(), nullptr, true, &error) != TESSERA_OK) refuse_bundle(error.message);
  }
  ~OpenBundle() { file_.close(); }
  OpenBundle(const OpenBundle&) = delete;
  OpenBundle& operator=(const OpenBundle&) = delete;

  std::string_view model() const {
    for (uint64_t i = 0; i < file_.bundle.num_entries; ++i) {
      const tsr_bundle_entry& entry = file_.bundle.entries[i];
      if (entry.kind != TSR_ENTRY_DATA || entry.name != std::string_view(kModel)) continue;
      const uint8_t* const data = file_.mapped + entry.offset;
      if (module_digest(data, entry.size) != entry.digest)
        refuse_bundle(fmt::format("'{}' is damaged: its model does not match its digest", file_.name));
      return {reinterpret_cast<const char*>(data), entry.size};
    }
    refuse_bundle(fmt::format("'{}' has no model beside its modules", file_.name));
  }

  NamedTensors states() const {
    NamedTensors found;
    for (uint32_t i = 0; i < file_.descriptor->num_states; ++i) {
      const tsr_state_descr& state = file_.states()[i];
      const std::vector<int64_t> dims(state.tensor.dims, state.tensor.dims + state.tensor.rank);
      Tensor tensor(static_cast<DType>(state.tensor.dtype), dims);
      if (state.initial != TSR_NO_INITIAL)
        std::memcpy(tensor.mutable_bytes(), file_.weights() + state.initial, static_cast<size_t>(tensor.num_bytes()));
      found.tensors.emplace_back(file_.text(state.tensor.name), std::move(tensor));
    }
    return found;
  }

 private:
  ModuleFile file_;
};

const Tensor* named(const NamedTensors& tensors, const std::string& name) {
  for (const auto& [other, tensor] : tensors.tensors)
    if (other == name) return &tensor;
  return nullptr;
}

}  // namespace

void write_bundle(const TrainingRequest& request, const Graph& step, const WholeStates& states,
                  const std::vector<std::string>& learnt) {
  const auto with_values = [&](const Graph& graph) {
    const Graph plain = with_shared_constants(learner(without_dropouts(graph), request), standard_ops());
    Graph model = with_states(with_fake_integers(plain, request), learnt);
    for (size_t i = 0; i < learnt.size(); ++i) {
      State& state = model.states[model.states.size() - learnt.size() + i];
      check(state.name == learnt[i], "states in their order");
      state.initial = std::make_shared<const Tensor>(states.get(i));
    }
    return model;
  };
  Graph model = finished_graph(request, with_values);
  for (State& state : model.states) state.initial = nullptr;
  std::vector<BundlePart> parts;
  parts.push_back({"infer", finished_module(request, with_values), {}});
  parts.push_back({"step", compiled_step(step, states, request), {}});
  parts.push_back({kModel, std::nullopt, print(model)});
  write_bundle_file(request.output, parts);
}

Graph stripped(const std::string& path, const std::string& checkpoint) {
  const OpenBundle bundle(path);
  const Graph model = parse_graph(bundle.model(), standard_ops(), path);
  const NamedTensors values = checkpoint.empty() ? bundle.states() : read_safetensors(checkpoint);
  std::vector<TensorPtr> constants;
  for (size_t i = 0; i < model.states.size(); ++i) {
    const TensorType& type = model.type(model.inputs[model.num_own_inputs() + i]);
    const Tensor* value = named(values, model.states[i].name);
    if (!value || value->dtype() != type.dtype || value->dims() != type.dims())
      refuse("TSR-6234",
             fmt::format("'{}' has no '{}' of type {}", checkpoint.empty() ? path : checkpoint, model.states[i].name,
                         type.to_string()),
             "a checkpoint of this model");
    constants.push_back(std::make_shared<const Tensor>(*value));
  }
  return without_states(model, constants, standard_ops());
}

}  // namespace tessera::inline driver
