// What handlers of several families need.
#pragma once

#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

#include "import/onnx/node_context.h"

namespace tessera::inline onnx_import {

constexpr int64_t kMostSteps = 1024;  // of a recurrence or a loop that is written out step by step

// What an operator that floating types share computes in.
inline DType computing_type(DType dtype) { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

inline int64_t element_count(const std::vector<int64_t>& dims) {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
}

// Indices along an axis of extent `extent` as i64 from 0 on; negative ones count from the end.
inline ValueId counted_from_front(NodeContext& c, ValueId indices, const Expr& extent) {
  const ValueId wide = c.cast(indices, DType::kI64);
  const ValueId negative = c.op("lt", {wide, c.integer(0)});
  return c.op("select", {negative, c.add(wide, c.integer(extent)), wide});
}

}  // namespace tessera::inline onnx_import
