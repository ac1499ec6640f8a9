#include "graph_passes/rewrite/hoist_loop_invariants.h"

#include <algorithm>
#include <set>

#include "arith/simplify.h"
#include "graph/control_flow.h"
#include "graph_passes/rewrite/dce.h"
#include "graph_passes/support/graph_util.h"

namespace tessera::inline graph_passes {
namespace {

// The body of a loop, and the nodes of it that move.
class Invariants {
 public:
  explicit Invariants(const Node& loop, const Graph& body) : body_(body), is_alike_(body.values().size(), false) {
    const LoopParts parts = loop_parts(loop.attrs, loop.inputs.size(), body);
    for (size_t i = parts.first_invariant_input(); i < body.inputs.size(); ++i) mark(body.inputs[i]);
    for (const Node& node : body.nodes())
      if (std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) { return is_alike(v); }))
        for (const ValueId output : node.outputs) mark(output);
    // What differs from iteration to iteration reads them.
    for (const Node& node : body.nodes())
      if (!is_alike(node.outputs[0]))
        for (const ValueId input : node.inputs) offer(input);
    for (const ValueId output : body.outputs) offer(output);
  }

  // The nodes whose results become operands of the loop, in order.
  const std::set<NodeId>& moved() const { return moved_; }
  // Those, and what they need: in order.
  std::set<NodeId> with_operands() const {
    std::set<NodeId> nodes;
    for (const NodeId id : moved_) add_cone(id, nodes);
    return nodes;
  }

 private:
  void mark(ValueId v) { is_alike_[static_cast<size_t>(v)] = true; }
  bool is_alike(ValueId v) const { return is_alike_[static_cast<size_t>(v)]; }

  void add_cone(NodeId id, std::set<NodeId>& nodes) const {
    if (!nodes.insert(id).second) return;
    for (const ValueId input : body_.node(id).inputs)
      if (const NodeId producer = body_.value(input).producer; producer >= 0) add_cone(producer, nodes);
  }

  // The node of `v` moves, or what it is computed of is looked at instead.
  void offer(ValueId v) {
    const NodeId id = body_.value(v).producer;
    if (id < 0 || !is_alike(v) || !seen_.insert(id).second) return;
    if (pays(id)) {
      moved_.insert(id);
      return;
    }
    for (const ValueId input : body_.node(id).inputs) offer(input);
  }

  static bool sums_or_sorts(const Graph& graph, const Node& node) {
    switch (node.op->kind) {
      case OpKind::kExpression: return !node_body(graph, node).reduce_axes.empty();
      case OpKind::kView:
      case OpKind::kConstant: return false;
      default: return true;  // made of several operators, or an algorithm
    }
  }

  bool pays(NodeId id) const {
    const Node& node = body_.node(id);
    const auto is_result = [&](ValueId v) {
      return std::find(body_.outputs.begin(), body_.outputs.end(), v) != body_.outputs.end();
    };
    if (std::any_of(node.outputs.begin(), node.outputs.end(), is_result)) return false;
    std::set<NodeId> cone;
    add_cone(id, cone);
    std::set<ValueId> operands;
    bool works = false;
    for (const NodeId other : cone) {
      works = works || sums_or_sorts(body_, body_.node(other));
      for (const ValueId input : body_.node(other).inputs)
        if (body_.value(input).producer < 0) operands.insert(input);
    }
    if (operands.empty()) return false;  // constants are folded where they are
    int64_t made = 0, read = 0;
    for (const ValueId output : node.outputs) made += elements(output);
    for (const ValueId operand : operands) read += elements(operand);
    return works || made <= read;
  }

  int64_t elements(ValueId v) const {
    Expr count = 1;
    for (const Expr& extent : body_.type(v).shape) count = count * extent;
    return typical_size(count);
  }

  const Graph& body_;
  std::vector<bool> is_alike_;
  std::set<NodeId> seen_, moved_;
};

// Appends the nodes to `target`, where the loop with these operands will stand. Answers for each value of the body
// what it is there, or -1.
std::vector<ValueId> append_before(const Node& loop, const Graph& body, const std::set<NodeId>& nodes,
                                   const std::vector<ValueId>& operands, Graph& target) {
  const LoopParts parts = loop_parts(loop.attrs, loop.inputs.size(), body);
  std::vector<ValueId> outside(body.values().size(), -1);
  for (size_t i = 0; i < parts.invariants; ++i)
    outside[static_cast<size_t>(body.inputs[parts.first_invariant_input() + i])] =
        operands[parts.first_invariant() + i];
  for (const NodeId id : nodes) {
    Node node = body.node(id);
    for (ValueId& input : node.inputs) input = outside[static_cast<size_t>(input)];
    std::vector<TensorType> types;
    std::vector<std::string> names;
    for (const ValueId output : node.outputs) {
      types.push_back(body.type(output));
      names.push_back(body.value(output).name);
    }
    const std::vector<ValueId> outputs = body.node(id).outputs;
    const NodeId made = target.add_node(std::move(node), std::move(types), std::move(names));
    for (size_t i = 0; i < outputs.size(); ++i) outside[static_cast<size_t>(outputs[i])] = target.node(made).outputs[i];
  }
  return outside;
}

// The body with the results of the nodes as further inputs, and without what nothing reads then.
Graph with_inputs_for(const Graph& body, const std::set<NodeId>& moved) {
  std::vector<std::vector<ValueId>> inputs;
  return GraphRewriter(body).run(
      [&](GraphRewriter& rewriter, const Node& node, const std::vector<ValueId>&) -> std::vector<ValueId> {
        for (auto id = moved.begin(); inputs.size() < moved.size(); ++id) {  // behind those that the body has
          inputs.emplace_back();
          for (const ValueId output : body.node(*id).outputs)
            inputs.back().push_back(
                rewriter.target().add_input(rewriter.target().unique_name(body.value(output).name), body.type(output)));
        }
        const auto it = moved.find(body.value(node.outputs[0]).producer);
        if (it == moved.end()) return {};
        return inputs[static_cast<size_t>(std::distance(moved.begin(), it))];
      });
}

}  // namespace

Graph hoist_loop_invariants(const Graph& graph, const PassContext& ctx) {
  return GraphRewriter(graph).run(
      [&](GraphRewriter& rewriter, const Node& node, const std::vector<ValueId>& inputs) -> std::vector<ValueId> {
        if (node.op->kind != OpKind::kLoop) return {};
        const Graph body = hoist_loop_invariants(*node.regions[0], ctx);
        const Invariants invariants(node, body);
        if (invariants.moved().empty()) return {};
        Graph& target = rewriter.target();
        const auto outside = append_before(node, body, invariants.with_operands(), inputs, target);
        Node loop = node;
        loop.inputs = inputs;
        std::vector<std::string> moved_locs;
        for (const NodeId id : invariants.moved()) {
          for (const ValueId output : body.node(id).outputs)
            loop.inputs.push_back(outside[static_cast<size_t>(output)]);
          moved_locs.push_back(body.node(id).loc);
        }
        if (ctx.remarks)
          ctx.remarks->done("hoist_loop_invariants", node.loc, "computed once, before the loop", join_locs(moved_locs));
        loop.regions = {std::make_shared<const Graph>(dce(with_inputs_for(body, invariants.moved()), ctx))};
        std::vector<TensorType> types;
        std::vector<std::string> names;
        for (const ValueId output : node.outputs) {
          types.push_back(graph.type(output));
          names.push_back(graph.value(output).name);
        }
        return target.node(target.add_node(std::move(loop), std::move(types), std::move(names))).outputs;
      });
}

}  // namespace tessera::inline graph_passes
