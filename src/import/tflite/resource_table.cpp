#include "import/tflite/resource_table.h"

#include <algorithm>

namespace tessera::inline tflite_import {

std::string ResourceTable::name_of(const tflite::Operator& handle) {
  const auto* options = handle.builtin_options_as<tflite::VarHandleOptions>();
  if (!options) return "variable";
  const auto text = [](const flatbuffers::String* s) { return s ? s->str() : std::string(); };
  const std::string container = text(options->container()), own = text(options->shared_name());
  return container.empty() ? (own.empty() ? "variable" : own) : container + "/" + own;
}

std::vector<int32_t> ResourceTable::run_by(const TfliteModel& model, const tflite::Operator& node) {
  using enum tflite::BuiltinOperator;
  switch (model.code(node)) {
    case IF:
      if (const auto* o = node.builtin_options_as<tflite::IfOptions>())
        return {o->then_subgraph_index(), o->else_subgraph_index()};
      break;
    case WHILE:
      if (const auto* o = node.builtin_options_as<tflite::WhileOptions>())
        return {o->cond_subgraph_index(), o->body_subgraph_index()};
      break;
    case STABLEHLO_COMPOSITE:
      if (const auto* o = node.builtin_options2_as<tflite::StableHLOCompositeOptions>())
        return {o->decomposition_subgraph_index()};
      break;
    default: break;
  }
  return {};
}

ResourceTable::ResourceTable(const TfliteModel& model) : model_(model) {
  named_.resize(static_cast<size_t>(model.num_subgraphs()));
  for (int32_t i = 0; i < model.num_subgraphs(); ++i) look_through(model.subgraph(i), named_[static_cast<size_t>(i)]);
}

int ResourceTable::number(const std::string& name) {
  const auto [it, added] = numbers_.emplace(name, static_cast<int>(resources_.size()));
  if (added) resources_.push_back({name, std::nullopt, false, nullptr});
  return it->second;
}

const TensorType* ResourceTable::type(int resource) const {
  const std::optional<TensorType>& type = resources_[static_cast<size_t>(resource)].type;
  return type ? &*type : nullptr;
}

void ResourceTable::look_through(const tflite::SubGraph& graph, std::set<int>& named) {
  if (!graph.operators()) return;
  std::map<int32_t, int> handles;  // by tensor
  for (const tflite::Operator* node : *graph.operators()) {
    const tflite::BuiltinOperator code = model_.code(*node);
    if (code == tflite::BuiltinOperator::VAR_HANDLE) {
      if (!node->outputs() || node->outputs()->size() != 1) continue;
      const int resource = number(name_of(*node));
      handles[node->outputs()->Get(0)] = resource;
      named.insert(resource);
      continue;
    }
    const bool reads = code == tflite::BuiltinOperator::READ_VARIABLE;
    if (!reads && code != tflite::BuiltinOperator::ASSIGN_VARIABLE) continue;
    if (!node->inputs() || node->inputs()->size() < (reads ? 1U : 2U)) continue;
    const auto handle = handles.find(node->inputs()->Get(0));
    if (handle == handles.end()) continue;
    if (reads && (!node->outputs() || node->outputs()->size() != 1)) continue;
    const int32_t value = reads ? node->outputs()->Get(0) : node->inputs()->Get(1);
    if (value < 0) continue;
    Resource& resource = resources_[static_cast<size_t>(handle->second)];
    const tflite::Tensor& proto = *graph.tensors()->Get(static_cast<uint32_t>(value));
    // A constant says best what it is; then what is written; what is read may be declared without a shape.
    const bool certain = !reads && proto.buffer() != 0 && model_.has_bytes(proto.buffer());
    if (resource.type && (resource.is_certain || !certain) && (reads || resource.is_certain)) continue;
    const TfliteTensor tensor = model_.tensor(graph, value);
    resource.type = TensorType{tensor.dtype, make_shape(tensor.dims), {}};
    resource.is_certain = certain;
  }
}

void ResourceTable::add_reached(int32_t index, std::set<int32_t>& seen, std::set<int>& all) const {
  if (!seen.insert(index).second) return;
  const tflite::SubGraph& graph = model_.subgraph(index);
  const std::set<int>& own = named_[static_cast<size_t>(index)];
  all.insert(own.begin(), own.end());
  if (graph.operators())
    for (const tflite::Operator* node : *graph.operators())
      for (const int32_t run : run_by(model_, *node)) add_reached(run, seen, all);
}

const std::set<int>& ResourceTable::of_graph(int32_t index) {
  const auto [it, added] = all_.emplace(index, std::set<int>());
  if (added) {
    std::set<int32_t> seen;
    add_reached(index, seen, it->second);
  }
  return it->second;
}

}  // namespace tessera::inline tflite_import
