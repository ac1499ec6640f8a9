#include "import/onnx/read/dtypes.h"

#include <array>

#include "onnx-ml.pb.h"
#include "support/error.h"

namespace tessera::inline onnx_import {
namespace {

struct TypeRow {
  int onnx;
  DType dtype;
};

constexpr std::array kTypeRows = {
    TypeRow{onnx::TensorProto::FLOAT, DType::kF32},
    TypeRow{onnx::TensorProto::UINT8, DType::kU8},
    TypeRow{onnx::TensorProto::INT8, DType::kI8},
    TypeRow{onnx::TensorProto::UINT16, DType::kU16},
    TypeRow{onnx::TensorProto::INT16, DType::kI16},
    TypeRow{onnx::TensorProto::INT32, DType::kI32},
    TypeRow{onnx::TensorProto::INT64, DType::kI64},
    TypeRow{onnx::TensorProto::STRING, DType::kString},
    TypeRow{onnx::TensorProto::BOOL, DType::kBool},
    TypeRow{onnx::TensorProto::FLOAT16, DType::kF16},
    TypeRow{onnx::TensorProto::DOUBLE, DType::kF64},
    TypeRow{onnx::TensorProto::UINT32, DType::kU32},
    TypeRow{onnx::TensorProto::UINT64, DType::kU64},
    TypeRow{onnx::TensorProto::BFLOAT16, DType::kBF16},
    TypeRow{onnx::TensorProto::FLOAT8E4M3FN, DType::kF8E4M3FN},
    TypeRow{onnx::TensorProto::FLOAT8E4M3FNUZ, DType::kF8E4M3FNUZ},
    TypeRow{onnx::TensorProto::FLOAT8E5M2, DType::kF8E5M2},
    TypeRow{onnx::TensorProto::FLOAT8E5M2FNUZ, DType::kF8E5M2FNUZ},
    TypeRow{onnx::TensorProto::FLOAT8E8M0, DType::kF8E8M0},
    TypeRow{onnx::TensorProto::FLOAT4E2M1, DType::kF4E2M1},
    TypeRow{onnx::TensorProto::UINT4, DType::kU4},
    TypeRow{onnx::TensorProto::INT4, DType::kI4},
    TypeRow{onnx::TensorProto::UINT2, DType::kU2},
    TypeRow{onnx::TensorProto::INT2, DType::kI2},
};

}  // namespace

std::optional<DType> dtype_of_onnx(int64_t data_type) {
  for (const TypeRow& row : kTypeRows)
    if (row.onnx == data_type) return row.dtype;
  return std::nullopt;
}

int onnx_of_dtype(DType dtype) {
  for (const TypeRow& row : kTypeRows)
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
