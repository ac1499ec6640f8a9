#include "schedule/primitives/linear_system.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

namespace tessera::inline schedule {
namespace {

constexpr size_t kMaxInequalities = 1500;  // more: the answer is "maybe"

int64_t magnitude(int64_t a) { return a < 0 ? -a : a; }

int64_t floor_div(int64_t a, int64_t b) {
  const int64_t q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

int64_t divisor_of(const LinearForm& form) {
  int64_t g = 0;
  for (const auto& [v, k] : form.terms) g = std::gcd(g, magnitude(k));
  return g;
}

enum class Answer : uint8_t { kNo, kMaybe, kOpen };

class Solver {
 public:
  Solver(std::vector<LinearForm> equalities, std::vector<LinearForm> inequalities)
      : equalities_(std::move(equalities)), inequalities_(std::move(inequalities)) {}

  bool may_have_solution() {
    for (const auto* list : {&equalities_, &inequalities_})
      for (const LinearForm& form : *list)
        for (const auto& [v, k] : form.terms)
          if (k == std::numeric_limits<int64_t>::min()) return true;
    if (const Answer answer = solve_equalities(); answer != Answer::kOpen) return answer == Answer::kMaybe;
    return eliminate() != Answer::kNo;
  }

 private:
  Answer solve_equalities() {
    while (!equalities_.empty()) {
      // One with a unit coefficient first: its variable leaves the system exactly.
      size_t chosen = equalities_.size();
      for (size_t i = 0; i < equalities_.size(); ++i) {
        LinearForm& e = equalities_[i];
        const int64_t g = divisor_of(e);
        if (g == 0) {
          if (e.constant != 0) return Answer::kNo;
          equalities_.erase(equalities_.begin() + static_cast<std::ptrdiff_t>(i--));
          continue;
        }
        if (e.constant % g != 0) return Answer::kNo;
        for (auto& [v, k] : e.terms) k /= g;
        e.constant /= g;
        const bool unit =
            std::any_of(e.terms.begin(), e.terms.end(), [](const auto& term) { return magnitude(term.second) == 1; });
        if (unit && chosen >= equalities_.size()) chosen = i;
      }
      if (equalities_.empty()) break;
      if (chosen >= equalities_.size()) {
        // None has one: as two inequalities each, which forgets that the unknowns are integers.
        for (const LinearForm& e : equalities_) {
          LinearForm negated;
          if (!negated.add(e, -1)) return Answer::kMaybe;
          inequalities_.push_back(e);
          inequalities_.push_back(std::move(negated));
        }
        equalities_.clear();
        break;
      }
      const LinearForm e = equalities_[chosen];
      equalities_.erase(equalities_.begin() + static_cast<std::ptrdiff_t>(chosen));
      const auto unit =
          std::find_if(e.terms.begin(), e.terms.end(), [](const auto& term) { return magnitude(term.second) == 1; });
      const int variable = unit->first;
      const int64_t sign = unit->second;
      for (auto* list : {&equalities_, &inequalities_})
        for (LinearForm& form : *list) {
          const auto it = form.terms.find(variable);
          if (it == form.terms.end()) continue;
          // form - (k / sign) * e
          if (!form.add(e, it->second == 0 ? 0 : -it->second * sign)) return Answer::kMaybe;
        }
    }
    return Answer::kOpen;
  }

  // The strongest of the inequalities with the same coefficients, tightened; kNo when one is false.
  Answer tidy() {
    std::map<std::map<int, int64_t>, int64_t> strongest;
    for (LinearForm& form : inequalities_) {
      const int64_t g = divisor_of(form);
      if (g == 0) {
        if (form.constant < 0) return Answer::kNo;
        continue;
      }
      for (auto& [v, k] : form.terms) k /= g;
      form.constant = floor_div(form.constant, g);
      const auto [it, fresh] = strongest.try_emplace(std::move(form.terms), form.constant);
      if (!fresh) it->second = std::min(it->second, form.constant);
    }
    inequalities_.clear();
    for (const auto& [terms, constant] : strongest) {
      // a >= -c and a <= -c - 1 cannot both hold.
      std::map<int, int64_t> negated = terms;
      for (auto& [v, k] : negated) k = -k;
      int64_t sum = 0;
      if (const auto other = strongest.find(negated);
          other != strongest.end() && !__builtin_add_overflow(other->second, constant, &sum) && sum < 0)
        return Answer::kNo;
      inequalities_.push_back({constant, terms});
    }
    return Answer::kOpen;
  }

  Answer eliminate() {
    for (;;) {
      if (tidy() == Answer::kNo) return Answer::kNo;
      std::map<int, std::pair<size_t, size_t>> uses;  // by variable: lower and upper bounds
      for (const LinearForm& form : inequalities_)
        for (const auto& [v, k] : form.terms) ++(k > 0 ? uses[v].first : uses[v].second);
      if (uses.empty()) return Answer::kMaybe;
      const auto cost = [](const auto& use) { return use.second.first * use.second.second; };
      const auto best =
          std::min_element(uses.begin(), uses.end(), [&](const auto& a, const auto& b) { return cost(a) < cost(b); });
      if (cost(*best) + inequalities_.size() > kMaxInequalities) return Answer::kMaybe;
      const int variable = best->first;
      std::vector<LinearForm> lower, upper, rest;
      for (LinearForm& form : inequalities_) {
        const auto it = form.terms.find(variable);
        (it == form.terms.end() ? rest : it->second > 0 ? lower : upper).push_back(std::move(form));
      }
      for (const LinearForm& a : lower) {
        for (const LinearForm& b : upper) {
          const int64_t p = a.terms.at(variable);
          const int64_t q = -b.terms.at(variable);
          const int64_t g = std::gcd(p, q);
          LinearForm sum;
          if (!sum.add(a, q / g) || !sum.add(b, p / g)) return Answer::kMaybe;
          rest.push_back(std::move(sum));
        }
      }
      inequalities_ = std::move(rest);
    }
  }

  std::vector<LinearForm> equalities_, inequalities_;
};

}  // namespace

bool LinearForm::add(const LinearForm& other, int64_t factor) {
  const auto multiply_add = [&](int64_t& sum, int64_t a) {
    int64_t product = 0;
    return !__builtin_mul_overflow(a, factor, &product) && !__builtin_add_overflow(sum, product, &sum) &&
           sum != std::numeric_limits<int64_t>::min();
  };
  if (!multiply_add(constant, other.constant)) return false;
  for (const auto& [v, k] : other.terms) {
    const auto it = terms.try_emplace(v, 0).first;
    if (!multiply_add(it->second, k)) return false;
    if (it->second == 0) terms.erase(it);
  }
  return true;
}

bool LinearSystem::may_have_solution() const { return Solver(equalities_, inequalities_).may_have_solution(); }

}  // namespace tessera::inline schedule
