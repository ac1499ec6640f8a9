#include "arith/walk_certain.h"

namespace tessera::inline arith {

void walk_certain(const Expr& e, std::unordered_set<const ExprNode*>& seen,
                  const std::function<bool(const Expr&)>& visit) {
  if (!seen.insert(e.get()).second || !visit(e)) return;
  const bool conditional =
      e->kind == ExprKind::kSelect || (e->kind == ExprKind::kBinary && e->dtype == DType::kBool &&
                                       (e->binary == BinaryOp::kAnd || e->binary == BinaryOp::kOr));
  if (conditional) return walk_certain(e->operands[0], seen, visit);
  for (const Expr& operand : e->operands) walk_certain(operand, seen, visit);
}

}  // namespace tessera::inline arith
