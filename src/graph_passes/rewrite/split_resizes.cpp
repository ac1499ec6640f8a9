#include "graph_passes/rewrite/split_resizes.h"

#include "arith/simplify.h"
#include "graph_passes/support/graph_util.h"

namespace tessera::inline graph_passes {

Graph split_resizes(const Graph& graph, const PassContext& ctx) {
  return GraphRewriter(graph).run([&](GraphRewriter& rewriter, const Node& node,
                                      const std::vector<ValueId>& inputs) -> std::vector<ValueId> {
    if (node.op->name != "resize" || node.inputs.size() > 1 || node.attrs.get<std::string>("mode") == "nearest") return {};
    const TensorType& x = graph.type(node.inputs[0]);
    // Of tf_half_pixel even a dimension that keeps its extent moves.
    if ((x.dtype != DType::kF32 && x.dtype != DType::kF64) ||
        node.attrs.get<std::string>("coordinate") == "tf_half_pixel_for_nn")
      return {};
    const Shape &from = x.shape, to = node.attrs.get_sizes("sizes");
    const auto& scales = node.attrs.get<std::vector<double>>("scales");
    std::vector<size_t> resized;
    for (size_t d = 0; d < from.size(); ++d)
      if (!equal_sizes(from[d], to[d]) || (scales[d] != 1 && scales[d] != 0)) resized.push_back(d);
    if (resized.size() < 2) return {};
    GraphBuilder builder(rewriter.target());
    builder.set_loc(node.loc);
    const std::string& name = graph.value(node.outputs[0]).name;
    Shape sizes = from;
    ValueId y = inputs[0];
    for (const size_t d : resized) {
      std::vector<double> scale(from.size(), 1);
      scale[d] = scales[d];
      sizes[d] = to[d];
      Attrs attrs = node.attrs;
      attrs.set("scales", scale);
      attrs.set("sizes", sizes);
      y = builder.add(ctx.ops.get("resize"), {y}, attrs, d == resized.back() ? name : name + "." + std::to_string(d));
    }
    return {y};
  });
}

}  // namespace tessera::inline graph_passes
