// A total order on expressions that does not depend on addresses: what normal forms sort by.
#pragma once

#include "arith/expr.h"

namespace tessera::inline arith {

// Negative, 0 or positive; 0 for structurally equal expressions. Variables stand in the order of their creation.
int compare_exprs(const Expr& a, const Expr& b);

}  // namespace tessera::inline arith
