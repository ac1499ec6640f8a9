// TensorProto -> Tensor and back, for the rest of this room.
#pragma once

#include <memory>
#include <string>

#include "import/common/limits.h"
#include "import/onnx/read/external_data.h"
#include "types/tensor.h"

namespace onnx {
class TensorProto;
}

namespace tessera::inline onnx_import {

// The tensor of `proto`, which `owner` keeps alive: its bytes are borrowed where their encoding is ours, otherwise
// decoded once. Sizes are checked before anything is allocated. `label` names the tensor in errors: TSR-1030 for data
// that does not fit the shape and type, TSR-1031 for a type that is not supported.
Tensor tensor_from_proto(const onnx::TensorProto& proto, const std::shared_ptr<const void>& owner,
                         ExternalData& external, const std::string& label);

void tensor_to_proto(const Tensor& tensor, onnx::TensorProto& proto);

}  // namespace tessera::inline onnx_import
