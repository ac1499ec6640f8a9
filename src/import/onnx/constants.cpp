#include "import/onnx/constants.h"

#include <algorithm>

#include "graph/op_def.h"

namespace tessera::inline onnx_import {
namespace {

const Tensor* constant_tensor(const Node& node) {
  return node.op->kind == OpKind::kConstant ? node.attrs.get<TensorPtr>("value").get() : nullptr;
}

}  // namespace

void ConstantFinder::update() {
  constant_.resize(graph_.values().size(), false);
  for (; nodes_seen_ < graph_.nodes().size(); ++nodes_seen_) {
    const Node& node = graph_.nodes()[nodes_seen_];
    // How long a loop runs is not known before it is run.
    const bool constant = node.op->kind != OpKind::kLoop &&
                          std::all_of(node.inputs.begin(), node.inputs.end(),
                                      [this](ValueId id) { return constant_[static_cast<size_t>(id)]; });
    for (const ValueId output : node.outputs) constant_[static_cast<size_t>(output)] = constant;
  }
}

bool ConstantFinder::is_constant(ValueId value) {
  update();
  return constant_[static_cast<size_t>(value)];
}

std::optional<Tensor> ConstantFinder::find(ValueId value) {
  if (!is_constant(value)) return std::nullopt;
  if (const auto it = known_.find(value); it != known_.end()) return it->second;
  if (const Tensor* tensor = constant_tensor(*graph_.producer(value))) return *tensor;

  // The nodes that the value needs, down to constants and values that are known already.
  std::vector<NodeId> needed;
  std::vector<ValueId> leaves, pending{value};
  std::vector<bool> seen(graph_.values().size(), false);
  while (!pending.empty()) {
    const ValueId id = pending.back();
    pending.pop_back();
    if (seen[static_cast<size_t>(id)]) continue;
    seen[static_cast<size_t>(id)] = true;
    if (known_.count(id)) {
      leaves.push_back(id);
      continue;
    }
    const Node& node = *graph_.producer(id);
    needed.push_back(graph_.value(id).producer);
    if (constant_tensor(node)) continue;
    for (const ValueId output : node.outputs) {
      if (!graph_.type(output).is_static() || graph_.type(output).num_elements() > kMaxElements) return std::nullopt;
      computed_ += graph_.type(output).num_elements();
    }
    if (computed_ > kTotalElements) return std::nullopt;
    pending.insert(pending.end(), node.inputs.begin(), node.inputs.end());
  }
  std::sort(needed.begin(), needed.end());
  needed.erase(std::unique(needed.begin(), needed.end()), needed.end());

  Graph part;
  std::unordered_map<ValueId, ValueId> map;
  std::vector<Tensor> inputs;
  for (const ValueId leaf : leaves) {
    map[leaf] = part.add_input(graph_.value(leaf).name, graph_.type(leaf));
    inputs.push_back(known_.at(leaf));
  }
  for (const NodeId id : needed) {
    Node node = graph_.node(id);
    std::vector<TensorType> types;
    for (ValueId& input : node.inputs) input = map.at(input);
    for (const ValueId output : node.outputs) types.push_back(graph_.type(output));
    const std::vector<ValueId> outputs = node.outputs;
    const std::vector<ValueId> copies = part.node(part.add_node(std::move(node), std::move(types))).outputs;
    for (size_t i = 0; i < outputs.size(); ++i) map.emplace(outputs[i], copies[i]);
  }
  part.outputs = {map.at(value)};
  Tensor result = evaluator_.evaluate(part, inputs).at(0);
  known_.emplace(value, result);
  return result;
}

}  // namespace tessera::inline onnx_import
