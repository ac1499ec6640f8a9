// ONNX element types and ours.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "types/dtype.h"

namespace tessera::inline onnx_import {

// `data_type` is a TensorProto.DataType number; empty for those that we do not have (complex, 6-bit floats).
std::optional<DType> dtype_of_onnx(int64_t data_type);
int onnx_of_dtype(DType dtype);
// "FLOAT16", or the number when the schema has no name for it.
std::string onnx_dtype_name(int64_t data_type);
// The number of such a name; -1 when the schema does not have it.
int onnx_dtype_number(const std::string& name);

}  // namespace tessera::inline onnx_import
