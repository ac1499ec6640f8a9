// Simplification of integer index expressions and proofs about them by interval bounds.
// Sums are brought to a canonical form: constant + coefficient * term, terms in a stable order; floordiv and floormod
// by constants are split over sums as far as the bounds of the variables allow.
// All of this holds where evaluating the given expression overflows nowhere: index arithmetic does not. Where the
// simplifier's own numbers would leave 64 bits it concludes nothing.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "arith/expr.h"
#include "arith/tensor_type.h"

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

// ---- sizes: expressions of symbols ----

// What normalize_size and the proofs about sizes know of symbols beyond what they are given: the ranges that a graph
// declares, for as long as the object lives, in this thread. Objects nest; an inner one adds to the outer ones.
class KnownSymbols {
 public:
  explicit KnownSymbols(const std::vector<SymbolRange>& symbols);
  ~KnownSymbols();
  KnownSymbols(const KnownSymbols&) = delete;
  KnownSymbols& operator=(const KnownSymbols&) = delete;

  // Of the innermost object that knows `var`; null when none does.
  static const SymbolRange* find(const ExprNode* var);
  // One more. REQUIRES: the innermost object.
  void add(const SymbolRange& symbol);

 private:
  size_t count_ = 0;
};

// The normal form of a size: a polynomial of symbols (products multiplied out, factors and terms in a stable order) and
// of quotients, remainders, minima and maxima that the symbols' ranges and steps do not decide. Equal sizes mostly have
// equal normal forms. `axes` are variables from 0 to their extent - 1: indices of tensors of such sizes.
Expr normalize_size(const Expr& size, const std::vector<std::pair<Var, Expr>>& axes = {});
// Whether a == b, a <= b for all values of the symbols; false when there is no proof.
bool equal_sizes(const Expr& a, const Expr& b);
bool size_at_most(const Expr& a, const Expr& b);
// Whether a != b for all values of the symbols.
bool sizes_differ(const Expr& a, const Expr& b);
// The least and largest value that the ranges of the symbols allow.
Interval size_range(const Expr& size);
// A value to decide by what pays: that of symbols in the middle of their ranges, in the geometric sense.
int64_t typical_size(const Expr& size);
// The value where all symbols are as small as they may be; empty when a range is not known.
std::optional<int64_t> value_at_least_sizes(const Expr& size);

}  // namespace tessera::inline arith
