// Files that hold one serialised TensorProto: the inputs and outputs of ONNX test-case folders.
#pragma once

#include <string>

#include "graph/flow.h"
#include "types/run_value.h"

namespace tessera::inline onnx_import {

// UserError TSR-6xxx or TSR-103x, with the path as the node, for files that cannot be read or are no tensors.
// Sequences, optionals and strings are refused. `name` receives the tensor's name when it is not null.
Tensor read_tensor_proto_file(const std::string& path, std::string* name = nullptr);
void write_tensor_proto_file(const std::string& path, const Tensor& tensor, const std::string& name = "");

// A file with a TensorProto, SequenceProto, OptionalProto or MapProto, whichever a value of `type` takes. The same
// errors; TSR-6005 when it holds something else. `name`, when given, receives the name in the file.
RunValue read_value_proto_file(const std::string& path, const FlowType& type, std::string* name = nullptr);
void write_value_proto_file(const std::string& path, const RunValue& value, const std::string& name);

}  // namespace tessera::inline onnx_import
