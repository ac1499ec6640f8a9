#include "graph_passes/rewrite/propagate_transposes.h"

#include <algorithm>
#include <optional>

#include "graph_passes/support/elementwise.h"
#include "graph_passes/support/graph_util.h"

namespace tessera::inline graph_passes {
namespace {

using Ints = std::vector<int64_t>;

Ints inverse(const Ints& perm) {
  Ints result(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) result[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  return result;
}

class Mover {
 public:
  Mover(const Graph& graph, const PassContext& ctx)
      : graph_(graph), ctx_(ctx), uses_(use_counts(graph)), rewriter_(graph) {}

  Graph run() {
    return rewriter_.run([&](GraphRewriter&, const Node& node, const std::vector<ValueId>& inputs) {
      std::vector<ValueId> results = is_op(&node, "transpose") ? raise(node, inputs) : sink(node, inputs);
      if (results.empty()) results = rewriter_.copy(node, inputs);
      for (size_t i = 0; i < results.size(); ++i) add_uses(results[i], uses_[static_cast<size_t>(node.outputs[i])]);
      return results;
    });
  }

 private:
  Graph& target() { return rewriter_.target(); }

  void add_uses(ValueId id, int count) {
    if (target_uses_.size() <= static_cast<size_t>(id)) target_uses_.resize(static_cast<size_t>(id) + 1, 0);
    target_uses_[static_cast<size_t>(id)] += count;
  }
  int uses(ValueId id) const {
    return static_cast<size_t>(id) < target_uses_.size() ? target_uses_[static_cast<size_t>(id)] : 0;
  }
  bool used_once(ValueId id) const { return uses(id) == 1; }

  // The order of the transpose that makes `id`; null for other values.
  const Ints* order_of(ValueId id) {
    const Node* node = target().producer(id);
    return is_op(node, "transpose") ? &node->attrs.get_ints("perm") : nullptr;
  }
  bool is_number(ValueId id) {
    const auto dims = static_dims(target().type(id).shape);
    return dims && std::all_of(dims->begin(), dims->end(), [](int64_t d) { return d == 1; });
  }

  ValueId transposed(GraphBuilder& builder, ValueId id, const Ints& perm) {
    return builder.add(ctx_.ops.get("transpose"), {id}, {{"perm", perm}}, target().value(id).name + ".turned");
  }

  // An operand in the order of dimensions before `perm`; empty when that would cost a transpose at run time.
  struct Follow {
    ValueId value;
    bool turn = false;   // a constant, to be transposed
    bool shape = false;  // after leading dimensions of 1 were added
  };

  std::optional<Follow> follow(ValueId operand, const Ints& perm) {
    if (const Ints* order = order_of(operand); order && *order == perm)
      return Follow{target().producer(operand)->inputs[0]};
    if (is_number(operand) && target().type(operand).rank() <= static_cast<int>(perm.size())) return Follow{operand};
    if (!constant_value(target(), operand) || !target().type(operand).is_static()) return std::nullopt;
    return Follow{operand, true, target().type(operand).rank() != static_cast<int>(perm.size())};
  }

  std::vector<ValueId> sink(const Node& node, const std::vector<ValueId>& inputs) {
    if (!is_elementwise(node)) return {};
    const Value& result = graph_.value(node.outputs[0]);
    for (const ValueId input : inputs) {
      const Ints* order = order_of(input);
      const bool sole = order && uses(input) == std::count(inputs.begin(), inputs.end(), input);
      if (!sole || !same_shape(target().type(input).shape, result.type.shape)) continue;
      const Ints perm = *order;
      std::vector<Follow> operands;
      for (const ValueId operand : inputs)
        if (const auto followed = follow(operand, perm)) operands.push_back(*followed);
      if (operands.size() != inputs.size()) continue;
      const std::string loc = target().producer(input)->loc;
      GraphBuilder builder(target());
      builder.set_loc(node.loc);
      std::vector<ValueId> values;
      for (const Follow& operand : operands) {
        ValueId value = operand.value;
        if (operand.shape) {
          Ints dims = target().type(value).dims();
          dims.insert(dims.begin(), static_cast<std::ptrdiff_t>(perm.size() - dims.size()), 1);
          value =
              builder.add(ctx_.ops.get("reshape"), {value}, {{"shape", dims}}, target().value(value).name + ".view");
        }
        values.push_back(operand.turn ? transposed(builder, value, inverse(perm)) : value);
      }
      const ValueId moved = rebuild_elementwise(builder, ctx_.ops, node, values, result.name + ".moved");
      add_uses(moved, 1);
      builder.set_loc(join_locs({loc, node.loc}));
      if (ctx_.remarks)
        ctx_.remarks->done("propagate_transposes", builder.loc(), "the transpose follows, where others may undo it");
      return {builder.add(ctx_.ops.get("transpose"), {moved}, {{"perm", perm}}, result.name)};
    }
    return {};
  }

  // At a transpose: of an elementwise node one of whose operands it undoes.
  std::vector<ValueId> raise(const Node& node, const std::vector<ValueId>& inputs) {
    const Ints& perm = node.attrs.get_ints("perm");
    const Ints back = inverse(perm);
    const Value& result = graph_.value(node.outputs[0]);
    if (const Ints* order = order_of(inputs[0]); order && *order == back && used_once(inputs[0]))
      return {target().producer(inputs[0])->inputs[0]};
    const Node* producer = target().producer(inputs[0]);
    if (!producer || !is_elementwise(*producer) || !used_once(inputs[0])) return {};
    const Node inner = *producer;
    int undone = 0, added = 0;
    std::vector<std::optional<Follow>> operands;
    for (const ValueId operand : inner.inputs) {
      operands.push_back(follow(operand, back));
      if (order_of(operand) && operands.back() && used_once(operand)) ++undone;
      if (operands.back()) continue;
      if (!same_shape(target().type(operand).shape, target().type(inputs[0]).shape)) return {};
      ++added;
    }
    if (undone == 0 || added > undone) return {};
    GraphBuilder builder(target());
    builder.set_loc(node.loc);
    std::vector<ValueId> values;
    for (size_t i = 0; i < operands.size(); ++i) {
      ValueId value = operands[i] ? operands[i]->value : inner.inputs[i];
      if (operands[i] && operands[i]->shape) {
        Ints dims = target().type(value).dims();
        dims.insert(dims.begin(), static_cast<std::ptrdiff_t>(perm.size() - dims.size()), 1);
        value = builder.add(ctx_.ops.get("reshape"), {value}, {{"shape", dims}}, target().value(value).name + ".view");
      }
      values.push_back(!operands[i] || operands[i]->turn ? transposed(builder, value, perm) : value);
    }
    builder.set_loc(join_locs({inner.loc, node.loc}));
    if (ctx_.remarks)
      ctx_.remarks->done("propagate_transposes", builder.loc(), "transposes in front and behind undo each other");
    return {rebuild_elementwise(builder, ctx_.ops, inner, values, result.name)};
  }

  const Graph& graph_;
  const PassContext& ctx_;
  const std::vector<int> uses_;
  GraphRewriter rewriter_;
  std::vector<int> target_uses_;  // of values of the target; at least as many as there will be
};

}  // namespace

Graph propagate_transposes(const Graph& graph, const PassContext& ctx) { return Mover(graph, ctx).run(); }

}  // namespace tessera::inline graph_passes
