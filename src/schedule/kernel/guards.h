// Conditions inside of what a reduction folds in.
#pragma once

#include <vector>

#include "arith/expr.h"
#include "te/body.h"

namespace tessera::inline schedule {

// The operands of nested `&`, in order; `e` itself when it is none.
void split_conjunction(const Expr& e, std::vector<Expr>& terms);

// Takes conditions out of `e`: where they fail, `e` is the combiner's identity (a padded place of a sum of products
// contributes nothing, whatever the other factor is). Of factors of integers only where `of_integers` says so: a
// condition on lanes costs them less where it is.
Expr take_guards(const Expr& e, Combiner combiner, std::vector<Expr>& terms, bool of_integers = false);

}  // namespace tessera::inline schedule
