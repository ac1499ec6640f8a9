#include "schedule/kernel/size_polynomial.h"

#include <algorithm>

namespace tessera::inline schedule {

size_t SizePolynomial::Factors::number(const Expr& e) {
  for (size_t i = 0; i < factors_.size(); ++i)
    if (structurally_equal(factors_[i], e)) return i;
  factors_.push_back(e);
  return factors_.size() - 1;
}

SizePolynomial::SizePolynomial(Factors& factors, const Expr& e, const Bounds& bounds) : factors_(&factors) {
  if (const auto value = as_int(e)) {
    add({}, *value);
    return;
  }
  if (e->kind == ExprKind::kBinary) {
    const auto operand = [&](size_t i) { return SizePolynomial(factors, e->operands[i], bounds); };
    switch (e->binary) {
      case BinaryOp::kAdd: *this = operand(0) + operand(1); return;
      case BinaryOp::kSub: *this = operand(0) - operand(1); return;
      case BinaryOp::kMul: *this = operand(0) * operand(1); return;
      case BinaryOp::kFloorMod: {
        const Expr quotient = simplify(floordiv(e->operands[0], e->operands[1]), bounds);
        *this = operand(0) - operand(1) * SizePolynomial(factors, quotient, bounds);
        return;
      }
      default: break;
    }
  }
  add({factors.number(e)}, 1);
}

void SizePolynomial::add(const std::vector<size_t>& product, int64_t coefficient) {
  if (coefficient == 0) return;
  const auto it = terms_.try_emplace(product, 0).first;
  it->second += coefficient;
  if (it->second == 0) terms_.erase(it);
}

SizePolynomial SizePolynomial::plus(const SizePolynomial& other, int64_t sign) const {
  SizePolynomial result = *this;
  for (const auto& [product, coefficient] : other.terms_) result.add(product, sign * coefficient);
  return result;
}

SizePolynomial SizePolynomial::address(Factors& factors, const Shape& shape, const std::vector<Expr>& index,
                                       const Bounds& bounds) {
  SizePolynomial result(factors);
  for (size_t i = 0; i < shape.size(); ++i)
    result = result * SizePolynomial(factors, simplify(shape[i], bounds), bounds) +
             SizePolynomial(factors, simplify(index[i], bounds), bounds);
  return result;
}

SizePolynomial SizePolynomial::operator*(const SizePolynomial& other) const {
  SizePolynomial result(*factors_);
  for (const auto& [a, x] : terms_)
    for (const auto& [b, y] : other.terms_) {
      std::vector<size_t> product;
      std::merge(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(product));
      result.add(product, x * y);
    }
  return result;
}

Expr SizePolynomial::expr() const {
  Expr sum = 0;
  for (const auto& [product, coefficient] : terms_) {
    Expr term = 1;
    for (const size_t factor : product) term = term * factors_->at(factor);
    sum = sum + term * Expr(coefficient);
  }
  return sum;
}

}  // namespace tessera::inline schedule
