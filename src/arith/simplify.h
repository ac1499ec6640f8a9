// Simplification of integer index expressions and proofs about them by interval bounds.
// Sums are brought to a canonical form: constant + coefficient * term, terms in a stable order; floordiv and floormod
// by constants are split over sums as far as the bounds of the variables allow.
// All of this holds where evaluating the given expression overflows nowhere: index arithmetic does not. Where the
// simplifier's own numbers would leave 64 bits it concludes nothing.
#pragma once

#include <optional>
#include <unordered_map>

#include "arith/expr.h"

namespace tessera::inline arith {

// Inclusive range of an i64 expression; an end that is not known is empty.
struct Interval {
  std::optional<int64_t> lo, hi;
  static Interval point(int64_t v) { return {v, v}; }
  bool is_point() const { return lo && hi && *lo == *hi; }
};

// What is known about variables. Variables without an entry may have any value.
class Bounds {
 public:
  void set(const Var& var, Interval interval) { intervals_[var.get()] = interval; }
  void set(const Var& var, int64_t lo, int64_t hi) { set(var, Interval{lo, hi}); }
  Interval of(const ExprNode* var) const;

 private:
  std::unordered_map<const ExprNode*, Interval> intervals_;
};

// The range of an i64 or bool expression (bool: 0..1). Conservative.
Interval bounds_of(const Expr& e, const Bounds& bounds);

// An equal expression, usually smaller. Works on index arithmetic anywhere inside `e`, load indices included.
Expr simplify(const Expr& e, const Bounds& bounds = {});

// True only when the bool expression holds for all variable values within the bounds.
bool can_prove(const Expr& condition, const Bounds& bounds);

// c when e = c * var + (terms without var), for simplified i64 expressions; empty when e is not linear in var.
std::optional<int64_t> linear_coefficient(const Expr& e, const Var& var, const Bounds& bounds = {});

}  // namespace tessera::inline arith
