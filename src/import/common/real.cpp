#include "import/common/real.h"

#include <cmath>
#include <limits>
#include <numbers>

namespace tessera::inline import_common {

Real exp(const Real& x) { return x.of("exp"); }
Real log(const Real& x) { return x.of("log"); }
Real erf(const Real& x) { return x.of("erf"); }
Real absolute(const Real& x) { return x.of("abs"); }
Real sine(const Real& x) { return x.of("sin"); }

Real polynomial(const Real& x, const std::vector<double>& coefficients) {
  Real sum = x.same(coefficients.back());
  for (size_t i = coefficients.size() - 1; i-- > 0;) sum = sum * x + coefficients[i];
  return sum;
}

// Giles's polynomials, and two steps of Newton's.
Real inverse_erf(const Real& x) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Real inside = x.where(absolute(x).is("lt", 1), 0);
  const Real w = -log((1 - inside) * (inside + 1));
  const ValueId is_near = w.is("lt", 5);
  const Real near = polynomial(w - 2.5, {1.50140941, 0.246640727, -0.00417768164, -0.00125372503, 0.00021858087,
                                         -4.39150654e-06, -3.5233877e-06, 3.43273939e-07, 2.81022636e-08});
  const Real far =
      polynomial(w.but(is_near, 5).of("sqrt") - 3, {2.83297682, 1.00167406, 0.00943887047, -0.0076224613, 0.00573950773,
                                                    -0.00367342844, 0.00134934322, 0.000100950558, -0.000200214257});
  Real y = near.where(is_near, far) * inside;
  for (int step = 0; step < 2; ++step) y = y - (erf(y) - inside) / (exp(-(y * y)) * (2 / std::sqrt(std::numbers::pi)));
  y = y.but(x.is("eq", 1), kInfinity).but(x.is("eq", -1), -kInfinity);
  return y.where(absolute(x).is("le", 1), std::numeric_limits<double>::quiet_NaN());
}

}  // namespace tessera::inline import_common
