// What a model is run on and gives, in host memory: a tensor, or what is made of tensors.
#pragma once

#include <vector>

#include "types/tensor.h"

namespace tessera::inline types {

// The numbers are those of tsr_value_kind in abi/module_abi.h.
enum class ValueKind : uint8_t { kTensor = 0, kSequence = 1, kOptional = 2, kMap = 3 };

// Immutable in use; copies share their tensors' bytes.
struct RunValue {
  ValueKind kind = ValueKind::kTensor;
  Tensor tensor;                     // kTensor
  std::vector<RunValue> items = {};  // kSequence: any number; kOptional: none or one; kMap: keys and values, [n] each

  RunValue() = default;
  RunValue(Tensor t) : tensor(std::move(t)) {}  // NOLINT: a tensor is a value
  RunValue(ValueKind k, std::vector<RunValue> parts) : kind(k), items(std::move(parts)) {}
  bool is_tensor() const { return kind == ValueKind::kTensor; }
};

}  // namespace tessera::inline types
