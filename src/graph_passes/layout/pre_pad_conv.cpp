#include "graph_passes/layout/pre_pad_conv.h"

#include <algorithm>

#include "graph_passes/support/graph_util.h"

namespace tessera::inline graph_passes {
namespace {

// Of a window, for each of which there may be code of its own.
constexpr int64_t kMostColumns = 32;

// The innermost dimension in which the convolution's output moves; -1 when there is none.
int column_axis(const TensorType& y) {
  for (int d = y.rank() - 1; d >= 2; --d)
    if (!is_const_int(y.shape[static_cast<size_t>(d)], 1)) return d;
  return -1;
}

bool applies(const Graph& graph, const Node& node) {
  if (!is_op(&node, "conv") || !all_of_list(node, "input_dilations", 1)) return false;
  const int axis = column_axis(graph.type(node.outputs[0]));
  if (axis < 0) return false;
  const auto columns = as_int(graph.type(node.inputs[1]).shape[static_cast<size_t>(axis)]);
  const auto d = static_cast<size_t>(axis) - 2;
  return columns && *columns > kMostColumns &&
         (node.attrs.get_ints("pads_begin")[d] != 0 || node.attrs.get_ints("pads_end")[d] != 0);
}

}  // namespace

Graph pre_pad_conv(const Graph& graph, const PassContext& ctx) {
  return GraphRewriter(graph).run(
      [&](GraphRewriter& rewriter, const Node& node, const std::vector<ValueId>& inputs) -> std::vector<ValueId> {
        if (!applies(graph, node)) return {};
        const std::string& name = graph.value(node.outputs[0]).name;
        const ConvPadding padding = take_padding(node);
        GraphBuilder builder(rewriter.target());
        builder.set_loc(node.loc);
        const DType dtype = graph.type(node.inputs[0]).dtype;
        const ValueId zero = add_constant(rewriter.target(), ctx.ops, Tensor(dtype, {}), name + ".zero", node.loc);
        const ValueId padded = builder.add(
            ctx.ops.get("pad"), {inputs[0], zero},
            {{"low", padding.low}, {"high", padding.high}, {"mode", std::string("constant")}}, name + ".padded");
        if (ctx.remarks)
          ctx.remarks->done("pre_pad_conv", node.loc, "its window has many columns: the image is padded beforehand");
        return {builder.add(*node.op, {padded, inputs[1]}, padding.others, name)};
      });
}

}  // namespace tessera::inline graph_passes
