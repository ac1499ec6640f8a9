#include "driver/api/api_support.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace tessera::inline driver {
namespace {

tessera_tensor_info public_info(const TensorInfo& info) {
  tessera_tensor_info result = {};
  result.name = info.name.c_str();
  result.dtype = static_cast<tessera_dtype>(info.dtype);
  check(info.dims.size() <= TESSERA_MAX_RANK, "a tensor of too many dimensions");
  result.rank = static_cast<int32_t>(info.dims.size());
  std::copy(info.dims.begin(), info.dims.end(), result.dims);
  return result;
}

std::vector<int64_t> dims_of(const tessera_tensor& tensor) {
  const int32_t rank = std::clamp(tensor.rank, 0, TESSERA_MAX_RANK);
  return {tensor.dims, tensor.dims + rank};
}

void check_outputs(const std::vector<TensorInfo>& infos, const std::vector<tessera_tensor>& outputs) {
  if (infos.size() != outputs.size()) {
    throw UserError(
        {.id = "TSR-6304",
         .message = fmt::format("the model has {} outputs and room for {} was given", infos.size(), outputs.size()),
         .node = {},
         .legal = "one tensor for each output",
         .hint = {}});
  }
  for (size_t i = 0; i < infos.size(); ++i) {
    const TensorInfo given{infos[i].name, static_cast<DType>(outputs[i].dtype), dims_of(outputs[i])};
    if (given.dtype == infos[i].dtype && given.dims == infos[i].dims) continue;
    throw UserError({.id = "TSR-6305",
                     .message = fmt::format("output '{}' was given room for {}", given.name, given.type_text()),
                     .node = {},
                     .legal = fmt::format("{}, its declared type", infos[i].type_text()),
                     .hint = {}});
  }
}

}  // namespace

Tensor borrow(const tessera_tensor& tensor) {
  return Tensor(static_cast<DType>(tensor.dtype), dims_of(tensor), nullptr, tensor.data);
}

std::vector<tessera_tensor_info> public_infos(const std::vector<TensorInfo>& infos) {
  std::vector<tessera_tensor_info> result;
  for (const TensorInfo& info : infos) result.push_back(public_info(info));
  return result;
}

void run_on(Model& model, const std::vector<tessera_tensor>& inputs, const std::vector<tessera_tensor>& outputs) {
  std::vector<Tensor> given;
  for (const tessera_tensor& tensor : inputs) given.push_back(borrow(tensor));
  model.bind(std::move(given));
  check_outputs(model.outputs(), outputs);
  model.run();
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Tensor& result = model.results()[i];
    if (result.num_bytes() > 0) std::memcpy(outputs[i].data, result.bytes(), static_cast<size_t>(result.num_bytes()));
  }
}

}  // namespace tessera::inline driver
