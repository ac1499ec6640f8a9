// What the reference tests share: one-node graphs run by the interpreter, random tensors, comparison with a plain
// reference computed in double.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "types/tensor.h"

namespace tessera {

using Dims = std::vector<int64_t>;

inline constexpr DType kRealDTypes[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16};
inline constexpr DType kIntDTypes[] = {DType::kI64, DType::kI32, DType::kI16, DType::kI8,
                                       DType::kU64, DType::kU32, DType::kU16, DType::kU8};
std::vector<DType> arithmetic_dtypes();  // the two lists
std::vector<DType> movable_dtypes();     // every type but string

// Small integers for integer types (-9 .. 9, or 0 .. 9 where unsigned, less for sub-byte types), halves from -4 to 4
// for floats: exact in every type that tests use, so that only the operation itself rounds.
Tensor random_tensor(std::mt19937& random, DType dtype, const Dims& dims);
Tensor tensor_of(DType dtype, const Dims& dims, const std::vector<double>& values);

// The operator's (or composite's) results on the tensors, through a graph with one node.
std::vector<Tensor> run_op(const std::string& op, const std::vector<Tensor>& inputs, const Attrs& attrs = {});
std::vector<Tensor> run_composite(const std::string& name, const std::vector<Tensor>& inputs, const Attrs& attrs = {});

// Calls `visit` for every index of `dims` in row-major order.
void for_each_index(const Dims& dims, const std::function<void(const Dims& index)>& visit);
int64_t flat_index(const Dims& dims, const Dims& index);
// The element under numpy's broadcasting: aligned at the last dimension, extents of 1 read at 0.
double at_broadcast(const Tensor& tensor, const Dims& index);
inline double at(const Tensor& tensor, const Dims& index) {
  return tensor.get_double(flat_index(tensor.dims(), index));
}

// |found - want| <= tolerance * max|want| (NaN agrees with NaN, infinities must be equal); integers and bools exactly.
// The tolerance is 1e-5, for f16 2e-3 and for bf16 1.6e-2, times `slack`.
void expect_close(const Tensor& found, const Dims& dims, const std::vector<double>& want, const std::string& what,
                  double slack = 1);

// The result of a reference function of the index, for every index of `dims`.
std::vector<double> reference(const Dims& dims, const std::function<double(const Dims& index)>& value);

// Runs `action`, which must throw a UserError; returns its text.
std::string error_of(const std::function<void()>& action);

}  // namespace tessera
