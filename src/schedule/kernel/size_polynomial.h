// Addresses of symbolic strides as polynomials, so that equal ones can be recognised: `arith/simplify.h` keeps sums
// canonical whose coefficients are numbers, here they are products of named dimensions.
#pragma once

#include <map>
#include <vector>

#include "arith/simplify.h"

namespace tessera::inline schedule {

// A sum of integer multiples of products of factors: variables, and whatever is no sum or product (a floordiv, a load),
// equal factors being one. floormod(x, y) counts as x - y * floordiv(x, y).
class SizePolynomial {
 public:
  // The factors of several polynomials that are compared or added.
  class Factors {
   public:
    size_t number(const Expr& e);
    const Expr& at(size_t number) const { return factors_[number]; }

   private:
    std::vector<Expr> factors_;
  };

  explicit SizePolynomial(Factors& factors) : factors_(&factors) {}
  SizePolynomial(Factors& factors, const Expr& e, const Bounds& bounds);
  // The row-major address of `index` in a buffer of `shape`.
  static SizePolynomial address(Factors& factors, const Shape& shape, const std::vector<Expr>& index,
                                const Bounds& bounds);

  SizePolynomial operator+(const SizePolynomial& other) const { return plus(other, 1); }
  SizePolynomial operator-(const SizePolynomial& other) const { return plus(other, -1); }
  SizePolynomial operator*(const SizePolynomial& other) const;
  bool operator==(const SizePolynomial& other) const { return terms_ == other.terms_; }
  bool is_zero() const { return terms_.empty(); }
  Expr expr() const;

 private:
  SizePolynomial plus(const SizePolynomial& other, int64_t sign) const;
  void add(const std::vector<size_t>& product, int64_t coefficient);

  Factors* factors_;
  std::map<std::vector<size_t>, int64_t> terms_;  // by the sorted numbers of the factors; none are 0
};

}  // namespace tessera::inline schedule
