#include "graph_passes/rewrite/decompose.h"

#include <algorithm>
#include <functional>

#include "graph_passes/rewrite/raise_to_composites.h"
#include "graph_passes/support/graph_util.h"

namespace tessera::inline graph_passes {
namespace {

using IsKept = std::function<bool(const Node& composite)>;

bool is_one_of(const Node& node, std::span<const std::string_view> names) {
  return std::any_of(names.begin(), names.end(), [&](std::string_view name) { return is_composite(&node, name); });
}

Graph open(const Graph& graph, const OpTable& ops, const IsKept& kept) {
  return GraphRewriter(graph).run(
      [&](GraphRewriter& rewriter, const Node& node, const std::vector<ValueId>& inputs) -> std::vector<ValueId> {
        if (node.op->kind != OpKind::kComposite) return {};
        if (kept(node)) return {};
        Graph& target = rewriter.target();
        const std::string& name = graph.value(node.outputs[0]).name;
        // Regions may hold composites themselves.
        const Graph region = open(*node.regions[0], ops, kept);
        std::vector<ValueId> results = inline_region(target, region, inputs, name, node.loc);
        // A result that is an operand as it is could not take over the name of a graph output: give it a node.
        for (ValueId& result : results) {
          if (std::find(inputs.begin(), inputs.end(), result) == inputs.end()) continue;
          Node view;
          view.op = &ops.get("reshape");
          view.inputs = {result};
          view.attrs.set("shape", target.type(result).shape);
          view.loc = node.loc;
          const TensorType type = target.type(result);
          result = target.node(target.add_node(std::move(view), {type}, {name})).outputs[0];
        }
        return results;
      });
}

}  // namespace

Graph decompose(const Graph& graph, const PassContext& ctx) {
  std::vector<std::string_view> keep = {"batch_norm"};
  keep.insert(keep.end(), recognized_composites().begin(), recognized_composites().end());
  return open(graph, ctx.ops, [&](const Node& node) { return is_one_of(node, keep); });
}

Graph decompose_all(const Graph& graph, const PassContext& ctx) {
  return open(graph, ctx.ops, [](const Node&) { return false; });
}

Graph open_composites(const Graph& graph, const OpTable& ops, std::span<const std::string_view> names) {
  return open(graph, ops, [&](const Node& node) { return !is_one_of(node, names); });
}

}  // namespace tessera::inline graph_passes
