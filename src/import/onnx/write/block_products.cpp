#include "import/onnx/write/block_products.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>

#include "arith/simplify.h"
#include "graph/op_def.h"

namespace tessera::inline onnx_import {
namespace {

bool is_constant_value(const Graph& graph, ValueId value) {
  const Node* producer = graph.producer(value);
  return producer && producer->op->kind == OpKind::kConstant;
}

int64_t bits_of(const std::string& format) { return format == "u4" ? 4 : format == "u8" ? 8 : 0; }

// Groups as MatMulNBits has them: powers of two from 16 on, rows without room to spare, scales in f32.
bool has_form(const Graph& graph, const Node& node) {
  if (node.op->name != "dequantize_blocks" || bits_of(node.attrs.get<std::string>("format")) == 0) return false;
  if (!std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) { return is_constant_value(graph, v); }))
    return false;
  const BlockShape shape = block_shape(graph, node);
  if (shape.group < 16 || (shape.group & (shape.group - 1)) != 0) return false;
  const auto dims = [&](size_t i) { return *static_dims(graph.type(node.inputs[i]).shape); };
  const bool is_whole = dims(0)[1] * 8 == shape.groups * shape.group * shape.bits && dims(1)[1] == shape.groups &&
                        graph.type(node.inputs[1]).dtype == DType::kF32;
  if (!is_whole || node.inputs.size() == 2) return is_whole;
  const DType zero = graph.type(node.inputs[2]).dtype;
  return zero == DType::kU8 ? dims(2)[1] == (shape.groups * shape.bits + 7) / 8
                            : zero == DType::kF32 && dims(2)[1] == shape.groups;
}

}  // namespace

BlockShape block_shape(const Graph& graph, const Node& node) {
  const std::vector<int64_t> result = *static_dims(graph.type(node.outputs[0]).shape);
  const int64_t group = node.attrs.get_int("group");
  return {.rows = result[0],
          .elements = result[1],
          .groups = (result[1] + group - 1) / group,
          .group = group,
          .bits = bits_of(node.attrs.get<std::string>("format"))};
}

BlockProducts::BlockProducts(const Graph& graph) {
  std::map<ValueId, size_t> readers, in_products;
  for (const Node& node : graph.nodes()) {
    for (const ValueId input : node.inputs) ++readers[input];
    if (node.op->name != "matmul" || !node.attrs.get_or<bool>("transpose_b", false) ||
        node.attrs.get_or<bool>("transpose_a", false) || graph.type(node.inputs[0]).dtype != DType::kF32)
      continue;
    const Node* weights = graph.producer(node.inputs[1]);
    if (!weights || node.inputs[0] == node.inputs[1] || !has_form(graph, *weights)) continue;
    products_.insert(&node);
    ++in_products[node.inputs[1]];
  }
  for (const ValueId output : graph.outputs) ++readers[output];
  // What only products read is in their initializers alone.
  for (const auto& [value, count] : in_products) {
    if (readers[value] != count) continue;
    const Node* weights = graph.producer(value);
    parts_.insert(weights);
    for (const ValueId input : weights->inputs)
      if (readers[input] == 1) parts_.insert(graph.producer(input));
  }
}

}  // namespace tessera::inline onnx_import
