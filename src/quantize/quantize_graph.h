// A graph in f32 made one whose convolutions and products with constant weights read bytes, written as pairs of
// `quantize` and `dequantize` in front of them: the form that ONNX calls QDQ. `lower_qdq_matmul` makes products of
// bytes of it, and any other tool that knows the form can run it.
//
// Of activations all elements have one scale and zero point; weights are i8 without a zero point and have a scale for
// each output channel, or column. What is between the products stays in f32.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/op_def.h"
#include "quantize/range.h"

namespace tessera::inline quantize {

// A convolution or matrix product in f32 whose second factor is constant.
struct WeightedProduct {
  NodeId node = -1;
  std::string name;  // the model's, or that of its result where the model has none
  ValueId data = -1, weights = -1;
  size_t outputs_axis = 0;   // of the weights
  double multiply_adds = 0;  // of one run; 0 where sizes are open
};

// In the order of the graph; those of control flow's regions aside.
std::vector<WeightedProduct> weighted_products(const Graph& graph);

// The graph with these values as its only outputs, in this order, in f32; a value that is an input is copied.
Graph with_outputs(const Graph& graph, const std::vector<ValueId>& values, const OpTable& ops);

enum class Granularity : uint8_t { kTensor, kChannel };

struct QuantizeOptions {
  DType activations = DType::kU8;  // or kI8, without a zero point
  Granularity weights = Granularity::kChannel;
  int weight_bits = 8;  // 2 to 8: weights are i8 that use so many, a sign among them
};

// The product with the range of its data.
struct QuantizedProduct {
  WeightedProduct product;
  Range range;
};

// UserError TSR-2091 for weights that are not finite.
Graph quantized_graph(const Graph& graph, const std::vector<QuantizedProduct>& products, const QuantizeOptions& options,
                      const OpTable& ops);

// real = (integer - zero) * scale
struct ByteScale {
  float scale = 1;
  int64_t zero = 0;
};
// Of integers of `dtype` that cover the range; an empty range, or one too narrow for a normal number, has scale 1.
ByteScale byte_scale(const Range& range, DType dtype);

}  // namespace tessera::inline quantize
