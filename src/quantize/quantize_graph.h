// A graph in f32 made one whose convolutions and products with constant weights read small integers, in one of three
// forms, each of which ONNX has operators for:
//
//   static       pairs of `quantize` and `dequantize` in front of both factors, which ONNX calls QDQ, for ranges of
//                activations that samples have shown; `lower_qdq_matmul` makes products of bytes of it
//   dynamic      activations become bytes by the range that they have in this run (`dynamic_quantize`), and products
//                are those of bytes (`matmul_integer`, `conv_integer`), scaled afterwards
//   weight-only  activations stay in f32, weights are read in groups of a few bits (`dequantize_blocks`, which ONNX
//                Runtime calls MatMulNBits); of products of matrices alone
//
// Of activations all elements have one scale and zero point; weights are i8 without a zero point and have a scale for
// each output channel, or column. What is between the products stays in f32.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/op_def.h"
#include "quantize/range.h"
#include "quantize/weight_rows.h"

namespace tessera::inline quantize {

// A convolution or matrix product in f32 whose second factor is constant.
struct WeightedProduct {
  NodeId node = -1;
  bool is_conv = false;
  std::string name;  // the model's, or that of its result where the model has none
  ValueId data = -1, weights = -1;
  size_t outputs_axis = 0;   // of the weights
  double multiply_adds = 0;  // of one run; 0 where sizes are open
};

// In the order of the graph; those of control flow's regions aside.
std::vector<WeightedProduct> weighted_products(const Graph& graph);

// The graph with these values as its only outputs, in this order, in f32; a value that is an input is copied.
Graph with_outputs(const Graph& graph, const std::vector<ValueId>& values, const OpTable& ops);

enum class Scheme : uint8_t { kStatic, kDynamic, kWeightOnly };
enum class Granularity : uint8_t { kTensor, kChannel, kGroup };

struct QuantizeOptions {
  DType activations = DType::kU8;               // static: or kI8, without a zero point
  Granularity weights = Granularity::kChannel;  // weight-only: or kGroup
  int weight_bits = 8;  // 2 to 8: weights are i8 that use so many, a sign among them; weight-only: 4 or 8
  Scheme scheme = Scheme::kStatic;
  int64_t group = 32;      // kGroup: terms that share a scale, a power of two from 16 on
  bool has_zeros = false;  // weight-only: each group has a zero point
};

// What integers the weights of a product of so many terms may be.
IntegerGrid weight_grid(int64_t terms, const QuantizeOptions& options);

// Whether the scheme has a form for the product.
bool has_form(const Graph& graph, const WeightedProduct& product, Scheme scheme);

// The product with what is known of it from samples.
struct QuantizedProduct {
  WeightedProduct product;
  Range range = {};                                 // static: of its data
  std::shared_ptr<const IntegerRows> weights = {};  // null: to the nearest integers
  std::vector<float> correction = {};               // added to the product, one for each output; empty: nothing
};

// UserError TSR-2091 for weights that are not finite.
Graph quantized_graph(const Graph& graph, const std::vector<QuantizedProduct>& products, const QuantizeOptions& options,
                      const OpTable& ops);

// The numbers of a constant. REQUIRES: `value` is one.
const Tensor& constant_tensor(const Graph& graph, ValueId value);

// real = (integer - zero) * scale
struct ByteScale {
  float scale = 1;
  int64_t zero = 0;
};
// Of integers of `dtype` that cover the range; an empty range, or one too narrow for a normal number, has scale 1.
ByteScale byte_scale(const Range& range, DType dtype);
// Whether the scale of the range is a normal number; otherwise all of it becomes 0.
bool has_byte_scale(const Range& range, DType dtype);

}  // namespace tessera::inline quantize
