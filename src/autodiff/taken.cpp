#include "autodiff/taken.h"

#include <algorithm>
#include <string>

#include "ops/op_util.h"

namespace tessera::inline autodiff {
namespace {

bool broadcasts_to(const Shape& from, const Shape& to) {
  if (from.size() > to.size()) return false;
  const size_t more = to.size() - from.size();
  for (size_t d = 0; d < from.size(); ++d)
    if (!is_const_int(from[d], 1) && !same_shape({from[d]}, {to[more + d]})) return false;
  return true;
}

}  // namespace

bool works_by_element(const Node& node) {
  if (node.op->kind == OpKind::kConstant) return true;
  if (node.op->kind == OpKind::kComposite) {
    if (node.inputs.size() != 1 || node.regions.size() != 1) return false;
    const std::vector<Node>& parts = node.regions[0]->nodes();
    return std::all_of(parts.begin(), parts.end(), works_by_element);
  }
  if (node.op->kind != OpKind::kExpression) return false;
  // Operators with attributes say by them which places they read; cast is the exception.
  return node.op->name == "cast" ||
         (node.op->attrs.empty() && node.op->max_inputs == static_cast<int>(node.inputs.size()));
}

bool Taken::fits(const Graph& graph, const Shape& shape) const {
  if (op_) return a_->fits(graph, shape) && b_->fits(graph, shape);
  if (a_) return broadcasts_to(shape_, shape);
  return broadcasts_to(graph.type(condition_).shape, shape);
}

ValueId Taken::value(GraphBuilder& builder, const OpTable& ops) {
  if (made_ >= 0) return made_;
  if (op_) {
    const ValueId a = a_->value(builder, ops), b = b_->value(builder, ops);
    return made_ = builder.add(ops.get(op_), {a, b});
  }
  if (a_) {
    const auto cast = [&](ValueId v, DType to) { return builder.add(ops.get("cast"), {v}, {{"to", to}}); };
    const ValueId all = builder.add(ops.get("broadcast"), {a_->value(builder, ops)}, {{"shape", whole_}});
    const size_t more = whole_.size() - shape_.size();
    std::vector<int64_t> axes;
    for (size_t d = 0; d < whole_.size(); ++d)
      if (d < more || is_const_int(shape_[d - more], 1)) axes.push_back(static_cast<int64_t>(d));
    const ValueId most = builder.add(ops.get("reduce"), {cast(all, DType::kI32)},
                                     {{"axes", axes}, {"keepdims", true}, {"kind", std::string("max")}});
    return made_ = cast(builder.add(ops.get("reshape"), {most}, {{"shape", shape_}}), DType::kBool);
  }
  return made_ = holds_ ? condition_ : builder.add(ops.get("logical_not"), {condition_});
}

TakenPtr taken_of_operand(const Graph& graph, const Node& node, size_t operand, const TakenPtr& taken) {
  if (node.outputs.size() != 1) return {};
  const Shape& shape = graph.type(node.inputs[operand]).shape;
  if (node.op->name == "select" && operand > 0) {
    TakenPtr own = Taken::where(node.inputs[0], operand == 1);
    const Shape& whole = graph.type(node.outputs[0]).shape;
    if (!own->fits(graph, shape)) return Taken::any_of(std::move(own), whole, shape);
    if (!taken) return own;
    return taken->fits(graph, shape) ? Taken::both(std::move(own), taken) : own;
  }
  if (!taken) return {};
  if (taken->fits(graph, {})) return taken;
  if (!works_by_element(node)) return {};
  const Shape& whole = graph.type(node.outputs[0]).shape;
  if (!taken->fits(graph, whole)) return {};
  return taken->fits(graph, shape) ? taken : Taken::any_of(taken, whole, shape);
}

}  // namespace tessera::inline autodiff
