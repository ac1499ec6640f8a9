#include "graph_passes/quantized/lower_precision.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

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

bool multiplies_in_tiles(const Node& node, const PassContext& ctx) {
  return ctx.precision_of(node) == DType::kBF16 && ctx.family.multiplies_in_tiles(DType::kBF16, DType::kBF16);
}

// A product with weights in blocks of a few bits.
bool has_blocked_weights(const Graph& graph, const Node& node) {
  const Node* weights = is_op(&node, "matmul") ? graph.producer(node.inputs[1]) : nullptr;
  return weights && reads_in_blocks(graph, *weights, node);
}

// One that many rows multiply in tiles. Without these the floats of such weights stay what they are.
bool multiplies_blocks_in_tiles(const Graph& graph, const Node& node, const PassContext& ctx) {
  constexpr int64_t kTileTerms = 32;
  if (!has_blocked_weights(graph, node) || !multiplies_in_tiles(node, ctx)) return false;
  const auto terms = as_int(graph.type(node.inputs[1]).shape.back());
  return terms && *terms % kTileTerms == 0;
}

// A convolution or product with weights.
bool has_weights(const Graph& graph, const Node& node, const PassContext& ctx) {
  return (is_op(&node, "conv") || is_op(&node, "matmul")) && is_f32(graph, node.inputs[0]) &&
         is_f32(graph, node.inputs[1]) && !is_known(graph, node.inputs[0]) &&
         (is_known(graph, node.inputs[1]) || arrives(graph, node) || multiplies_blocks_in_tiles(graph, node, ctx));
}

// A product of two values on a device that multiplies tiles of 16-bit floats whatever they are.
bool multiplies_values(const Graph& graph, const Node& node, const PassContext& ctx) {
  if (!ctx.device_products || !is_op(&node, "matmul") || has_weights(graph, node, ctx)) return false;
  for (const ValueId id : {node.inputs[0], node.inputs[1]})
    if (!is_f32(graph, id) || is_known(graph, id) || graph.type(id).rank() < 2) return false;
  const auto device = ctx.device_products(node);
  const auto terms = as_int(graph.type(node.inputs[0]).shape.back());
  return device && device->narrow_values && (!terms || *terms >= kLeastTerms);
}

// Exponentials by their sum, or times its inverse: a device's kernel may divide behind the product with values, and
// rounds the exponentials itself (schedule/gpu/gpu_attention.h).
bool is_softmax(const Graph& graph, ValueId id) {
  const Node* node = graph.producer(id);
  if (!is_op(node, "div") && !is_op(node, "mul")) return is_composite(node, "softmax");
  return std::any_of(node->inputs.begin(), node->inputs.end(),
                     [&](ValueId input) { return is_op(graph.producer(input), "exp"); });
}

// Tiles multiply bf16 sixteen times as fast as vectors multiply f32, of which filtering saves a factor of 2.5.
bool suits_winograd(const Graph& graph, const Node& node, const PassContext& ctx) {
  return !multiplies_in_tiles(node, ctx) && suits_minimal_filtering(graph, node);
}

bool rounds_weights(const Graph& graph, const Node& node, const PassContext& ctx) {
  const Shape& w = graph.type(node.inputs[1]).shape;
  // Tiles are filled up with zeros; vectors take pairs.
  const auto suits = [&](const std::optional<int64_t>& terms) {
    return terms && *terms >= kLeastTerms && (*terms % 2 == 0 || multiplies_in_tiles(node, ctx));
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
  if (ctx.precision_of(node) != DType::kBF16 || !products || !products->in_vectors) return false;
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

bool is_narrow(DType precision) { return precision == DType::kBF16 || precision == DType::kF16; }

bool is_view(const Node* node) { return is_op(node, "reshape") || is_op(node, "transpose"); }

// What the values of a graph are rounded to, and where.
class Roundings {
 public:
  Roundings(const Graph& graph, const PassContext& ctx)
      : graph_(graph),
        ctx_(ctx),
        is_output_(output_mask(graph)),
        wanted_(graph.values().size(), DType::kF32),
        is_apart_(graph.values().size(), false) {
    if (ctx.plan && !ctx.plan->empty()) keep_what_is_read_as_it_is();
    const std::vector<int> uses = use_counts(graph);
    for (const Node& node : graph.nodes()) {
      const DType precision = ctx.precision_of(node);
      if (is_narrow(precision) && multiplies_values(graph, node, ctx)) {
        if (!is_softmax(graph, node.inputs[0])) want_value(node.inputs[0], uses, precision);
        want_value(node.inputs[1], uses, precision);
      }
      if (!is_narrow(precision) || !has_weights(graph, node, ctx) || pairs_columns(graph, node, ctx)) continue;
      want_value(node.inputs[0], uses, precision);
      if (rounds_weights(graph, node, ctx)) want(node.inputs[1], precision);
    }
  }

  // f32: the value is not rounded where it is made.
  DType of_result(const Node& node) const {
    if (node.outputs.size() != 1 || node.op->kind == OpKind::kConstant) return DType::kF32;
    const auto number = static_cast<size_t>(node.outputs[0]);
    return is_output_[number] || is_apart_[number] || is_blocked(node.outputs[0]) ? DType::kF32 : wanted_[number];
  }

  // What the node reads instead of an operand that is not rounded where it is made; f32: the operand.
  DType of_operand(const Node& node, size_t operand) const {
    const ValueId id = node.inputs[operand];
    const auto number = static_cast<size_t>(id);
    const DType wanted = wanted_[number];
    if (!is_narrow(wanted)) return DType::kF32;
    const bool is_product = is_narrow(ctx_.precision_of(node)) &&
                            (has_weights(graph_, node, ctx_) || multiplies_values(graph_, node, ctx_));
    const DType own = is_product ? ctx_.precision_of(node) : DType::kF32;
    if (is_known(graph_, id) || is_blocked(id))
      return operand == 1 && is_product && rounds_weights(graph_, node, ctx_) ? own : DType::kF32;
    if (is_apart_[number]) return own;
    // What is on its way to a product, and an input of the model for every reader.
    if (is_output_[number]) return is_product ? own : is_view(&node) ? wanted : DType::kF32;
    return graph_.value(id).producer < 0 ? wanted : DType::kF32;
  }

 private:
  // Weights in blocks, which their other readers, look-ups, read as they are.
  bool is_blocked(ValueId id) const {
    const Node* producer = graph_.producer(id);
    return producer && dequantizes_weights(graph_, *producer);
  }

  // Of views and transposes of values that nobody else reads, what they are of.
  void want_value(ValueId id, const std::vector<int>& uses, DType precision) {
    for (const Node* from = graph_.producer(id); uses[static_cast<size_t>(id)] == 1 && is_view(from);
         from = graph_.producer(id)) {
      if (is_apart_[static_cast<size_t>(from->inputs[0])]) break;
      id = from->inputs[0];
    }
    if (!is_known(graph_, id)) want(id, precision);
  }
  void want(ValueId id, DType precision) {
    DType& wanted = wanted_[static_cast<size_t>(id)];
    if (is_narrow(wanted) && wanted != precision) is_apart_[static_cast<size_t>(id)] = true;
    wanted = precision;
  }

  // Values that a product in another precision reads are rounded by those who want it, each for itself.
  void keep_what_is_read_as_it_is() {
    for (const Node& node : graph_.nodes()) {
      if (is_narrow(ctx_.precision_of(node))) continue;
      if (!has_weights(graph_, node, ctx_) && !has_blocked_weights(graph_, node)) continue;
      is_apart_[static_cast<size_t>(node.inputs[1])] = true;
      ValueId id = node.inputs[0];
      is_apart_[static_cast<size_t>(id)] = true;
      for (const Node* from = graph_.producer(id); is_view(from); from = graph_.producer(id)) {
        id = from->inputs[0];
        is_apart_[static_cast<size_t>(id)] = true;
      }
    }
  }

  const Graph& graph_;
  const PassContext& ctx_;
  const std::vector<bool> is_output_;
  std::vector<DType> wanted_;
  std::vector<bool> is_apart_;  // rounded by its readers
};

// Which precision a product has, and why.
void say_precision(const Graph& graph, const Node& node, const PassContext& ctx) {
  if (!is_op(&node, "conv") && !is_op(&node, "matmul")) return;
  if (!is_f32(graph, node.inputs[0]) || !is_f32(graph, node.inputs[1])) return;
  const DType precision = ctx.precision_of(node);
  const std::string line = ctx.plan ? ctx.plan->line_for_location(node.loc) : "";
  const std::string why = line.empty() ? fmt::format("--precision {}", dtype_name(ctx.precision)) : "'" + line + "'";
  const auto say = [&](const std::string& what) { ctx.remarks->done("lower_precision", node.loc, what); };
  if (precision == DType::kF32) return say(fmt::format("f32, because of {}", why));
  if (precision == DType::kI8)
    return say(fmt::format("f32 in spite of {}, unless its weights are in blocks: quantize makes bytes", why));
  if (multiplies_values(graph, node, ctx))
    return say(fmt::format("both factors are {}, sums f32, because of {}", dtype_name(precision), why));
  if (!has_weights(graph, node, ctx))
    return say(fmt::format(
        "f32 in spite of {}: {}", why,
        has_blocked_weights(graph, node) ? "no tiles multiply these weights in blocks" : "neither factor is a weight"));
  const std::string narrow(dtype_name(precision));
  if (pairs_columns(graph, node, ctx) || rounds_weights(graph, node, ctx))
    return say(fmt::format("data and weights are {}, sums f32, because of {}", narrow, why));
  const bool filters = is_op(&node, "conv") && suits_winograd(graph, node, ctx);
  say(fmt::format(
      "data are {}, weights and sums f32, because of {}: {}", narrow, why,
      filters ? "minimal filtering in f32 does less work" : "weights need an even number of at least 16 terms"));
}

}  // namespace

Graph lower_precision(const Graph& graph, const PassContext& ctx) {
  const bool plans = ctx.plan && !ctx.plan->empty();
  if (ctx.remarks && (plans || ctx.precision != DType::kF32))
    for (const Node& node : graph.nodes()) say_precision(graph, node, ctx);
  if (!is_narrow(ctx.precision) && !(plans && ctx.plan->narrows())) return graph;
  const Roundings roundings(graph, ctx);
  GraphRewriter rewriter(graph);
  GraphBuilder builder(rewriter.target());
  const auto round = [&](ValueId id, DType to, const std::string& name) {
    const ValueId narrow = builder.add(ctx.ops.get("cast"), {id}, {{"to", to}}, name + ".narrow");
    return builder.add(ctx.ops.get("cast"), {narrow}, {{"to", DType::kF32}}, name + ".rounded");
  };
  // Inputs, outputs and weights keep their values for whoever else reads them; the rounded form, made when the first
  // node wants it.
  std::map<std::pair<ValueId, DType>, ValueId> rounded_form;
  return rewriter.run([&](GraphRewriter& r, const Node& node, const std::vector<ValueId>& inputs) {
    std::vector<ValueId> operands = inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const DType to = roundings.of_operand(node, i);
      if (!is_narrow(to)) continue;
      const auto [form, is_new] = rounded_form.try_emplace({node.inputs[i], to}, -1);
      if (is_new) {
        builder.set_loc(node.loc);
        form->second = round(inputs[i], to, graph.value(node.inputs[i]).name);
      }
      operands[i] = form->second;
    }
    const DType of_result = roundings.of_result(node);
    std::vector<ValueId> results;
    if (pairs_columns(graph, node, ctx)) {
      builder.set_loc(node.loc);
      const Widened wide = widen(graph, node, inputs, builder, ctx);
      operands[0] = round(wide.x, DType::kBF16, graph.value(node.inputs[0]).name);
      operands[1] = round(wide.w, DType::kBF16, graph.value(node.inputs[1]).name);
      results = {builder.add(*node.op, operands, wide.attrs, graph.value(node.outputs[0]).name)};
    } else {
      if (operands == inputs && !is_narrow(of_result)) return std::vector<ValueId>{};
      results = r.copy(node, operands);
    }
    if (is_narrow(of_result)) {
      builder.set_loc(node.loc);
      results[0] = round(results[0], of_result, graph.value(node.outputs[0]).name);
    }
    return results;
  });
}

}  // namespace tessera::inline graph_passes
