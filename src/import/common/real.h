// Arithmetic on values of f64 as formulas, for functions that series and rational functions approximate.
#pragma once

#include <vector>

#include "import/common/emitter.h"

namespace tessera::inline import_common {

// A value of f64.
class Real {
 public:
  Real(Emitter& c, ValueId id) : c_(&c), id_(id) {}

  ValueId id() const { return id_; }
  Real same(double v) const { return {*c_, c_->scalar(DType::kF64, v)}; }
  Real of(const char* function) const { return {*c_, c_->op(function, {id_})}; }
  Real with(const char* operation, const Real& other) const { return {*c_, c_->op(operation, {id_, other.id_})}; }
  ValueId is(const char* comparison, double v) const { return with(comparison, same(v)).id_; }
  ValueId is_infinite() const { return c_->op("is_inf", {id_}); }
  Real where(ValueId condition, const Real& otherwise) const {
    return {*c_, c_->op("select", {condition, id_, otherwise.id_})};
  }
  Real where(ValueId condition, double otherwise) const { return where(condition, same(otherwise)); }
  // Itself but where the condition holds.
  Real but(ValueId condition, double then) const { return same(then).where(condition, *this); }

  friend Real operator+(const Real& a, const Real& b) { return a.with("add", b); }
  friend Real operator+(const Real& a, double b) { return a + a.same(b); }
  friend Real operator-(const Real& a, const Real& b) { return a.with("sub", b); }
  friend Real operator-(const Real& a, double b) { return a - a.same(b); }
  friend Real operator-(double a, const Real& b) { return b.same(a) - b; }
  friend Real operator*(const Real& a, const Real& b) { return a.with("mul", b); }
  friend Real operator*(const Real& a, double b) { return a * a.same(b); }
  friend Real operator/(const Real& a, const Real& b) { return a.with("div", b); }
  friend Real operator/(double a, const Real& b) { return b.same(a) / b; }
  friend Real operator-(const Real& a) { return a.of("neg"); }

 private:
  Emitter* c_;
  ValueId id_;
};

Real exp(const Real& x);
Real log(const Real& x);
Real erf(const Real& x);
Real absolute(const Real& x);
Real sine(const Real& x);
// The sum of coefficients[i] * x^i.
Real polynomial(const Real& x, const std::vector<double>& coefficients);
// The number whose error function is x; infinite at 1 and -1, NaN beyond.
Real inverse_erf(const Real& x);

}  // namespace tessera::inline import_common
