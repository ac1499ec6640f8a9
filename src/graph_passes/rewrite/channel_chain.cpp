#include "graph_passes/rewrite/channel_chain.h"

#include <cmath>

namespace tessera::inline graph_passes {
namespace {

std::vector<double> elements(const Tensor& tensor) {
  std::vector<double> values;
  for (int64_t i = 0; i < tensor.num_elements(); ++i) values.push_back(tensor.get_double(i));
  return values;
}

// The elements of a constant that broadcasts to `shape` without varying along any axis but 1; empty otherwise.
std::optional<std::vector<double>> per_channel(const Graph& graph, ValueId id, const Shape& shape) {
  const Tensor* tensor = constant_value(graph, id);
  if (!tensor || tensor->dims().size() > shape.size()) return std::nullopt;
  const size_t skip = shape.size() - tensor->dims().size();
  for (size_t i = 0; i < tensor->dims().size(); ++i) {
    const int64_t extent = tensor->dims()[i];
    if (extent != 1 && !(i + skip == 1 && is_const_int(shape[1], extent))) return std::nullopt;
  }
  return elements(*tensor);
}

std::optional<Affine> batch_norm_step(const Graph& graph, const Node& node) {
  std::vector<std::vector<double>> params;
  for (size_t i = 1; i < 5; ++i) {
    const Tensor* tensor = node.inputs.size() == 5 ? constant_value(graph, node.inputs[i]) : nullptr;
    if (!tensor) return std::nullopt;
    params.push_back(elements(*tensor));
  }
  const double epsilon = node.attrs.get_or<double>("epsilon", 1e-5);
  Affine step;
  step.widen(params[0].size());
  for (size_t c = 0; c < params[0].size(); ++c) {
    step.scale[c] = params[0][c] / std::sqrt(params[3][c] + epsilon);
    step.shift[c] = params[1][c] - params[2][c] * step.scale[c];
  }
  return step;
}

// What `node` does to its operand `value`, when that is scaling and shifting by constants.
std::optional<Affine> step_of(const Graph& graph, const Node& node, ValueId value) {
  const DType dtype = graph.type(value).dtype;
  if (dtype != DType::kF32 && dtype != DType::kF64) return std::nullopt;
  if (is_composite(&node, "batch_norm")) return node.inputs[0] == value ? batch_norm_step(graph, node) : std::nullopt;
  const std::string& op = node.op->name;
  if (op == "neg") return Affine{.scale = {-1.0}};
  if (op != "add" && op != "sub" && op != "mul" && op != "div") return std::nullopt;
  const bool first = node.inputs[0] == value;
  const ValueId other = node.inputs[first ? 1 : 0];
  const TensorType& result = graph.type(node.outputs[0]);
  if (other == value || !same_shape(graph.type(value).shape, result.shape)) return std::nullopt;
  const auto constant = per_channel(graph, other, result.shape);
  if (!constant || constant->empty()) return std::nullopt;
  Affine step;
  if (op == "add") {
    step.shift = *constant;
  } else if (op == "mul") {
    step.scale = *constant;
  } else if (op == "sub") {
    step.shift = *constant;
    if (first)
      for (double& s : step.shift) s = -s;
    else step.scale = {-1.0};
  } else {
    if (!first) return std::nullopt;
    step.scale = *constant;
    for (double& s : step.scale) s = 1 / s;
  }
  const auto finite = [](double s) { return std::isfinite(s); };
  if (!std::all_of(step.scale.begin(), step.scale.end(), finite)) return std::nullopt;
  return step;
}

}  // namespace

std::optional<AffineChain> ChainFinder::find(NodeId first) const {
  const Node& node = graph_.node(first);
  AffineChain chain;
  std::optional<Affine> step;
  for (const ValueId input : node.inputs) {
    if (constant_value(graph_, input)) continue;
    step = step_of(graph_, node, input);
    chain.start = input;
    break;
  }
  if (!step) return std::nullopt;
  NodeId at = first;
  while (step) {
    chain.affine.then(*step);
    chain.steps.push_back(at);
    const ValueId result = graph_.node(at).outputs[0];
    step.reset();
    if (uses_[static_cast<size_t>(result)] != 1 || users_[static_cast<size_t>(result)].empty()) break;
    at = users_[static_cast<size_t>(result)][0];
    step = step_of(graph_, graph_.node(at), result);
  }
  const Node* conv = graph_.producer(chain.start);
  if (is_op(conv, "conv") && uses_[static_cast<size_t>(chain.start)] == 1 && constant_value(graph_, conv->inputs[1]))
    chain.conv = graph_.value(chain.start).producer;
  return chain;
}

}  // namespace tessera::inline graph_passes
