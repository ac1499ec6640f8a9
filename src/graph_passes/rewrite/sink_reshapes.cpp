#include "graph_passes/rewrite/sink_reshapes.h"

#include <algorithm>
#include <optional>

#include "arith/simplify.h"
#include "graph_passes/support/elementwise.h"
#include "graph_passes/support/graph_util.h"

namespace tessera::inline graph_passes {
namespace {

class Mover {
 public:
  Mover(const Graph& graph, const PassContext& ctx) : graph_(graph), ctx_(ctx), rewriter_(graph) {
    images_ = std::any_of(graph.nodes().begin(), graph.nodes().end(), [](const Node& n) { return is_op(&n, "conv"); });
  }

  Graph run() {
    return rewriter_.run(
        [&](GraphRewriter&, const Node& node, const std::vector<ValueId>& inputs) { return visit(node, inputs); });
  }

 private:
  Graph& target() { return rewriter_.target(); }

  // The operand of a reshape whose result has the shape `full`; -1 for anything else.
  ValueId reshaped(ValueId id, const Shape& full) {
    const Node* node = target().producer(id);
    if (!is_op(node, "reshape") || !same_shape(target().type(id).shape, full)) return -1;
    const ValueId x = node->inputs[0];
    // Constants, inputs and procedures have nothing that could follow them into one kernel.
    const Node* source = target().producer(x);
    return source && source->op->kind != OpKind::kConstant && source->op->kind != OpKind::kProcedure ? x : -1;
  }

  std::vector<ValueId> visit(const Node& node, const std::vector<ValueId>& inputs) {
    if (!is_elementwise(node)) return {};
    const Shape full = graph_.type(node.outputs[0]).shape;
    for (const ValueId input : inputs) {
      const ValueId x = reshaped(input, full);
      if (x < 0) continue;
      if (auto results = move(node, inputs, target().producer(input)->loc, target().type(x).shape); !results.empty())
        return results;
    }
    return {};
  }

  // What happens to one operand: taken as it is, or seen in another shape.
  struct Follow {
    ValueId value;
    std::optional<Shape> shape{};
  };

  std::optional<Follow> follow(ValueId operand, const Shape& full, const Shape& dims) {
    const Node* producer = target().producer(operand);
    Shape own = target().type(operand).shape;
    if (equal_shapes(own, full)) {
      if (is_op(producer, "reshape") && equal_shapes(target().type(producer->inputs[0]).shape, dims))
        return Follow{producer->inputs[0]};
      const bool computed = !constant_value(target(), operand);
      if (computed && images_ && (full.size() == 4 || dims.size() == 4)) return std::nullopt;
      return Follow{operand, dims};
    }
    own.erase(own.begin(), std::find_if(own.begin(), own.end(), [](const Expr& d) { return !is_const_int(d, 1); }));
    const auto length = static_cast<std::ptrdiff_t>(own.size());
    const bool alike =
        own.size() <= dims.size() && std::equal(full.end() - length, full.end(), dims.end() - length, equal_sizes);
    if (!alike) return std::nullopt;
    if (target().type(operand).shape.size() <= dims.size()) return Follow{operand};
    return Follow{operand, own};
  }

  std::vector<ValueId> move(const Node& node, const std::vector<ValueId>& inputs,
                            std::string loc,  // a copy: the graph it comes from grows
                            const Shape& dims) {
    const Value& result = graph_.value(node.outputs[0]);
    std::vector<Follow> operands;
    for (const ValueId input : inputs) {
      auto operand = follow(input, result.type.shape, dims);
      if (!operand) return {};
      operands.push_back(*operand);
    }
    GraphBuilder builder(target());
    builder.set_loc(node.loc);
    std::vector<ValueId> values;
    for (const Follow& operand : operands) {
      ValueId value = operand.value;
      if (operand.shape)
        value = builder.add(ctx_.ops.get("reshape"), {value}, {{"shape", *operand.shape}},
                            target().value(value).name + ".view");
      values.push_back(value);
    }
    const ValueId moved = rebuild_elementwise(builder, ctx_.ops, node, values, result.name + ".moved");
    builder.set_loc(join_locs({loc, node.loc}));
    return {builder.add(ctx_.ops.get("reshape"), {moved}, {{"shape", result.type.shape}}, result.name)};
  }

  const Graph& graph_;
  const PassContext& ctx_;
  GraphRewriter rewriter_;
  bool images_;  // there are convolutions
};

}  // namespace

Graph sink_reshapes(const Graph& graph, const PassContext& ctx) { return Mover(graph, ctx).run(); }

}  // namespace tessera::inline graph_passes
