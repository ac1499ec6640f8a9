// What the gradient rule of an operator works with: one node of a graph, and the graph in which gradients are built.
//
// A rule is given the gradients of a node's results: for each the derivatives, with respect to its elements, of some
// number that is computed from them. It answers those of the node's operands. All of them are values of one graph,
// which has the node itself, so that a rule may use operands and results where that is cheaper or more exact.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "graph/op_def.h"

namespace tessera::inline graph {

class Adjoint {
 public:
  // In place of a value: the gradient is zero, or there is none, because the operand is no real number.
  static constexpr ValueId kNone = -1;

  // `gradients`: of each result, kNone for those that nothing depends on. `wanted`: for each operand whether its
  // gradient is used. `builder` adds to the graph of `node`.
  Adjoint(GraphBuilder& builder, const OpTable& ops, const Node& node, std::vector<ValueId> gradients,
          std::vector<bool> wanted)
      : builder_(builder), ops_(ops), node_(node), gradients_(std::move(gradients)), wanted_(std::move(wanted)) {}

  const Node& node() const { return node_; }
  const Attrs& attrs() const { return node_.attrs; }
  size_t num_operands() const { return node_.inputs.size(); }
  ValueId in(size_t i) const { return node_.inputs[i]; }
  ValueId out(size_t i = 0) const { return node_.outputs[i]; }
  ValueId gradient(size_t i = 0) const { return gradients_[i]; }
  // Whether the rule need answer for operand `i`; what it answers all the same is dropped.
  bool wants(size_t i) const { return wanted_[i]; }
  // By value: what a rule adds to the graph moves its types.
  TensorType type(ValueId v) const { return builder_.graph().type(v); }

  // ---- building ----
  ValueId op(std::string_view name, std::vector<ValueId> inputs, Attrs attrs = {});
  ValueId add(ValueId a, ValueId b) { return op("add", {a, b}); }
  ValueId sub(ValueId a, ValueId b) { return op("sub", {a, b}); }
  ValueId mul(ValueId a, ValueId b) { return op("mul", {a, b}); }
  ValueId div(ValueId a, ValueId b) { return op("div", {a, b}); }
  ValueId neg(ValueId a) { return op("neg", {a}); }
  ValueId select(ValueId condition, ValueId a, ValueId b) { return op("select", {condition, a, b}); }
  // A constant of rank 0 and of the element type of `like`.
  ValueId scalar(double value, ValueId like);
  // A size, or an index, as an i64 of rank 0.
  ValueId integer(const Expr& value);
  // As many elements as `shape` has, all of this value.
  ValueId filled(double value, DType dtype, const Shape& shape);
  ValueId zeros_like(ValueId v) { return filled(0, type(v).dtype, type(v).shape); }
  // Over `axes`, which stay with extent 1 where `keepdims` says so.
  ValueId reduce(const char* kind, ValueId v, std::vector<int64_t> axes, bool keepdims);
  ValueId cast(ValueId v, DType dtype);
  ValueId transpose(ValueId v, std::vector<int64_t> perm);
  ValueId reshape(ValueId v, const Shape& shape);
  ValueId broadcast(ValueId v, const Shape& shape);
  // The adjoint of numpy's broadcasting: the sum of v over all elements that one element of `like` was stretched to.
  ValueId sum_to(ValueId v, ValueId like);

  // For composites, which are no operators of the table.
  GraphBuilder& builder() { return builder_; }
  const OpTable& ops() const { return ops_; }

  // UserError TSR-2072: the operator has no gradient with these attributes.
  [[noreturn]] void fail(const std::string& found, const std::string& legal) const;

 private:
  GraphBuilder& builder_;
  const OpTable& ops_;
  const Node& node_;
  std::vector<ValueId> gradients_;
  std::vector<bool> wanted_;
};

// The rule of an operator that has no gradient, because `why`: "its results are integers". It refuses when it is asked.
std::function<std::vector<ValueId>(Adjoint& a)> no_gradient(std::string why);

}  // namespace tessera::inline graph
