#include "graph_passes/support/operand_access.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "arith/simplify.h"

namespace tessera::inline graph_passes {
namespace {

bool is_expensive(const Expr& e) {
  if (e->kind == ExprKind::kUnary) {
    switch (e->unary) {
      case UnaryOp::kNeg:
      case UnaryOp::kAbs:
      case UnaryOp::kNot:
      case UnaryOp::kFloor:
      case UnaryOp::kCeil:
      case UnaryOp::kRound:
      case UnaryOp::kTrunc:
      case UnaryOp::kSign:
      case UnaryOp::kIsNan:
      case UnaryOp::kIsInf:
      case UnaryOp::kBitcast: return false;
      default: return true;
    }
  }
  if (e->kind != ExprKind::kBinary) return false;
  switch (e->binary) {
    case BinaryOp::kDiv:
    case BinaryOp::kRem:
    case BinaryOp::kFloorDiv:
    case BinaryOp::kFloorMod:
    case BinaryOp::kPow: return true;
    default: return false;
  }
}

// Arithmetic on values: does not descend into indices and conditions of selects (they are index arithmetic).
int work_of(const Expr& e, std::unordered_set<const ExprNode*>& seen) {
  if (!seen.insert(e.get()).second) return 0;
  switch (e->kind) {
    case ExprKind::kConst:
    case ExprKind::kVar:
    case ExprKind::kLoad: return 0;
    case ExprKind::kSelect: {
      int work = 0;
      // The condition counts when it looks at data.
      bool data = false;
      walk(e->operands[0], [&](const Expr& inner) { data |= inner->kind == ExprKind::kLoad; });
      if (data) work += 1 + work_of(e->operands[0], seen);
      return work + work_of(e->operands[1], seen) + work_of(e->operands[2], seen);
    }
    default: {
      int work = is_expensive(e) ? 8 : 1;
      for (const Expr& operand : e->operands) work += work_of(operand, seen);
      return work;
    }
  }
}

class Analysis {
 public:
  explicit Analysis(const Body& body) : body_(body) {}

  Accesses run() {
    Accesses result;
    result.reduction = body_.is_reduction();
    result.operands.assign(body_.inputs.size(), OperandAccess::kNone);
    result.repeats.assign(body_.inputs.size(), false);
    result.reads.assign(body_.inputs.size(), 0);
    result.indexes.assign(body_.inputs.size(), false);
    std::vector<std::vector<Expr>> distinct(body_.inputs.size());
    walk(body_.value, [&](const Expr& e) {
      if (e->kind != ExprKind::kLoad) return;
      for (const Expr& index : e->operands)
        walk(index, [&](const Expr& inner) {
          for (size_t i = 0; i < body_.inputs.size(); ++i)
            if (inner->kind == ExprKind::kLoad && inner->buffer == body_.inputs[i]) result.indexes[i] = true;
        });
      for (size_t i = 0; i < body_.inputs.size(); ++i) {
        if (body_.inputs[i] != e->buffer) continue;
        const auto same = [&](const Expr& other) { return structurally_equal(other, e); };
        if (std::any_of(distinct[i].begin(), distinct[i].end(), same)) continue;
        distinct[i].push_back(e);
        result.operands[i] = distinct[i].size() == 1 ? classify(e) : worse(result.operands[i], classify(e));
        result.repeats[i] = result.repeats[i] || repeats(e);
      }
    });
    for (size_t i = 0; i < distinct.size(); ++i) {
      result.reads[i] = static_cast<int>(distinct[i].size());
      // Several places of one output element: each element is likely read from several output elements (a concat of
      // one tensor with itself reads it once for each half).
      if (distinct[i].size() > 1) result.repeats[i] = true;
    }
    std::unordered_set<const ExprNode*> seen;
    result.work = work_of(body_.value, seen);
    result.contraction = is_contraction(distinct);
    return result;
  }

 private:
  static OperandAccess worse(OperandAccess a, OperandAccess b) { return std::max(a, b); }

  OperandAccess classify(const Expr& e) const {
    const size_t rank = body_.axes.size();
    const auto& index = e->operands;
    const auto is_axis = [&](const Expr& i, size_t axis) { return i.same_node(body_.axes[axis].var); };
    bool plain = !body_.is_reduction() && index.size() <= rank;
    bool identity = plain && index.size() == rank;
    for (size_t d = 0; d < index.size() && plain; ++d) {
      const size_t axis = rank - index.size() + d;
      const bool unit = is_const_int(e->buffer->shape[d], 1);
      const bool same_extent = structurally_equal(e->buffer->shape[d], body_.axes[axis].extent);
      const bool same = is_axis(index[d], axis) || (is_const_int(index[d], 0) && unit);
      plain = same;
      identity = identity && same && same_extent;
    }
    if (identity && plain) return OperandAccess::kIdentity;
    if (plain) return OperandAccess::kBroadcast;
    const bool image = rank >= 3 && index.size() == rank;
    if (image && is_axis_or_unit(e, 0) && is_axis_or_unit(e, 1)) return OperandAccess::kChannelwise;
    return OperandAccess::kOther;
  }

  bool is_axis_or_unit(const Expr& e, size_t d) const {
    if (!structurally_equal(e->buffer->shape[d], body_.axes[d].extent)) return false;
    return e->operands[d].same_node(body_.axes[d].var) || is_const_int(e->buffer->shape[d], 1);
  }

  // Whether two different iterations may read the same element: unless every axis with more than one iteration stands
  // alone, with a coefficient that is not 0, in one of the indices.
  bool repeats(const Expr& e) const {
    std::unordered_set<const ExprNode*> covered;
    for (const Expr& index : e->operands) {
      const ExprNode* sole = nullptr;
      bool linear = true;
      for (const auto* axes : {&body_.axes, &body_.reduce_axes})
        for (const Axis& axis : *axes) {
          if (is_const_int(axis.extent, 1) || !uses_var(index, axis.var)) continue;
          const auto coefficient = linear_coefficient(simplify(index), axis.var);
          linear = linear && !sole && coefficient && *coefficient != 0;
          sole = axis.var.get();
        }
      if (linear && sole) covered.insert(sole);
    }
    for (const auto* axes : {&body_.axes, &body_.reduce_axes})
      for (const Axis& axis : *axes)
        if (!is_const_int(axis.extent, 1) && !covered.count(axis.var.get())) return true;
    return false;
  }

  // Behind selects whose other arm is a constant (padding), a load.
  static const ExprNode* padded_load(Expr e) {
    while (e->kind == ExprKind::kSelect) {
      if (e->operands[2]->kind != ExprKind::kConst) return nullptr;
      e = e->operands[1];
    }
    if (e->kind == ExprKind::kCast) e = e->operands[0];
    return e->kind == ExprKind::kLoad ? e.get() : nullptr;
  }

  bool is_contraction(const std::vector<std::vector<Expr>>& distinct) const {
    if (body_.combiner != Combiner::kSum || body_.value->kind != ExprKind::kBinary ||
        body_.value->binary != BinaryOp::kMul)
      return false;
    return distinct.size() == 2 && padded_load(body_.value->operands[0]) && padded_load(body_.value->operands[1]);
  }

  const Body& body_;
};

}  // namespace

bool Accesses::elementwise() const {
  if (reduction) return false;
  return std::all_of(operands.begin(), operands.end(), [](OperandAccess a) {
    return a == OperandAccess::kNone || a == OperandAccess::kIdentity || a == OperandAccess::kBroadcast;
  });
}

Accesses accesses_of(const Graph& graph, const Node& node) {
  const Body body = node_body(graph, node);
  return Analysis(body).run();
}

}  // namespace tessera::inline graph_passes
