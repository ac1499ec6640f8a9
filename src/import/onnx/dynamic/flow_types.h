// The types of ONNX values that are no tensors of fixed shapes, and where a model has them.
#pragma once

#include <optional>
#include <vector>

#include "graph/flow.h"
#include "import/onnx/dynamic/flow_builder.h"
#include "import/onnx/read/node_list.h"
#include "types/tensor.h"

namespace tessera::inline onnx_import {

// Empty for types that we do not have: sparse tensors, opaque values, sequences of sequences, maps of anything but
// numbers or strings to single numbers, complex numbers.
std::optional<FlowType> flow_type_of(const onnx::TypeProto& type);

// What tells that a model may have values that only a run knows.
struct RunTimeValues {
  bool structures = false;  // sequences and optionals, at its border or inside: shapes may be open
  bool at_border = false;   // strings, maps or the former among its inputs and outputs
};
RunTimeValues find_run_time_values(const onnx::GraphProto& graph, const std::vector<FlatNode>& nodes);

// A tensor of strings as the numbers that `parts` gives them.
Tensor string_numbers(const Tensor& strings, FlowParts& parts);

}  // namespace tessera::inline onnx_import
