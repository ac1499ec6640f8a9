#include "graph_passes/rewrite/separate_max_pool.h"

#include <algorithm>
#include <string_view>

#include "arith/simplify.h"
#include "graph_passes/support/graph_util.h"

namespace tessera::inline graph_passes {
namespace {

constexpr int64_t kPass = 4;  // comparisons in the time that writing and reading an element takes; measured on Zen 5

}  // namespace

Graph separate_max_pool(const Graph& graph, const PassContext& ctx) {
  return GraphRewriter(graph).run(
      [&](GraphRewriter& rewriter, const Node& node, const std::vector<ValueId>& inputs) -> std::vector<ValueId> {
        if (node.op->name != "reduce_window" || node.attrs.get<std::string>("kind") == "sum") return {};
        const TensorType& result = graph.type(node.outputs[0]);
        const TensorType& x = graph.type(node.inputs[0]);
        const std::vector<int64_t> window = node.attrs.get_ints("window");
        std::vector<int64_t> from, to;
        for (const Expr& dim : x.shape) from.push_back(typical_size(dim));
        for (const Expr& dim : result.shape) to.push_back(typical_size(dim));
        for (const auto* dims : {&from, &to})
          if (std::count(dims->begin(), dims->end(), 0) > 0) return {};
        const size_t rank = window.size();

        // Comparisons for each image: of the window as it is, and step by step over what is left of the image.
        int64_t whole = 1, steps = 0, size = 1;
        for (size_t d = 0; d < rank; ++d) {
          whole *= window[d] * to[d + 2];
          size *= from[d + 2];
        }
        std::vector<size_t> split;
        for (size_t d = rank; d-- > 0;) {
          const bool steps_on = node.attrs.get_ints("strides")[d] != 1 || node.attrs.get_ints("pads_begin")[d] != 0 ||
                                node.attrs.get_ints("pads_end")[d] != 0;
          if (window[d] == 1 && !steps_on) continue;
          split.push_back(d);
          size = size / from[d + 2] * to[d + 2];
          steps += size * (window[d] + kPass);
        }
        if (split.size() < 2 || 4 * steps > 3 * whole) return {};

        GraphBuilder builder(rewriter.target());
        builder.set_loc(node.loc);
        const std::string& name = graph.value(node.outputs[0]).name;
        ValueId y = inputs[0];
        for (const size_t d : split) {
          Attrs attrs = node.attrs;
          for (const char* list : {"window", "strides", "dilations", "pads_begin", "pads_end"}) {
            const bool pads = std::string_view(list).starts_with("pads");
            std::vector<int64_t> values(rank, pads ? 0 : 1);
            values[d] = node.attrs.get_ints(list)[d];
            attrs.set(list, values);
          }
          y = builder.add(ctx.ops.get("reduce_window"), {y}, attrs,
                          d == split.back() ? name : name + "." + std::to_string(d + 2));
        }
        return {y};
      });
}

}  // namespace tessera::inline graph_passes
