#include "import/onnx/dynamic/declared_shapes.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "import/onnx/read/model_file.h"

namespace tessera::inline onnx_import {
namespace {

// Operators of the standard domain whose first result has the shape that their operands broadcast to.
constexpr std::string_view kElementwise[] = {
    "Abs",        "Acos",    "Acosh",    "Add",         "And",      "Asin",           "Asinh",    "Atan",
    "Atanh",      "Cast",    "Ceil",     "Clip",        "Cos",      "Cosh",           "Div",      "Elu",
    "Equal",      "Erf",     "Exp",      "Floor",       "Greater",  "GreaterOrEqual", "Identity", "IsInf",
    "IsNaN",      "Less",    "Log",      "LessOrEqual", "Max",      "Mean",           "Min",      "Mod",
    "Mul",        "Neg",     "Not",      "Or",          "Pow",      "Reciprocal",     "Relu",     "Round",
    "Sigmoid",    "Sign",    "Sin",      "Sinh",        "Softplus", "Softsign",       "Sqrt",     "Sub",
    "Sum",        "Tan",     "Tanh",     "Where",       "Xor",      "LeakyRelu",      "Gelu",     "HardSwish",
    "LogSoftmax", "Softmax", "CastLike",
};

bool is_elementwise(const onnx::NodeProto& node) {
  return standard_domain(node.domain()).empty() &&
         std::find(std::begin(kElementwise), std::end(kElementwise), node.op_type()) != std::end(kElementwise);
}

}  // namespace

void DeclaredShapes::bind_dims(const onnx::GraphProto& graph, const std::string& name,
                               const std::vector<int64_t>& dims) {
  for (const auto& input : graph.input()) {
    if (input.name() != name || !input.type().tensor_type().has_shape()) continue;
    const auto& declared = input.type().tensor_type().shape().dim();
    for (int d = 0; d < declared.size() && d < std::ssize(dims); ++d)
      if (!declared[d].dim_param().empty()) dims_[declared[d].dim_param()] = dims[static_cast<size_t>(d)];
  }
}

void DeclaredShapes::add_graph(const onnx::GraphProto& graph) {
  for (const auto& value : graph.value_info()) add(value);
  for (const auto& value : graph.output()) add(value);
}

void DeclaredShapes::add(const onnx::ValueInfoProto& value) {
  if (!value.type().has_tensor_type() || !value.type().tensor_type().has_shape()) return;
  std::vector<int64_t> dims;
  for (const auto& dim : value.type().tensor_type().shape().dim()) {
    if (dim.value_case() == onnx::TensorShapeProto_Dimension::kDimValue) {
      dims.push_back(dim.dim_value());
    } else if (const auto it = dims_.find(dim.dim_param()); !dim.dim_param().empty() && it != dims_.end()) {
      dims.push_back(it->second);
    } else {
      return;
    }
  }
  if (std::all_of(dims.begin(), dims.end(), [](int64_t d) { return d >= 0; })) shapes_[value.name()] = dims;
}

std::optional<std::vector<int64_t>> DeclaredShapes::find(
    const std::string& name, const std::function<bool(const std::string&)>& one_element) const {
  std::unordered_set<std::string> same{name};  // values of the same shape
  const auto declared = [&](const std::string& value) -> std::optional<std::vector<int64_t>> {
    const auto it = shapes_.find(value);
    return it == shapes_.end() ? std::nullopt : std::make_optional(it->second);
  };
  if (const auto shape = declared(name)) return shape;
  for (size_t scope = scopes_.size(); scope-- > 0;) {
    for (const FlatNode& flat : *scopes_[scope]) {
      const onnx::NodeProto& node = *flat.proto;
      if (node.output_size() == 0 || !is_elementwise(node)) continue;
      const int count = node.op_type() == "CastLike" ? std::min(1, node.input_size()) : node.input_size();
      bool reads = false, others_fit = true;
      for (int i = 0; i < count; ++i) {
        if (node.input(i).empty()) continue;
        if (same.count(node.input(i))) reads = true;
      }
      if (!reads) continue;
      for (int i = 0; i < count; ++i)
        others_fit = others_fit && (node.input(i).empty() || same.count(node.input(i)) || one_element(node.input(i)));
      if (!others_fit) continue;
      if (const auto shape = declared(node.output(0))) return shape;
      same.insert(node.output(0));
    }
  }
  return std::nullopt;
}

}  // namespace tessera::inline onnx_import
