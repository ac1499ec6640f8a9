#include "import/onnx/dynamic/flow_types.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "import/onnx/read/dtypes.h"
#include "onnx-ml.pb.h"
#include "support/error.h"

namespace tessera::inline onnx_import {
namespace {

// Operators on sequences and optionals.
constexpr std::array<std::string_view, 12> kStructureOps = {"ConcatFromSequence", "Optional",      "OptionalGetElement",
                                                            "OptionalHasElement", "SequenceAt",    "SequenceConstruct",
                                                            "SequenceEmpty",      "SequenceErase", "SequenceInsert",
                                                            "SequenceLength",     "SequenceMap",   "SplitToSequence"};

void look_into(const onnx::NodeProto& node, RunTimeValues& found) {
  const auto among = [&](const auto& list) {
    return std::find(list.begin(), list.end(), node.op_type()) != list.end();
  };
  found.structures = found.structures || among(kStructureOps);
  for (const auto& attribute : node.attribute())
    if (attribute.has_g())
      for (const auto& inner : attribute.g().node()) look_into(inner, found);
}

std::optional<std::vector<int64_t>> open_dims(const onnx::TypeProto::Tensor& tensor) {
  if (!tensor.has_shape()) return std::nullopt;
  std::vector<int64_t> dims;
  for (const auto& dim : tensor.shape().dim())
    dims.push_back(dim.has_dim_value() && dim.dim_value() >= 0 ? dim.dim_value() : -1);
  return dims;
}

}  // namespace

std::optional<FlowType> flow_type_of(const onnx::TypeProto& type) {
  switch (type.value_case()) {
    case onnx::TypeProto::kTensorType: {
      const auto dtype = dtype_of_onnx(type.tensor_type().elem_type());
      if (!dtype) return std::nullopt;
      return FlowType{{}, *dtype, DType::kI64, open_dims(type.tensor_type())};
    }
    case onnx::TypeProto::kSequenceType: {
      const auto element = flow_type_of(type.sequence_type().elem_type());
      if (!element || (!element->is_tensor() && element->wrappers[0] != ValueKind::kMap)) return std::nullopt;
      return element->in(ValueKind::kSequence);
    }
    case onnx::TypeProto::kOptionalType: {
      const auto element = flow_type_of(type.optional_type().elem_type());
      if (!element || (!element->is_tensor() && element->wrappers[0] != ValueKind::kSequence)) return std::nullopt;
      return element->in(ValueKind::kOptional);
    }
    case onnx::TypeProto::kMapType: {
      const auto key = dtype_of_onnx(type.map_type().key_type());
      const auto value = flow_type_of(type.map_type().value_type());
      if (!key || !value || !value->is_tensor() || (*key != DType::kI64 && *key != DType::kString)) return std::nullopt;
      FlowType map = value->in(ValueKind::kMap);
      map.key = *key;
      map.dims.reset();
      return map;
    }
    default: return std::nullopt;
  }
}

RunTimeValues find_run_time_values(const onnx::GraphProto& graph, const std::vector<FlatNode>& nodes) {
  RunTimeValues found;
  for (const FlatNode& node : nodes) look_into(*node.proto, found);
  const auto look_at = [&](const onnx::ValueInfoProto& value) {
    const bool tensor = value.type().has_tensor_type();
    const bool unknown = value.type().value_case() == onnx::TypeProto::VALUE_NOT_SET;
    const auto type = flow_type_of(value.type());
    const bool maps =
        type && std::find(type->wrappers.begin(), type->wrappers.end(), ValueKind::kMap) != type->wrappers.end();
    found.structures = found.structures || (!tensor && !unknown && !maps);
    found.at_border = found.at_border || (!tensor && !unknown) ||
                      (tensor && value.type().tensor_type().elem_type() == onnx::TensorProto::STRING);
  };
  for (const auto& input : graph.input()) look_at(input);
  for (const auto& output : graph.output()) look_at(output);
  return found;
}

Tensor string_numbers(const Tensor& strings, FlowParts& parts) {
  Tensor numbers(DType::kI64, strings.dims());
  for (size_t i = 0; i < strings.strings().size(); ++i)
    numbers.set_int(static_cast<int64_t>(i), parts.string_number(strings.strings()[i]));
  return numbers;
}

}  // namespace tessera::inline onnx_import
