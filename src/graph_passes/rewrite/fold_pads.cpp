#include "graph_passes/rewrite/fold_pads.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "graph_passes/rewrite/algebra_conditions.h"
#include "graph_passes/support/graph_util.h"

namespace tessera::inline graph_passes {
namespace {

using Ints = std::vector<int64_t>;

// Whether `value` takes no part in a maximum of this type.
bool is_lowest(const Tensor& value) {
  switch (value.dtype()) {
    case DType::kF32: return value.get_double(0) <= -std::numeric_limits<float>::max();
    case DType::kF64: return value.get_double(0) <= -std::numeric_limits<double>::max();
    default: return std::isinf(value.get_double(0)) && value.get_double(0) < 0;
  }
}

// Whether every window of a pooling reaches an element of the image.
bool windows_reach_elements(const Node& pool, const Ints& begin, const Ints& end) {
  const Ints& window = pool.attrs.get_ints("window");
  for (size_t d = 0; d < window.size(); ++d)
    if (pool.attrs.get_ints("dilations")[d] != 1 || begin[d] >= window[d] || end[d] >= window[d]) return false;
  return true;
}

bool may_take(const Graph& graph, const Node& node, const Node& pad, const Ints& begin, const Ints& end) {
  const Tensor* value = constant_value(graph, pad.inputs[1]);
  if (!value) return false;
  const double number = value->get_double(0);
  const Ints gaps = node.attrs.get_or<Ints>("input_dilations", {});
  if (std::any_of(gaps.begin(), gaps.end(), [](int64_t g) { return g != 1; })) return false;
  if (node.op->name == "conv") return number == 0;
  const std::string& kind = node.attrs.get<std::string>("kind");
  if (kind == "sum") return number == 0;
  if (kind != "max") return false;
  // A maximum of nothing but padding would differ: all-lowest windows give -inf where the pad gave the lowest number.
  if (!windows_reach_elements(node, begin, end)) return false;
  return is_lowest(*value) || (number == 0 && never_negative(graph, pad.inputs[0]));
}

}  // namespace

Graph fold_pads(const Graph& graph, const PassContext& ctx) {
  return GraphRewriter(graph).run(
      [&](GraphRewriter& rewriter, const Node& node, const std::vector<ValueId>& inputs) -> std::vector<ValueId> {
        if (!is_op(&node, "conv") && !is_op(&node, "reduce_window")) return {};
        const Node* pad = graph.producer(node.inputs[0]);
        if (!is_op(pad, "pad") || pad->attrs.get<std::string>("mode") != "constant") return {};
        const auto lows = static_dims(pad->attrs.get_sizes("low")), highs = static_dims(pad->attrs.get_sizes("high"));
        if (!lows || !highs) return {};  // a window's padding is a number
        const Ints &low = *lows, &high = *highs;
        for (size_t d = 0; d < low.size(); ++d)
          if (low[d] < 0 || high[d] < 0 || (d < 2 && (low[d] != 0 || high[d] != 0))) return {};
        Ints begin = node.attrs.get_ints("pads_begin"), end = node.attrs.get_ints("pads_end");
        for (size_t d = 0; d < begin.size(); ++d) {
          begin[d] += low[d + 2];
          end[d] += high[d + 2];
        }
        if (!may_take(graph, node, *pad, begin, end)) return {};
        Node copy = node;
        copy.loc = join_locs({pad->loc, node.loc});
        if (ctx.remarks) ctx.remarks->done("fold_pads", copy.loc, "the pad is padding of the window");
        copy.attrs.set("pads_begin", begin);
        copy.attrs.set("pads_end", end);
        std::vector<ValueId> operands = inputs;
        operands[0] = rewriter.mapped(pad->inputs[0]);
        return rewriter.copy(copy, operands);
      });
}

}  // namespace tessera::inline graph_passes
