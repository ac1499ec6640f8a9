#include "import/onnx/read/dtypes.h"

#include <array>

#include "onnx-ml.pb.h"
#include "support/error.h"

namespace tessera::inline onnx_import {
namespace {

struct Row {
  int onnx;
  DType dtype;
};

constexpr std::array kRows = {
    Row{onnx::TensorProto::FLOAT, DType::kF32},
    Row{onnx::TensorProto::UINT8, DType::kU8},
    Row{onnx::TensorProto::INT8, DType::kI8},
    Row{onnx::TensorProto::UINT16, DType::kU16},
    Row{onnx::TensorProto::INT16, DType::kI16},
    Row{onnx::TensorProto::INT32, DType::kI32},
    Row{onnx::TensorProto::INT64, DType::kI64},
    Row{onnx::TensorProto::STRING, DType::kString},
    Row{onnx::TensorProto::BOOL, DType::kBool},
    Row{onnx::TensorProto::FLOAT16, DType::kF16},
    Row{onnx::TensorProto::DOUBLE, DType::kF64},
    Row{onnx::TensorProto::UINT32, DType::kU32},
    Row{onnx::TensorProto::UINT64, DType::kU64},
    Row{onnx::TensorProto::BFLOAT16, DType::kBF16},
    Row{onnx::TensorProto::FLOAT8E4M3FN, DType::kF8E4M3FN},
    Row{onnx::TensorProto::FLOAT8E4M3FNUZ, DType::kF8E4M3FNUZ},
    Row{onnx::TensorProto::FLOAT8E5M2, DType::kF8E5M2},
    Row{onnx::TensorProto::FLOAT8E5M2FNUZ, DType::kF8E5M2FNUZ},
    Row{onnx::TensorProto::FLOAT8E8M0, DType::kF8E8M0},
    Row{onnx::TensorProto::FLOAT4E2M1, DType::kF4E2M1},
    Row{onnx::TensorProto::UINT4, DType::kU4},
    Row{onnx::TensorProto::INT4, DType::kI4},
    Row{onnx::TensorProto::UINT2, DType::kU2},
    Row{onnx::TensorProto::INT2, DType::kI2},
};

}  // namespace

std::optional<DType> dtype_of_onnx(int64_t data_type) {
  for (const Row& row : kRows)
    if (row.onnx == data_type) return row.dtype;
  return std::nullopt;
}

int onnx_of_dtype(DType dtype) {
  for (const Row& row : kRows)
    if (row.dtype == dtype) return row.onnx;
  throw InternalError("a dtype without an ONNX number");
}

std::string onnx_dtype_name(int64_t data_type) {
  if (const auto number = static_cast<int>(data_type);
      number == data_type && onnx::TensorProto::DataType_IsValid(number))
    return onnx::TensorProto::DataType_Name(static_cast<onnx::TensorProto::DataType>(data_type));
  return "number " + std::to_string(data_type);
}

int onnx_dtype_number(const std::string& name) {
  onnx::TensorProto::DataType type;
  return onnx::TensorProto::DataType_Parse(name, &type) ? static_cast<int>(type) : -1;
}

}  // namespace tessera::inline onnx_import
