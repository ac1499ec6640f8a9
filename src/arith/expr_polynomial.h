// Polynomials with integer coefficients over atoms: expressions that are no sums, differences or products themselves.
// The arithmetic below normalize_size.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "arith/expr_order.h"

namespace tessera::inline arith {

using Monomial = std::vector<Expr>;  // a product of atoms, sorted; empty: 1

// By degree, then by the atoms: an order that multiplying by a monomial keeps.
struct MonomialLess {
  bool operator()(const Monomial& a, const Monomial& b) const;
};

// The sum of coefficient * monomial. Inexact once a coefficient does not fit into 64 bits or there are too many terms:
// nothing may be concluded from it then.
struct ExprPolynomial {
  std::map<Monomial, int64_t, MonomialLess> terms;  // without zeros
  bool exact = true;

  ExprPolynomial() = default;
  explicit ExprPolynomial(int64_t constant);
  static ExprPolynomial of(const Expr& atom);

  bool is_zero() const { return exact && terms.empty(); }
  std::optional<int64_t> as_constant() const;  // empty when it has other terms
  int64_t constant() const;                    // the constant term
  void add(const Monomial& monomial, int64_t coefficient);
  ExprPolynomial without_constant() const;
};

ExprPolynomial operator+(const ExprPolynomial& a, const ExprPolynomial& b);
ExprPolynomial operator-(const ExprPolynomial& a, const ExprPolynomial& b);
ExprPolynomial operator*(const ExprPolynomial& a, const ExprPolynomial& b);
ExprPolynomial operator*(const ExprPolynomial& a, int64_t factor);

// a / b when the monomial b divides it.
std::optional<Monomial> divide(const Monomial& a, const Monomial& b);
// `p` with `value` for the atom.
ExprPolynomial replace_atom(const ExprPolynomial& p, const Expr& atom, const ExprPolynomial& value);

}  // namespace tessera::inline arith
