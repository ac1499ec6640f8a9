#include "import/gguf/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>

namespace tessera::inline gguf {

const GgufTensor& Weights::require(std::string_view name, const std::vector<int64_t>& dims) const {
  const GgufTensor* tensor = file_.find_tensor(name);
  if (tensor && tensor->dims == dims) return *tensor;
  throw UserError({.id = "TSR-1074",
                   .message = tensor ? fmt::format("{}: the tensor '{}' is [{}]", file_.place(), name,
                                                   fmt::join(tensor->dims, ", "))
                                     : fmt::format("{}: the tensor '{}' is missing", file_.place(), name),
                   .node = {},
                   .legal = fmt::format("[{}]", fmt::join(dims, ", ")),
                   .hint = "convert the model again"});
}

int64_t Weights::columns(std::string_view name) const {
  const GgufTensor* tensor = file_.find_tensor(name);
  return tensor && tensor->dims.size() == 2 ? tensor->dims[1] : 0;
}

Tensor Weights::get(std::string_view name, const std::vector<int64_t>& dims) {
  const GgufTensor& tensor = require(name, dims);
  if (tensor.type == BlockType::kF32 && reinterpret_cast<uintptr_t>(tensor.data) % alignof(float) == 0)
    return Tensor(DType::kF32, dims, owner_, tensor.data);
  const std::lock_guard lock(mutex_);
  if (const auto it = known_.find(name); it != known_.end()) return it->second;
  Tensor floats(DType::kF32, dims);
  dequantize(tensor.type, tensor.data, tensor.num_elements(), floats.as_mutable<float>().data());
  return known_.emplace(name, std::move(floats)).first->second;
}

Tensor Weights::rows(std::string_view name, int64_t rows, int64_t first, int64_t count, int64_t columns) {
  const Tensor all = get(name, columns > 0 ? std::vector{rows, columns} : std::vector{rows});
  const int64_t row = columns > 0 ? columns : 1;
  const auto whole = std::make_shared<const Tensor>(all);
  return Tensor(DType::kF32, columns > 0 ? std::vector{count, columns} : std::vector{count}, whole,
                all.as<float>().data() + first * row);
}

Matrix Weights::matrix(std::string_view name, int64_t rows, int64_t first, int64_t count, int64_t columns) const {
  const GgufTensor& tensor = require(name, {rows, columns});
  const int64_t row = columns / block_elements(tensor.type) * static_cast<int64_t>(block_bytes(tensor.type));
  const std::byte* begin = tensor.data + first * row;
  if (tensor.type != BlockType::kF32)
    return {Tensor(DType::kU8, {count, row}, owner_, begin), std::string(block_format(tensor.type))};
  if (reinterpret_cast<uintptr_t>(begin) % alignof(float) == 0)
    return {Tensor(DType::kF32, {count, columns}, owner_, begin), {}};
  Tensor aligned(DType::kF32, {count, columns});
  std::memcpy(aligned.as_mutable<float>().data(), begin, static_cast<size_t>(count * row));
  return {std::move(aligned), {}};
}

}  // namespace tessera::inline gguf
