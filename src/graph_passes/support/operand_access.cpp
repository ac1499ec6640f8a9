#include "graph_passes/support/operand_access.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "te/index_map.h"

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
    for (const IndexMap& map : index_maps(body_)) {
      for (const IndexDim& dim : map.dims) {
        if (!dim.by_data) continue;
        walk(dim.index, [&](const Expr& inner) {
          if (inner->kind != ExprKind::kLoad) return;
          if (const auto input = input_of(inner->buffer)) result.indexes[*input] = true;
        });
      }
      const auto input = input_of(map.operand);
      if (!input) continue;
      const bool first = result.reads[*input]++ == 0;
      result.operands[*input] = first ? classify(map) : worse(result.operands[*input], classify(map));
      // Several places of one output element: each element is likely read from several output elements (a concat of
      // one tensor with itself reads it once for each half).
      result.repeats[*input] = result.repeats[*input] || !first || may_repeat(body_, map);
    }
    std::unordered_set<const ExprNode*> seen;
    result.work = work_of(body_.value, seen);
    result.contraction = is_contraction();
    return result;
  }

 private:
  static OperandAccess worse(OperandAccess a, OperandAccess b) { return std::max(a, b); }

  std::optional<size_t> input_of(const BufferPtr& buffer) const {
    const auto it = std::find(body_.inputs.begin(), body_.inputs.end(), buffer);
    if (it == body_.inputs.end()) return std::nullopt;
    return static_cast<size_t>(it - body_.inputs.begin());
  }

  OperandAccess classify(const IndexMap& map) const {
    const size_t rank = body_.axes.size();
    const std::vector<Expr>& shape = map.operand->shape;
    bool plain = !body_.is_reduction() && map.dims.size() <= rank;
    bool identity = plain && map.dims.size() == rank;
    for (size_t d = 0; d < map.dims.size() && plain; ++d) {
      const size_t axis = rank - map.dims.size() + d;
      const bool unit = is_const_int(shape[d], 1);
      const bool same_extent = structurally_equal(shape[d], body_.axes[axis].extent);
      plain = is_axis(map.dims[d], axis) || (is_const_int(map.dims[d].index, 0) && unit);
      identity = identity && plain && same_extent;
    }
    if (identity && plain) return OperandAccess::kIdentity;
    if (plain) return OperandAccess::kBroadcast;
    const bool image = rank >= 3 && map.dims.size() == rank;
    if (image && is_axis_or_unit(map, 0) && is_axis_or_unit(map, 1)) return OperandAccess::kChannelwise;
    return OperandAccess::kOther;
  }

  static bool is_axis(const IndexDim& dim, size_t axis) { return dim.sole == AxisRef{false, axis}; }

  bool is_axis_or_unit(const IndexMap& map, size_t d) const {
    const Expr& extent = map.operand->shape[d];
    if (!structurally_equal(extent, body_.axes[d].extent)) return false;
    return is_axis(map.dims[d], d) || is_const_int(extent, 1);
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

  bool is_contraction() const {
    if (body_.combiner != Combiner::kSum || body_.value->kind != ExprKind::kBinary ||
        body_.value->binary != BinaryOp::kMul)
      return false;
    return body_.inputs.size() == 2 && padded_load(body_.value->operands[0]) && padded_load(body_.value->operands[1]);
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
