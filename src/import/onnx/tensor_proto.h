// Files that hold one serialised TensorProto: the inputs and outputs of ONNX test-case folders.
#pragma once

#include <string>

#include "types/tensor.h"

namespace tessera {

// UserError TSR-6xxx or TSR-103x, with the path as the node, for files that cannot be read or are no tensors.
// Sequences, optionals and strings are refused. `name` receives the tensor's name when it is not null.
Tensor read_tensor_proto_file(const std::string& path, std::string* name = nullptr);
void write_tensor_proto_file(const std::string& path, const Tensor& tensor, const std::string& name = "");

}  // namespace tessera
