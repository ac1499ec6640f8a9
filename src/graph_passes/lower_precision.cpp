#include "graph_passes/lower_precision.h"

#include <algorithm>
#include <numeric>

#include "graph_passes/graph_util.h"

namespace tessera {
namespace {

constexpr int64_t kLeastTerms = 16;           // of a sum whose weights are rounded
constexpr int64_t kWinogradPlaces = 14 * 14;  // of a picture from which on minimal filtering is faster

bool is_f32(const Graph& graph, ValueId id) { return graph.type(id).dtype == DType::kF32; }

bool is_known(const Graph& graph, ValueId id) { return constant_value(graph, id) != nullptr; }

// A convolution or product with constant weights.
bool has_weights(const Graph& graph, const Node& node) {
  return (is_op(&node, "conv") || is_op(&node, "matmul")) && is_f32(graph, node.inputs[0]) &&
         is_known(graph, node.inputs[1]) && !is_known(graph, node.inputs[0]);
}

// Whether minimal filtering takes this convolution.
bool suits_winograd(const Graph& graph, const Node& node) {
  const auto w = static_dims(graph.type(node.inputs[1]).shape), y = static_dims(graph.type(node.outputs[0]).shape);
  if (!w || !y || w->size() != 4 || (*w)[2] != 3 || (*w)[3] != 3 || node.attrs.get_int("groups") != 1) return false;
  const auto all_one = [&](const char* name) {
    const auto values = node.attrs.get_ints(name);
    return std::all_of(values.begin(), values.end(), [](int64_t v) { return v == 1; });
  };
  return all_one("strides") && all_one("dilations") && (*y)[2] * (*y)[3] >= kWinogradPlaces;
}

bool rounds_weights(const Graph& graph, const Node& node) {
  const Shape& w = graph.type(node.inputs[1]).shape;
  if (is_op(&node, "matmul")) {
    if (w.size() < 2) return false;
    const bool transposed = node.attrs.get_or<bool>("transpose_b", false);
    const auto terms = as_int(w[w.size() - (transposed ? 1 : 2)]);
    return terms && *terms >= kLeastTerms && *terms % 2 == 0;
  }
  const auto channels = as_int(w[1]);
  return channels && *channels >= kLeastTerms && *channels % 2 == 0 && !suits_winograd(graph, node);
}

}  // namespace

Graph lower_precision(const Graph& graph, const PassContext& ctx) {
  if (ctx.precision == DType::kF32) return graph;
  // What is rounded: the operands; of views and transposes of values that nobody else reads, what they are of.
  const std::vector<bool> is_output = output_mask(graph);
  const std::vector<int> uses = use_counts(graph);
  std::vector<bool> rounded(graph.values().size(), false);
  for (const Node& node : graph.nodes()) {
    if (!has_weights(graph, node)) continue;
    ValueId id = node.inputs[0];
    for (const Node* from = graph.producer(id); uses[static_cast<size_t>(id)] == 1 && from; from = graph.producer(id)) {
      if (!is_op(from, "reshape") && !is_op(from, "transpose")) break;
      id = from->inputs[0];
    }
    if (!is_known(graph, id)) rounded[static_cast<size_t>(id)] = true;
    if (rounds_weights(graph, node)) rounded[static_cast<size_t>(node.inputs[1])] = true;
  }

  GraphRewriter rewriter(graph);
  GraphBuilder builder(rewriter.target());
  const auto round = [&](ValueId id, const std::string& name) {
    const ValueId narrow = builder.add(ctx.ops.get("cast"), {id}, {{"to", ctx.precision}}, name + ".narrow");
    return builder.add(ctx.ops.get("cast"), {narrow}, {{"to", DType::kF32}}, name + ".rounded");
  };
  std::vector<ValueId> of_input(graph.values().size(), -1);  // the rounded form of inputs and outputs of the model
  return rewriter.run([&](GraphRewriter& r, const Node& node, const std::vector<ValueId>& inputs) {
    // Inputs, outputs, and weights that others read too keep their values: readers that round get a form of their own.
    std::vector<ValueId> operands = inputs;
    bool changed = false;
    const bool wants = has_weights(graph, node) || is_op(&node, "reshape") || is_op(&node, "transpose");
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const auto id = static_cast<size_t>(node.inputs[i]);
      const bool kept = graph.value(node.inputs[i]).producer < 0 || is_output[id] || is_known(graph, node.inputs[i]);
      if (!rounded[id] || !kept) continue;
      if (!wants && (is_output[id] || is_known(graph, node.inputs[i]))) continue;
      if (is_known(graph, node.inputs[i]) && !(has_weights(graph, node) && i == 1 && rounds_weights(graph, node)))
        continue;
      if (of_input[id] < 0) {
        builder.set_loc(node.loc);
        of_input[id] = round(inputs[i], graph.value(node.inputs[i]).name);
      }
      operands[i] = of_input[id];
      changed = true;
    }
    const bool rounds_result = node.outputs.size() == 1 && rounded[static_cast<size_t>(node.outputs[0])] &&
                               !is_output[static_cast<size_t>(node.outputs[0])] && node.op->kind != OpKind::kConstant;
    if (!changed && !rounds_result) return std::vector<ValueId>{};
    std::vector<ValueId> results = r.copy(node, operands);
    if (rounds_result) {
      builder.set_loc(node.loc);
      results[0] = round(results[0], graph.value(node.outputs[0]).name);
    }
    return results;
  });
}

}  // namespace tessera
