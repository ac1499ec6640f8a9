// Integer linear constraints, and a proof that no integers satisfy them: what every question about dependences ends in.
//
// Method: equalities are solved by substitution where a coefficient is +-1 (after the test of their greatest common
// divisor), the rest is Fourier-Motzkin elimination with each inequality tightened to integers (Schrijver, Theory of
// Linear and Integer Programming, 12.2; Pugh, The Omega Test, 1991, 2.1-2.3, without dark shadows). The elimination is
// over the rationals, so that "no solution" is a proof and "maybe" is not: integers may be missing, or the system may
// have grown over a limit. Callers treat "maybe" as "yes".
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace tessera::inline schedule {

// constant + sum of coefficient * variable; variables are numbers given by the caller.
struct LinearForm {
  int64_t constant = 0;
  std::map<int, int64_t> terms;

  static LinearForm variable(int v) { return {0, {{v, 1}}}; }
  // this += factor * other. False (and the form is then of no use) when a number leaves 64 bits.
  [[nodiscard]] bool add(const LinearForm& other, int64_t factor);
};

// Thread safety: a value.
class LinearSystem {
 public:
  void require_zero(LinearForm form) { equalities_.push_back(std::move(form)); }
  void require_not_negative(LinearForm form) { inequalities_.push_back(std::move(form)); }

  // False only if no integers satisfy all constraints.
  bool may_have_solution() const;

 private:
  std::vector<LinearForm> equalities_, inequalities_;
};

}  // namespace tessera::inline schedule
