// Products with weights in groups of a scale each, which ONNX Runtime has one operator for (MatMulNBits): which nodes
// of a graph are written as such, and which are part of them and not written by themselves.
#pragma once

#include <cstdint>
#include <unordered_set>

#include "graph/graph.h"

namespace tessera::inline onnx_import {

struct BlockShape {
  int64_t rows = 0, elements = 0;  // of the weights: outputs, and terms of each
  int64_t groups = 0, group = 0;   // of a row, and numbers of each
  int64_t bits = 0;
};
// Of a dequantize_blocks whose scales are an operand. REQUIRES: static sizes.
BlockShape block_shape(const Graph& graph, const Node& dequantization);

class BlockProducts {
 public:
  explicit BlockProducts(const Graph& graph);

  bool is_product(const Node& node) const { return products_.contains(&node); }
  bool is_part(const Node& node) const { return parts_.contains(&node); }

 private:
  std::unordered_set<const Node*> products_, parts_;
};

}  // namespace tessera::inline onnx_import
