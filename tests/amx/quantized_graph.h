// Random bytes, and graphs of a product or convolution of them as quantised models have it.
#pragma once

#include <array>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "ops/op_table.h"

namespace tessera {

inline void fill(Tensor& tensor, std::mt19937_64& random, int64_t low, int64_t high) {
  std::uniform_int_distribution<int64_t> values(low, high);
  for (int64_t i = 0; i < tensor.num_elements(); ++i) tensor.set_double(i, static_cast<double>(values(random)));
}

struct Types {
  DType x = DType::kU8, w = DType::kI8;
};

constexpr std::array<Types, 4> kByteTypes = {
    {{DType::kU8, DType::kI8}, {DType::kI8, DType::kI8}, {DType::kU8, DType::kU8}, {DType::kI8, DType::kU8}}};

// One that models have: any of u8, small ones of i8.
inline int some_zero_point(DType dtype, uint64_t seed) {
  return dtype == DType::kU8 ? static_cast<int>(seed * 37 % 256) : static_cast<int>(seed % 9) - 4;
}

inline Tensor random_bytes(DType dtype, const std::vector<int64_t>& dims, std::mt19937_64& random) {
  Tensor tensor(dtype, dims);
  if (dtype == DType::kU8) fill(tensor, random, 0, 255);
  else fill(tensor, random, -128, 127);
  return tensor;
}

// x - zero times w, then a scale and back to bytes: y of 8 bits, and the sums.
class QuantizedGraph {
 public:
  QuantizedGraph(const std::vector<int64_t>& x, DType dtype, int zero) : builder_(graph_) {
    const ValueId input = graph_.add_input("x", {dtype, make_shape(x), {}});
    const ValueId wide = op("cast", {input}, {{"to", DType::kI32}});
    x_ = zero == 0 ? wide : op("sub", {wide, number(zero)}, {});
  }

  void product(const Tensor& weights) { sums_ = op("matmul", {x_, wide_weights(weights)}, {}); }
  void conv(const Tensor& weights, int64_t stride, int64_t pad, int64_t groups = 1, int64_t dilation = 1) {
    sums_ = op("conv", {x_, wide_weights(weights)},
               {{"groups", groups},
                {"strides", std::vector<int64_t>{stride, stride}},
                {"dilations", std::vector<int64_t>{dilation, dilation}},
                {"input_dilations", std::vector<int64_t>{1, 1}},
                {"pads_begin", std::vector<int64_t>{pad, pad}},
                {"pads_end", std::vector<int64_t>{pad, pad}}});
  }

  // With the sums as an output they are stored; otherwise they stay in registers.
  Graph finish(bool with_sums = true) {
    const ValueId real = op("cast", {sums_}, {{"to", DType::kF32}});
    Tensor scale(DType::kF32, {});
    scale.set_double(0, 1.0 / 512);
    const ValueId rounded = op("round", {op("mul", {real, constant(scale)}, {})}, {});
    Tensor low(DType::kF32, {}), high(DType::kF32, {});
    low.set_double(0, -128), high.set_double(0, 127);
    const ValueId inside = op("min", {op("max", {rounded, constant(low)}, {}), constant(high)}, {});
    graph_.outputs = {op("cast", {inside}, {{"to", DType::kI8}})};
    graph_.rename(graph_.outputs[0], "y");
    if (with_sums) {
      graph_.outputs.push_back(sums_);
      graph_.rename(sums_, "sums");
    }
    return std::move(graph_);
  }

 private:
  ValueId op(const char* name, const std::vector<ValueId>& inputs, const Attrs& attrs) {
    return builder_.add(standard_ops().get(name), inputs, attrs);
  }
  ValueId constant(const Tensor& value) {
    return op("constant", {}, {{"value", TensorPtr(std::make_shared<Tensor>(value))}});
  }
  ValueId number(int value) {
    Tensor tensor(DType::kI32, {});
    tensor.set_double(0, value);
    return constant(tensor);
  }
  ValueId wide_weights(const Tensor& weights) { return op("cast", {constant(weights)}, {{"to", DType::kI32}}); }

  Graph graph_;
  GraphBuilder builder_;
  ValueId x_ = -1, sums_ = -1;
};

}  // namespace tessera
