#include "import/common/constants.h"

#include <algorithm>

#include "graph/op_def.h"

namespace tessera::inline import_common {
namespace {

const Tensor* constant_tensor(const Node& node) {
  return node.op->kind == OpKind::kConstant ? node.attrs.get<TensorPtr>("value").get() : nullptr;
}

// Has a shape or an amount that is an expression.
bool depends_on_symbols(const Node& node) {
  return std::any_of(node.attrs.all().begin(), node.attrs.all().end(),
                     [](const auto& attr) { return std::holds_alternative<Shape>(attr.second); });
}

}  // namespace

void ConstantFinder::update() {
  constant_.resize(graph_.values().size(), false);
  for (; nodes_seen_ < graph_.nodes().size(); ++nodes_seen_) {
    const Node& node = graph_.nodes()[nodes_seen_];
    // How long a loop runs is not known before it is run.
    const bool constant = node.op->kind != OpKind::kLoop && !depends_on_symbols(node) &&
                          std::all_of(node.inputs.begin(), node.inputs.end(),
                                      [this](ValueId id) { return constant_[static_cast<size_t>(id)]; });
    for (const ValueId output : node.outputs) constant_[static_cast<size_t>(output)] = constant;
  }
}

bool ConstantFinder::is_constant(ValueId value) {
  update();
  return constant_[static_cast<size_t>(value)];
}

std::optional<Shape> ConstantFinder::find_sizes(ValueId value) {
  if (graph_.symbols.empty() || !is_int(graph_.type(value).dtype)) return std::nullopt;
  const auto elements = sizes_.find(value);
  if (!elements) return std::nullopt;
  Shape sizes;
  for (const KnownElement& element : *elements) {
    if (!element.value) return std::nullopt;
    sizes.push_back(element.value);
  }
  return sizes;
}

std::optional<Shape> ConstantFinder::find_some_sizes(ValueId value) {
  if (!is_int(graph_.type(value).dtype)) return std::nullopt;
  const auto elements = sizes_.find(value);
  if (!elements) return std::nullopt;
  Shape sizes;
  for (const KnownElement& element : *elements) sizes.push_back(element.value);
  return sizes;
}

std::optional<Tensor> ConstantFinder::decided(ValueId value) {
  const TensorType& type = graph_.type(value);
  const bool is_number = is_int(type.dtype) || type.dtype == DType::kBool;
  if (graph_.symbols.empty() || (!is_number && !is_float(type.dtype))) return std::nullopt;
  const auto elements = sizes_.find(value);
  if (!elements) return std::nullopt;
  Tensor tensor(type.dtype, type.dims());
  for (size_t i = 0; i < elements->size(); ++i) {
    const KnownElement& element = (*elements)[i];
    const auto number = element.value ? as_int(element.value) : std::nullopt;
    const auto divisor = as_int(element.divisor);
    if (!number || !divisor || element.rounded) return std::nullopt;
    if (is_number) tensor.set_int(static_cast<int64_t>(i), *number);
    else tensor.set_double(static_cast<int64_t>(i), static_cast<double>(*number) / static_cast<double>(*divisor));
  }
  return tensor;
}

std::optional<Tensor> ConstantFinder::find(ValueId value) {
  if (!is_constant(value)) return decided(value);
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

}  // namespace tessera::inline import_common
