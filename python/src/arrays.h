// Arrays of Python as tensors of the C API.
#pragma once

#include <nanobind/ndarray.h>

#include <algorithm>
#include <vector>

#include "tessera/tessera.h"
#include "value.h"

namespace tessera::python {

using OutputArray = nanobind::ndarray<nanobind::c_contig, nanobind::device::cpu>;

// Borrows the array's memory.
template <typename Array>
tessera_tensor describe_array(const Array& array, int dtype) {
  tessera_tensor tensor = {};
  tensor.data = const_cast<void*>(static_cast<const void*>(array.data()));
  tensor.dtype = static_cast<tessera_dtype>(dtype);
  tensor.rank = static_cast<int32_t>(array.ndim());
  for (size_t axis = 0; axis < std::min<size_t>(array.ndim(), TESSERA_MAX_RANK); ++axis)
    tensor.dims[axis] = static_cast<int64_t>(array.shape(axis));
  return tensor;
}

// ValueError unless there is a dtype for each array.
template <typename Array>
std::vector<tessera_tensor> describe_arrays(const std::vector<Array>& arrays, const std::vector<int>& dtypes) {
  if (arrays.size() != dtypes.size()) throw nanobind::value_error("one dtype for each array is needed");
  std::vector<tessera_tensor> tensors;
  for (size_t i = 0; i < arrays.size(); ++i) tensors.push_back(describe_array(arrays[i], dtypes[i]));
  return tensors;
}

}  // namespace tessera::python
