// Sizes that a model wants to be equal without an operator that says so: a mask's keys, and those of a cache with what
// is new behind it.
#pragma once

#include <vector>

#include "arith/tensor_type.h"

namespace tessera::inline import_common {

// Throws EqualSizes (options.h) where one of the symbols can be what makes the two equal; else returns.
void make_equal(const Expr& a, const Expr& b, const std::vector<SymbolRange>& symbols);

}  // namespace tessera::inline import_common
