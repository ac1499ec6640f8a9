// Which parts of an expression are computed whatever its conditions say.
#pragma once

#include <functional>
#include <unordered_set>

#include "arith/expr.h"

namespace tessera::inline arith {

// Calls `visit` for what evaluating `e` computes for sure, `e` first: not the arms of selects and what is behind
// logical operators. Where it returns false, the operands are left out.
void walk_certain(const Expr& e, std::unordered_set<const ExprNode*>& seen,
                  const std::function<bool(const Expr&)>& visit);

}  // namespace tessera::inline arith
