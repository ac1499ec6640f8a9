#include "graph_passes/fusion/concat_in_place.h"

#include <algorithm>
#include <map>

#include "arith/simplify.h"
#include "graph/slices.h"
#include "graph_passes/support/graph_util.h"

namespace tessera::inline graph_passes {
namespace {

int64_t typical_elements(const TensorType& type) {
  int64_t count = 1;
  for (const Expr& dim : type.shape) count *= typical_size(dim);
  return count;
}

class Placer {
 public:
  Placer(const Graph& graph, Remarks* remarks)
      : users_(graph.users()), outputs_(output_mask(graph)), rewriter_(graph), remarks_(remarks) {}

  Graph run() {
    Graph result = rewriter_.run(
        [&](GraphRewriter&, const Node& node, const std::vector<ValueId>& inputs) { return visit(node, inputs); });
    unmark(result);
    if (remarks_) report(result);
    return result;
  }

 private:
  const Graph& source() const { return rewriter_.source(); }
  Graph& target() { return rewriter_.target(); }

  static bool is_injective(const Graph& graph, const Node& node) {
    return node.op->kind == OpKind::kExpression && !node_body(graph, node).is_reduction();
  }

  // All readers are element-wise work that a concat or a slice would be fused with.
  bool fuses_with_readers(ValueId value) const {
    const auto& readers = users_[static_cast<size_t>(value)];
    return !readers.empty() && !outputs_[static_cast<size_t>(value)] &&
           std::all_of(readers.begin(), readers.end(), [&](NodeId reader) {
             const Node& node = source().node(reader);
             return node.op->name != "concat" && is_injective(source(), node);
           });
  }

  std::vector<ValueId> visit(const Node& node, const std::vector<ValueId>& inputs) {
    if (node.op->name == "slice" && slice_is_view(node)) return marked(node, inputs);
    if (node.op->name == "concat" && concat_is_in_place(node)) {
      std::vector<ValueId> operands = with_prefix(node, inputs);
      const std::vector<ValueId> result = marked(node, operands);
      // The longest list of operands that this one can stand for.
      by_operands_[{node.attrs.get_int("axis"), inputs}] = result[0];
      return result;
    }
    return {};
  }

  std::vector<ValueId> marked(const Node& node, const std::vector<ValueId>& inputs) {
    Node copy = node;
    copy.attrs.set("in_place", int64_t{1});
    return rewriter_.copy(copy, inputs);
  }

  bool slice_is_view(const Node& node) const {
    const ValueId result = node.outputs[0];
    const auto offset = contiguous_slice(source(), node);
    if (!offset || outputs_[static_cast<size_t>(storage_of_output(result))]) return false;
    const ValueId storage = storage_value(source(), node.inputs[0]);
    const Node* producer = source().producer(storage);
    if (!producer) return true;  // a graph input
    if (producer->op->kind != OpKind::kExpression || producer->outputs.size() != 1) return false;
    return !is_injective(source(), *producer) || producer->op->name == "concat";
  }

  // A view of the slice may be an output of the graph, which has memory of its own.
  ValueId storage_of_output(ValueId slice) const {
    for (const ValueId output : source().outputs)
      if (storage_value(source(), output) == slice) return output;
    return slice;
  }

  bool concat_is_in_place(const Node& node) const {
    const TensorType& whole = source().type(node.outputs[0]);
    const auto axis = static_cast<int>(node.attrs.get_int("axis"));
    Expr start = 0;
    int64_t direct = 0, all = 0;
    bool computed_element_by_element = false;
    for (const ValueId operand : node.inputs) {
      const TensorType& type = source().type(operand);
      if (!contiguous_part(whole, type, axis, start)) return false;
      start = normalize_size(start + type.shape[static_cast<size_t>(axis)]);
      all += typical_elements(type);
      const Node* producer = source().producer(storage_value(source(), operand));
      if (!producer || producer->op->kind != OpKind::kExpression || producer->outputs.size() != 1) continue;
      direct += typical_elements(type);
      computed_element_by_element |= producer->op->name != "concat" && is_injective(source(), *producer);
    }
    if (extends_input(source(), node)) return true;
    // Within a kernel every element asks part by part where it belongs.
    constexpr size_t kFewParts = 8;
    if (fuses_with_readers(node.outputs[0]) && node.inputs.size() <= kFewParts)
      return direct == all && !computed_element_by_element;
    return direct * 2 > all;
  }

  // A graph input with more behind it, as an output: a cache that grows. Whoever gives both the same memory has nothing
  // copied.
  static bool extends_input(const Graph& graph, const Node& node) {
    const auto is_in = [](const std::vector<ValueId>& values, ValueId value) {
      return std::find(values.begin(), values.end(), value) != values.end();
    };
    return node.op->name == "concat" && is_in(graph.outputs, node.outputs[0]) && is_in(graph.inputs, node.inputs[0]);
  }

  // The operands with the longest list that an earlier concat has put together replaced by its result.
  std::vector<ValueId> with_prefix(const Node& node, const std::vector<ValueId>& inputs) const {
    for (size_t length = inputs.size() - 1; length >= 2; --length) {
      const std::vector<ValueId> prefix(inputs.begin(), inputs.begin() + static_cast<std::ptrdiff_t>(length));
      const auto it = by_operands_.find({node.attrs.get_int("axis"), prefix});
      if (it == by_operands_.end()) continue;
      std::vector<ValueId> operands = {it->second};
      operands.insert(operands.end(), inputs.begin() + static_cast<std::ptrdiff_t>(length), inputs.end());
      return operands;
    }
    return inputs;
  }

  void report(const Graph& graph) {
    for (const Node& node : graph.nodes()) {
      if (!is_in_place(node)) continue;
      remarks_->done("concat_in_place", node.loc,
                     node.op->name == "slice" ? "its result is a part of the operand's memory"
                                              : "its operands are computed in the result's memory");
    }
  }

  // Operands of several concats can be placed in one of them only: those left with mostly copies fuse as before.
  static void unmark(Graph& graph) {
    for (bool changed = true; changed;) {
      changed = false;
      const auto placed = place_operands(graph);
      for (size_t i = 0; i < placed.size(); ++i) {
        const Node& node = graph.nodes()[i];
        int64_t direct = 0, all = 0;
        for (size_t operand = 0; operand < placed[i].size(); ++operand) {
          const int64_t count = typical_elements(graph.type(node.inputs[operand]));
          all += count;
          if (placed[i][operand].storage >= 0) direct += count;
        }
        if (placed[i].empty() || direct * 2 > all || extends_input(graph, node)) continue;
        graph.node(static_cast<NodeId>(i)).attrs.set("in_place", int64_t{0});
        changed = true;
      }
    }
  }

  const std::vector<std::vector<NodeId>> users_;
  const std::vector<bool> outputs_;
  GraphRewriter rewriter_;
  Remarks* remarks_;                                                         // may be null
  std::map<std::pair<int64_t, std::vector<ValueId>>, ValueId> by_operands_;  // in the target
};

}  // namespace

Graph concat_in_place(const Graph& graph, const PassContext& ctx) { return Placer(graph, ctx.remarks).run(); }

}  // namespace tessera::inline graph_passes
