#include "graph_passes/quantized/lower_precision.h"

#include <algorithm>
#include <numeric>

#include "graph_passes/quantized/copy_dequantisations.h"
#include "graph_passes/support/graph_util.h"

namespace tessera::inline graph_passes {
namespace {

constexpr int64_t kLeastTerms = 16;  // of a sum whose weights are rounded

bool is_f32(const Graph& graph, ValueId id) { return graph.type(id).dtype == DType::kF32; }

bool is_known(const Graph& graph, ValueId id) { return constant_value(graph, id) != nullptr; }

// A weight that arrives at run time: an input or a state, and not one that a batch has of its own.
bool arrives(const Graph& graph, const Node& reader) {
  const ValueId id = reader.inputs[1];
  const TensorType& type = graph.type(id);
  return !graph.producer(id) && type.is_static() && (is_op(&reader, "conv") || type.rank() == 2);
}

bool multiplies_in_tiles(const PassContext& ctx) {
  return ctx.precision == DType::kBF16 && ctx.family.multiplies_in_tiles(DType::kBF16, DType::kBF16);
}

// A product with weights in blocks of a few bits, which many rows multiply in tiles. Without these their floats stay
// what they are.
bool has_blocked_weights(const Graph& graph, const Node& node, const PassContext& ctx) {
  constexpr int64_t kTileTerms = 32;
  const Node* weights = is_op(&node, "matmul") ? graph.producer(node.inputs[1]) : nullptr;
  if (!weights || !multiplies_in_tiles(ctx) || !reads_in_blocks(graph, *weights, node)) return false;
  const auto terms = as_int(graph.type(node.inputs[1]).shape.back());
  return terms && *terms % kTileTerms == 0;
}

// A convolution or product with weights.
bool has_weights(const Graph& graph, const Node& node, const PassContext& ctx) {
  return (is_op(&node, "conv") || is_op(&node, "matmul")) && is_f32(graph, node.inputs[0]) &&
         is_f32(graph, node.inputs[1]) && !is_known(graph, node.inputs[0]) &&
         (is_known(graph, node.inputs[1]) || arrives(graph, node) || has_blocked_weights(graph, node, ctx));
}

// Tiles multiply bf16 sixteen times as fast as vectors multiply f32, of which filtering saves a factor of 2.5.
bool suits_winograd(const Graph& graph, const Node& node, const PassContext& ctx) {
  return !multiplies_in_tiles(ctx) && suits_minimal_filtering(graph, node);
}

bool rounds_weights(const Graph& graph, const Node& node, const PassContext& ctx) {
  const Shape& w = graph.type(node.inputs[1]).shape;
  // Tiles are filled up with zeros; vectors take pairs.
  const auto suits = [&](const std::optional<int64_t>& terms) {
    return terms && *terms >= kLeastTerms && (*terms % 2 == 0 || multiplies_in_tiles(ctx));
  };
  if (is_op(&node, "matmul")) {
    if (w.size() < 2) return false;
    const bool transposed = node.attrs.get_or<bool>("transpose_b", false);
    return suits(as_int(w[w.size() - (transposed ? 1 : 2)]));
  }
  return suits(as_int(w[1])) && !suits_winograd(graph, node, ctx);
}

// A model's first convolution: too few channels for pairs of them, but a window of several columns, which lie side by
// side in memory. Pairs of columns are summed when their number is even and no padding is left to test for.
bool pairs_columns(const Graph& graph, const Node& node, const PassContext& ctx) {
  const auto products = ctx.family.narrow_products(DType::kBF16, DType::kBF16);
  if (ctx.precision != DType::kBF16 || !products || !products->in_vectors) return false;
  if (!is_op(&node, "conv") || !has_weights(graph, node, ctx) || node.attrs.get_int("groups") != 1) return false;
  const auto w = static_dims(graph.type(node.inputs[1]).shape);
  if (!w || w->size() != 4 || (*w)[1] >= kLeastTerms || (*w)[3] < 3 || suits_winograd(graph, node, ctx)) return false;
  if (!all_of_list(node, "dilations", 1) || !all_of_list(node, "input_dilations", 1)) return false;
  for (const char* name : {"pads_begin", "pads_end"})
    for (const int64_t value : node.attrs.get_ints(name))
      if (value < 0) return false;
  return (*w)[1] * (*w)[2] * (*w)[3] >= kLeastTerms;
}

// The convolution with its padding and, if it is odd, one more column of the window, of zeros, as pads of their own.
struct Widened {
  ValueId x = -1, w = -1;
  Attrs attrs;
};
Widened widen(const Graph& graph, const Node& node, const std::vector<ValueId>& inputs, GraphBuilder& builder,
              const PassContext& ctx) {
  const int64_t column = *as_int(graph.type(node.inputs[1]).shape[3]) % 2;
  ConvPadding padding = take_padding(node);
  padding.high[3] += column;
  const ValueId zero = add_constant(builder.graph(), ctx.ops, Tensor(DType::kF32, {}), "zero", node.loc);
  const auto padded = [&](ValueId id, const std::vector<int64_t>& low, const std::vector<int64_t>& high,
                          const std::string& name) {
    return builder.add(ctx.ops.get("pad"), {id, zero},
                       {{"low", low}, {"high", high}, {"mode", std::string("constant")}}, name);
  };
  Widened result;
  result.x = padded(inputs[0], padding.low, padding.high, graph.value(node.inputs[0]).name + ".padded");
  result.w = padded(inputs[1], {0, 0, 0, 0}, {0, 0, 0, column}, graph.value(node.inputs[1]).name + ".even");
  result.attrs = std::move(padding.others);
  return result;
}

}  // namespace

Graph lower_precision(const Graph& graph, const PassContext& ctx) {
  if (ctx.precision != DType::kBF16 && ctx.precision != DType::kF16) return graph;
  // What is rounded: the operands; of views and transposes of values that nobody else reads, what they are of.
  const std::vector<bool> is_output = output_mask(graph);
  const std::vector<int> uses = use_counts(graph);
  std::vector<bool> rounded(graph.values().size(), false);
  for (const Node& node : graph.nodes()) {
    if (!has_weights(graph, node, ctx) || pairs_columns(graph, node, ctx)) continue;
    ValueId id = node.inputs[0];
    for (const Node* from = graph.producer(id); uses[static_cast<size_t>(id)] == 1 && from; from = graph.producer(id)) {
      if (!is_op(from, "reshape") && !is_op(from, "transpose")) break;
      id = from->inputs[0];
    }
    if (!is_known(graph, id)) rounded[static_cast<size_t>(id)] = true;
    if (rounds_weights(graph, node, ctx)) rounded[static_cast<size_t>(node.inputs[1])] = true;
  }

  // Weights in blocks, which their other readers, look-ups, read as they are.
  const auto is_blocked = [&](ValueId id) {
    const Node* producer = graph.producer(id);
    return producer && dequantizes_weights(graph, *producer);
  };
  GraphRewriter rewriter(graph);
  GraphBuilder builder(rewriter.target());
  const auto round = [&](ValueId id, const std::string& name) {
    const ValueId narrow = builder.add(ctx.ops.get("cast"), {id}, {{"to", ctx.precision}}, name + ".narrow");
    return builder.add(ctx.ops.get("cast"), {narrow}, {{"to", DType::kF32}}, name + ".rounded");
  };
  // Inputs, outputs and weights keep their values for whoever else reads them; the rounded form, made when the first
  // node wants it.
  std::vector<ValueId> rounded_form(graph.values().size(), -1);
  const auto reads_rounded = [&](const Node& node, size_t operand) {
    const ValueId id = node.inputs[operand];
    const auto number = static_cast<size_t>(id);
    if (!rounded[number]) return false;
    if (is_known(graph, id) || is_blocked(id))
      return operand == 1 && has_weights(graph, node, ctx) && rounds_weights(graph, node, ctx);
    // What is on its way to a product, and an input of the model for every reader.
    if (is_output[number]) return has_weights(graph, node, ctx) || is_op(&node, "reshape") || is_op(&node, "transpose");
    return graph.value(id).producer < 0;
  };
  return rewriter.run([&](GraphRewriter& r, const Node& node, const std::vector<ValueId>& inputs) {
    std::vector<ValueId> operands = inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!reads_rounded(node, i)) continue;
      ValueId& form = rounded_form[static_cast<size_t>(node.inputs[i])];
      if (form < 0) {
        builder.set_loc(node.loc);
        form = round(inputs[i], graph.value(node.inputs[i]).name);
      }
      operands[i] = form;
    }
    const bool rounds_result = node.outputs.size() == 1 && rounded[static_cast<size_t>(node.outputs[0])] &&
                               !is_output[static_cast<size_t>(node.outputs[0])] && node.op->kind != OpKind::kConstant &&
                               !is_blocked(node.outputs[0]);
    std::vector<ValueId> results;
    if (pairs_columns(graph, node, ctx)) {
      builder.set_loc(node.loc);
      const Widened wide = widen(graph, node, inputs, builder, ctx);
      operands[0] = round(wide.x, graph.value(node.inputs[0]).name);
      operands[1] = round(wide.w, graph.value(node.inputs[1]).name);
      results = {builder.add(*node.op, operands, wide.attrs, graph.value(node.outputs[0]).name)};
    } else {
      if (operands == inputs && !rounds_result) return std::vector<ValueId>{};
      results = r.copy(node, operands);
    }
    if (rounds_result) {
      builder.set_loc(node.loc);
      results[0] = round(results[0], graph.value(node.outputs[0]).name);
    }
    return results;
  });
}

}  // namespace tessera::inline graph_passes
