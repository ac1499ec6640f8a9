#include "arith/expr_polynomial.h"

#include <algorithm>

namespace tessera::inline arith {
namespace {

constexpr size_t kMostTerms = 256;
constexpr size_t kHighestDegree = 16;

Monomial product(const Monomial& a, const Monomial& b) {
  Monomial result;
  std::merge(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(result),
             [](const Expr& x, const Expr& y) { return compare_exprs(x, y) < 0; });
  return result;
}

}  // namespace

bool MonomialLess::operator()(const Monomial& a, const Monomial& b) const {
  if (a.size() != b.size()) return a.size() < b.size();
  for (size_t i = 0; i < a.size(); ++i)
    if (const int c = compare_exprs(a[i], b[i])) return c < 0;
  return false;
}

ExprPolynomial::ExprPolynomial(int64_t constant) { add({}, constant); }

ExprPolynomial ExprPolynomial::of(const Expr& atom) {
  ExprPolynomial result;
  result.add({atom}, 1);
  return result;
}

std::optional<int64_t> ExprPolynomial::as_constant() const {
  if (!exact || terms.size() > 1 || (terms.size() == 1 && !terms.begin()->first.empty())) return std::nullopt;
  return constant();
}

int64_t ExprPolynomial::constant() const {
  const auto it = terms.find(Monomial{});
  return it == terms.end() ? 0 : it->second;
}

void ExprPolynomial::add(const Monomial& monomial, int64_t coefficient) {
  if (coefficient == 0) return;
  if (monomial.size() > kHighestDegree) exact = false;
  const auto [it, is_new] = terms.try_emplace(monomial, coefficient);
  if (is_new) {
    if (terms.size() > kMostTerms) exact = false;
    return;
  }
  if (__builtin_add_overflow(it->second, coefficient, &it->second)) exact = false;
  if (it->second == 0) terms.erase(it);
}

ExprPolynomial ExprPolynomial::without_constant() const {
  ExprPolynomial result = *this;
  result.terms.erase(Monomial{});
  return result;
}

ExprPolynomial operator*(const ExprPolynomial& a, int64_t factor) {
  ExprPolynomial result;
  result.exact = a.exact;
  for (const auto& [monomial, coefficient] : a.terms) {
    int64_t scaled = 0;
    if (__builtin_mul_overflow(coefficient, factor, &scaled)) result.exact = false;
    result.add(monomial, scaled);
  }
  return result;
}

ExprPolynomial operator+(const ExprPolynomial& a, const ExprPolynomial& b) {
  ExprPolynomial result = a;
  result.exact = a.exact && b.exact;
  for (const auto& [monomial, coefficient] : b.terms) result.add(monomial, coefficient);
  return result;
}

ExprPolynomial operator-(const ExprPolynomial& a, const ExprPolynomial& b) { return a + b * -1; }

ExprPolynomial operator*(const ExprPolynomial& a, const ExprPolynomial& b) {
  ExprPolynomial result;
  result.exact = a.exact && b.exact;
  for (const auto& [x, m] : a.terms)
    for (const auto& [y, n] : b.terms) {
      if (!result.exact) return result;
      int64_t coefficient = 0;
      if (__builtin_mul_overflow(m, n, &coefficient)) result.exact = false;
      result.add(product(x, y), coefficient);
    }
  return result;
}

std::optional<Monomial> divide(const Monomial& a, const Monomial& b) {
  Monomial rest;
  size_t j = 0;
  for (const Expr& atom : a) {
    if (j < b.size() && compare_exprs(atom, b[j]) == 0) ++j;
    else rest.push_back(atom);
  }
  return j == b.size() ? std::optional(rest) : std::nullopt;
}

ExprPolynomial replace_atom(const ExprPolynomial& p, const Expr& atom, const ExprPolynomial& value) {
  ExprPolynomial result;
  result.exact = p.exact;
  for (const auto& [monomial, coefficient] : p.terms) {
    ExprPolynomial term;
    Monomial rest;
    int64_t power = 0;
    for (const Expr& factor : monomial) {
      if (compare_exprs(factor, atom) == 0) ++power;
      else rest.push_back(factor);
    }
    term.add(rest, coefficient);
    for (; power > 0; --power) term = term * value;
    result = result + term;
  }
  return result;
}

}  // namespace tessera::inline arith
