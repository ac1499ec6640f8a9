#include "import/onnx/read/model_states.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "support/error.h"

namespace tessera::inline onnx_import {
namespace {

template <typename List>
bool has(const List& list, const std::string& name) {
  return std::any_of(list.begin(), list.end(), [&](const auto& entry) { return entry.name() == name; });
}

}  // namespace

std::vector<ModelState> read_states(const onnx::ModelProto& model) {
  std::vector<ModelState> states;
  std::set<std::string> inputs, outputs;
  for (const onnx::StringStringEntryProto& entry : model.metadata_props()) {
    if (!entry.key().starts_with(kStateKey)) continue;
    ModelState state{entry.key().substr(kStateKey.size()), entry.value()};
    const char* missing = !has(model.graph().input(), state.input) || !inputs.insert(state.input).second ? "input"
                          : !has(model.graph().initializer(), state.input)                               ? "initializer"
                          : !has(model.graph().output(), state.output) || !outputs.insert(state.output).second
                              ? "output"
                              : nullptr;
    if (missing)
      throw UserError({"TSR-1016",
                       fmt::format("the metadata has a state '{}' with the output '{}', but it has no {} of its own",
                                   state.input, state.output, missing),
                       "", "an input with an initializer of its name, and an output", "remove the metadata's entry"});
    states.push_back(std::move(state));
  }
  return states;
}

std::set<std::string> read_size_values(const onnx::ModelProto& model) {
  std::set<std::string> names;
  for (const onnx::StringStringEntryProto& entry : model.metadata_props())
    if (entry.key().starts_with(kSizeKey)) names.insert(entry.key().substr(kSizeKey.size()));
  return names;
}

}  // namespace tessera::inline onnx_import
