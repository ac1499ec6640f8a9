#include "arith/expr_order.h"

namespace tessera::inline arith {

int compare_exprs(const Expr& a, const Expr& b) {
  if (a.same_node(b)) return 0;
  if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
  if (a->dtype != b->dtype) return a->dtype < b->dtype ? -1 : 1;
  if (a->kind == ExprKind::kVar) return a->int_value < b->int_value ? -1 : 1;
  if (a->int_value != b->int_value) return a->int_value < b->int_value ? -1 : 1;
  if (a->unary != b->unary) return a->unary < b->unary ? -1 : 1;
  if (a->binary != b->binary) return a->binary < b->binary ? -1 : 1;
  if (a->buffer != b->buffer) {
    const int by_name = a->buffer->name.compare(b->buffer->name);
    if (by_name != 0) return by_name;
  }
  if (a->operands.size() != b->operands.size()) return a->operands.size() < b->operands.size() ? -1 : 1;
  for (size_t i = 0; i < a->operands.size(); ++i)
    if (const int c = compare_exprs(a->operands[i], b->operands[i])) return c;
  return 0;
}

}  // namespace tessera::inline arith
