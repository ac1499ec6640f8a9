#include "schedule/kernel/guards.h"

namespace tessera::inline schedule {
namespace {

bool is_identity(const Expr& e, Combiner combiner) {
  return structurally_equal(e, combiner_identity(combiner, e.dtype()));
}

}  // namespace

void split_conjunction(const Expr& e, std::vector<Expr>& terms) {
  if (e->kind == ExprKind::kBinary && e->binary == BinaryOp::kAnd && e->dtype == DType::kBool) {
    split_conjunction(e->operands[0], terms);
    split_conjunction(e->operands[1], terms);
  } else {
    terms.push_back(e);
  }
}

Expr take_guards(const Expr& e, Combiner combiner, std::vector<Expr>& terms, bool of_integers) {
  if (e->kind == ExprKind::kSelect && is_identity(e->operands[2], combiner)) {
    split_conjunction(e->operands[0], terms);
    return take_guards(e->operands[1], combiner, terms, of_integers);
  }
  if (combiner == Combiner::kSum && e->kind == ExprKind::kBinary && e->binary == BinaryOp::kMul &&
      (is_float(e->dtype) || of_integers)) {
    const Expr a = take_guards(e->operands[0], combiner, terms, of_integers);
    const Expr b = take_guards(e->operands[1], combiner, terms, of_integers);
    return a * b;
  }
  return e;
}

}  // namespace tessera::inline schedule
