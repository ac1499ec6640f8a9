// Which opset a written node needs for the types of its operands.
#include <string>
#include <string_view>

#include "import/onnx/write/export_context.h"

namespace tessera::inline onnx_import {
namespace {

// Operators that take bf16 since opset 22 only.
constexpr std::string_view kBf16Since22 =
    " Acos Acosh Asin Asinh Atan Atanh AveragePool Conv ConvTranspose Cos Cosh Elu GlobalAveragePool GlobalMaxPool "
    "HardSigmoid HardSwish InstanceNormalization MaxPool Mish Round Selu Sin Sinh Softplus Softsign Tan ";

}  // namespace

int64_t opset_of_type(DType dtype) {
  switch (dtype_bits(dtype)) {
    case 2: return 25;
    case 4: return is_float(dtype) ? 23 : 21;
    case 8: return dtype == DType::kF8E8M0 ? 24 : is_float(dtype) ? 19 : kLeastOpset;
    default: return kLeastOpset;
  }
}

int64_t opset_of_operand(std::string_view op, DType dtype) {
  if (dtype == DType::kBF16 && kBf16Since22.find(" " + std::string(op) + " ") != std::string_view::npos) return 22;
  if (dtype == DType::kBool && (op == "ReduceMin" || op == "ReduceMax")) return 20;
  if (dtype_bits(dtype) == 16 && op == "IsInf") return 20;
  if (dtype_bits(dtype) <= 8 && is_float(dtype)) {
    if (op == "IsInf" || op == "IsNaN") return 20;
    if (op == "Transpose" || op == "Pad" || op == "Squeeze" || op == "Unsqueeze") return 21;
  }
  if (dtype_bits(dtype) == 16 && is_float(dtype) && (op == "QuantizeLinear" || op == "DequantizeLinear")) return 19;
  return kLeastOpset;
}

}  // namespace tessera::inline onnx_import
