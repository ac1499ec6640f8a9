#include "graph_passes/rewrite/fold_constants.h"

#include <algorithm>
#include <optional>

#include "graph/tensor_text.h"
#include "graph_passes/support/graph_util.h"
#include "graph_passes/support/operand_access.h"
#include "graph_passes/support/regions.h"
#include "types/collective.h"

namespace tessera::inline graph_passes {
namespace {

constexpr int64_t kAlwaysBytes = 64 << 10;  // results up to this size are folded whatever they come from
constexpr int64_t kMaxWork = 200'000'000;   // elements times reduced elements: a few seconds of the interpreter

// Iterations of the node's body; -1 when unknown.
int64_t work_of(const Graph& graph, const Node& node, int64_t result_elements) {
  if (node.op->kind != OpKind::kExpression) return result_elements;
  int64_t work = result_elements;
  for (const Axis& axis : node_body(graph, node).reduce_axes) {
    const auto extent = as_int(axis.extent);
    if (!extent || __builtin_mul_overflow(work, *extent, &work)) return -1;
  }
  return work;
}

// The values that a contraction takes, directly or through operators on them alone. As constants they are weights,
// which its kernels pack while compiling; left to be computed, all that these kernels gain would be lost.
std::vector<bool> weight_mask(const Graph& graph) {
  std::vector<bool> mask(graph.values().size(), false);
  for (auto node = graph.nodes().rbegin(); node != graph.nodes().rend(); ++node) {
    const bool is_weight = node->outputs.size() == 1 && mask[static_cast<size_t>(node->outputs[0])];
    const bool is_contraction =
        node->op->kind == OpKind::kExpression && node->inputs.size() == 2 && accesses_of(graph, *node).contraction;
    if (!is_weight && !is_contraction) continue;
    for (const ValueId input : node->inputs) mask[static_cast<size_t>(input)] = true;
  }
  return mask;
}

// `is_weight` is asked only where the answer depends on it.
template <typename IsWeight>
bool worth_folding(const Graph& graph, const Node& node, const IsWeight& is_weight) {
  int64_t operand_bytes = 0, result_bytes = 0, result_elements = 0;
  for (const ValueId input : node.inputs) {
    const Tensor* tensor = constant_value(graph, input);
    if (!tensor || tensor->dtype() == DType::kString) return false;
    operand_bytes += tensor->num_bytes();
  }
  for (const ValueId output : node.outputs) {
    const TensorType& type = graph.type(output);
    const auto dims = static_dims(type.shape);
    if (!dims || !type.layout.row_major() || type.dtype == DType::kString) return false;
    const auto bytes = checked_bytes(type.dtype, *dims);
    if (!bytes) return false;
    result_bytes += *bytes;
    result_elements += type.num_elements();
  }
  if (result_bytes > std::max(kAlwaysBytes, 2 * operand_bytes) && !is_weight()) return false;
  const int64_t work = work_of(graph, node, result_elements);
  return work >= 0 && work <= kMaxWork;
}

// Whether the node numbers places for choices that a run makes, as arg max does: kernels know these numbers without
// reading them.
bool counts_for_choices(const Graph& graph, const Node& node, const std::vector<std::vector<NodeId>>& users) {
  if (node.op->name != "iota") return false;
  const ValueId places = node.outputs[0];
  const auto& readers = users[static_cast<size_t>(places)];
  const bool is_output = std::find(graph.outputs.begin(), graph.outputs.end(), places) != graph.outputs.end();
  return !is_output && !readers.empty() && std::all_of(readers.begin(), readers.end(), [&](NodeId id) {
    const Node& reader = graph.node(id);
    return reader.op->name == "select" && reader.inputs[0] != places && !constant_value(graph, reader.inputs[0]);
  });
}

// A graph that is this node alone, its operands as inputs.
Graph alone(const Graph& graph, const Node& node) {
  Graph single;
  Node copy = node;
  copy.inputs.clear();
  for (const ValueId input : node.inputs) copy.inputs.push_back(single.add_input("in", graph.type(input)));
  std::vector<TensorType> types;
  for (const ValueId output : node.outputs) types.push_back(graph.type(output));
  single.outputs = single.node(single.add_node(std::move(copy), std::move(types))).outputs;
  return single;
}

std::vector<ValueId> fold_node(GraphRewriter& rewriter, const PassContext& ctx, const Node& node,
                               const std::vector<ValueId>& inputs) {
  std::vector<ValueId> results = fold_control_flow(rewriter.target(), ctx.ops, rewriter.source(), node, inputs);
  if (!results.empty()) {
    if (ctx.remarks) ctx.remarks->done("fold_constants", node.loc, "its condition or count is known");
    return results;
  }
  auto changed = with_constants_inside(rewriter.target(), node, inputs);
  return changed ? rewriter.copy(*changed, changed->inputs) : std::vector<ValueId>{};
}

}  // namespace

Graph fold_constants(const Graph& graph, const PassContext& ctx) {
  std::optional<std::vector<bool>> weights;  // of `graph`; found when the first node asks
  const std::vector<std::vector<NodeId>> users = graph.users();
  return GraphRewriter(graph).run(
      [&](GraphRewriter& rewriter, const Node& node, const std::vector<ValueId>& inputs) -> std::vector<ValueId> {
        if (node.op->kind == OpKind::kConstant || node.op->kind == OpKind::kGroup || has_symbolic_attrs(node))
          return {};
        Graph& target = rewriter.target();
        // Ranks whose constants are parts of one have others each.
        if (find_collective_kind(node.op->name)) return {};
        // Weights stay in their blocks: kernels read a fraction of the bytes.
        if (node.op->name == "dequantize_blocks") return {};
        if (counts_for_choices(graph, node, users)) return {};
        if (is_control_flow(node)) return fold_node(rewriter, ctx, node, inputs);
        std::vector<Tensor> operands;
        for (const ValueId input : inputs) {
          const Tensor* tensor = constant_value(target, input);
          if (!tensor) return {};
          operands.push_back(*tensor);
        }
        const std::vector<ValueId> outputs = rewriter.copy(node, inputs);
        const auto is_weight = [&] {
          if (!weights) weights = weight_mask(graph);
          return node.outputs.size() == 1 && (*weights)[static_cast<size_t>(node.outputs[0])];
        };
        if (!worth_folding(target, target.node(target.value(outputs[0]).producer), is_weight)) return outputs;
        std::vector<Tensor> results =
            ctx.evaluator.evaluate(alone(target, target.node(target.value(outputs[0]).producer)), operands);
        if (ctx.remarks) ctx.remarks->done("fold_constants", node.loc, "evaluated while compiling");
        std::vector<ValueId> folded;
        for (size_t i = 0; i < results.size(); ++i) {
          // The constant takes over the name; the copied node is dead.
          const std::string name = target.value(outputs[i]).name;
          target.rename(outputs[i], target.unique_name(name + ".unfolded"));
          folded.push_back(add_constant(target, ctx.ops, std::move(results[i]), name, node.loc));
        }
        return folded;
      });
}

}  // namespace tessera::inline graph_passes
