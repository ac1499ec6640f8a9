// Normal forms of sizes, and proofs about them.
//
// A symbol n of a range with a step is step * floordiv(n, step) + r, r being what the smallest value leaves; the
// quotient is the atom, so that divisions by divisors of the step come out even. When a polynomial is written as an
// expression, the symbol comes back wherever its coefficient is a multiple of the step.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "arith/expr_polynomial.h"
#include "arith/int_ops.h"
#include "arith/simplify.h"

namespace tessera::inline arith {
namespace {

thread_local std::vector<SymbolRange> known_symbols;

using Axes = std::vector<std::pair<Var, Expr>>;

constexpr int kMaxDepth = 6;  // of proofs that go on with another bound

bool is_binary(const Expr& e, BinaryOp op) { return e->kind == ExprKind::kBinary && e->binary == op; }
bool same(const Expr& a, const Expr& b) { return compare_exprs(a, b) == 0; }

std::optional<int64_t> narrow(Int128 v) {
  if (v > INT64_MAX || v < INT64_MIN) return std::nullopt;
  return static_cast<int64_t>(v);
}

class Normalizer {
 public:
  explicit Normalizer(const Axes& axes) {
    for (const auto& [var, extent] : axes) axes_.emplace_back(var, of(extent));
  }

  ExprPolynomial of(const Expr& e) {
    if (const auto c = as_int(e)) return ExprPolynomial(*c);
    if (e->kind == ExprKind::kVar) return of_var(e);
    if (e->dtype != DType::kI64) return ExprPolynomial::of(e);
    if (e->kind == ExprKind::kUnary && e->unary == UnaryOp::kNeg) return of(e->operands[0]) * -1;
    if (e->kind == ExprKind::kBinary) {
      const Expr &a = e->operands[0], &b = e->operands[1];
      switch (e->binary) {
        case BinaryOp::kAdd: return of(a) + of(b);
        case BinaryOp::kSub: return of(a) - of(b);
        case BinaryOp::kMul: return of(a) * of(b);
        case BinaryOp::kFloorDiv: return quotient(of(a), of(b), e);
        case BinaryOp::kFloorMod: return remainder(of(a), of(b), e);
        case BinaryOp::kDiv:
        case BinaryOp::kRem: {
          const ExprPolynomial x = of(a), y = of(b);
          if (lower(x).value_or(-1) < 0 || lower(y).value_or(0) < 1) return ExprPolynomial::of(e);
          return e->binary == BinaryOp::kDiv ? quotient(x, y, e) : remainder(x, y, e);
        }
        case BinaryOp::kMin:
        case BinaryOp::kMax: return extremum(e->binary, of(a), of(b), e);
        default: break;
      }
    }
    return ExprPolynomial::of(e);
  }

  // The largest known number that p is never below.
  std::optional<int64_t> lower(const ExprPolynomial& p, int depth = 0) {
    if (!p.exact) return std::nullopt;
    if (const auto c = p.as_constant()) return c;
    if (depth > kMaxDepth) return std::nullopt;
    // An axis stands at one of its ends, where all that is multiplied by it has one sign.
    for (size_t i = axes_.size(); i-- > 0;) {
      const auto& [axis, extent] = axes_[i];
      const auto slope = slope_of(p, axis);
      if (!slope) continue;
      if (lower(*slope, depth + 1).value_or(-1) >= 0) return lower(replace_atom(p, axis, ExprPolynomial(0)), depth + 1);
      if (lower(*slope * -1, depth + 1).value_or(-1) >= 0)
        return lower(replace_atom(p, axis, extent - ExprPolynomial(1)), depth + 1);
    }
    std::optional<int64_t> best = interval_lower(p);
    const auto consider = [&](std::optional<int64_t> found) {
      if (found && (!best || *found > *best)) best = found;
    };
    consider(shifted_lower(p));
    if (!best || *best < 0) consider(lower_by_quotients(p, depth));
    if (!best || *best < 0) consider(lower_by_cases(p, depth));
    if (!best || *best < 0) consider(lower_by_bounds(p, depth));
    return best;
  }
  std::optional<int64_t> upper(const ExprPolynomial& p) {
    const auto negative = lower(p * -1);
    return negative && *negative != INT64_MIN ? std::optional(-*negative) : std::nullopt;
  }

  Expr to_expr(ExprPolynomial p) {
    join_remainders(p);
    restore_symbols(p);
    Expr sum;
    int64_t constant = 0;
    for (const auto& [monomial, coefficient] : p.terms) {
      if (monomial.empty()) {
        constant = coefficient;
        continue;
      }
      Expr term;
      for (const Expr& atom : monomial) term = term ? term * atom : atom;
      const bool negative = coefficient < 0 && coefficient != INT64_MIN;
      const int64_t size = negative ? -coefficient : coefficient;
      if (size != 1) term = term * Expr(size);
      if (!sum) sum = negative ? Expr(0) - term : term;
      else sum = negative ? sum - term : sum + term;
    }
    if (!sum) return constant;
    if (constant < 0 && constant != INT64_MIN) return sum - Expr(-constant);
    return constant ? sum + Expr(constant) : sum;
  }

 private:
  static ExprPolynomial of_var(const Expr& var) {
    const SymbolRange* known = KnownSymbols::find(var.get());
    if (!known) return ExprPolynomial::of(var);
    if (known->lo == known->hi) return ExprPolynomial(known->lo);
    if (known->step <= 1) return ExprPolynomial::of(var);
    return ExprPolynomial::of(floordiv(var, known->step)) * known->step + ExprPolynomial(known->lo % known->step);
  }

  // The stepped symbol of which `atom` is the quotient; null for other atoms.
  static const SymbolRange* stepped(const Expr& atom) {
    if (!is_binary(atom, BinaryOp::kFloorDiv) || atom->operands[0]->kind != ExprKind::kVar) return nullptr;
    const SymbolRange* known = KnownSymbols::find(atom->operands[0].get());
    return known && known->step > 1 && is_const_int(atom->operands[1], known->step) ? known : nullptr;
  }

  static void restore_symbols(ExprPolynomial& p) {
    for (bool changed = true; changed && p.exact;) {
      changed = false;
      for (const auto& [monomial, coefficient] : p.terms) {
        const auto quotient = std::find_if(monomial.begin(), monomial.end(), [c = coefficient](const Expr& atom) {
          const SymbolRange* known = stepped(atom);
          return known && c % known->step == 0;
        });
        if (quotient == monomial.end()) continue;
        const SymbolRange& known = *stepped(*quotient);
        Monomial rest = monomial;
        rest.erase(rest.begin() + (quotient - monomial.begin()));
        ExprPolynomial term, removed;
        term.add(rest, coefficient / known.step);
        removed.add(monomial, coefficient);
        p = p - removed + term * (ExprPolynomial::of(known.var) - ExprPolynomial(known.lo % known.step));
        changed = true;
        break;
      }
    }
  }

  // c * b * floordiv(x, b) + c * floormod(x, b) is c * x.
  void join_remainders(ExprPolynomial& p) {
    for (bool changed = true; changed && p.exact;) {
      changed = false;
      for (const auto& [monomial, coefficient] : p.terms) {
        const auto mod = std::find_if(monomial.begin(), monomial.end(),
                                      [](const Expr& atom) { return is_binary(atom, BinaryOp::kFloorMod); });
        if (mod == monomial.end()) continue;
        const Expr x = (*mod)->operands[0], b = (*mod)->operands[1];
        ExprPolynomial rest;
        rest.add(*divide(monomial, {*mod}), coefficient);
        const ExprPolynomial whole = rest * of(b) * ExprPolynomial::of(floordiv(x, b));
        if (whole.terms.size() != 1) continue;
        const auto other = p.terms.find(whole.terms.begin()->first);
        if (other == p.terms.end() || other->second != whole.terms.begin()->second) continue;
        ExprPolynomial removed = whole;
        removed.add(monomial, coefficient);
        p = p - removed + rest * of(x);
        changed = true;
        break;
      }
    }
  }

  const ExprPolynomial* extent_of(const Expr& atom) const {
    for (const auto& [axis, extent] : axes_)
      if (axis.same_node(atom)) return &extent;
    return nullptr;
  }

  // What `axis` is multiplied by; empty where it is not in p, or not linear.
  static std::optional<ExprPolynomial> slope_of(const ExprPolynomial& p, const Expr& axis) {
    ExprPolynomial slope;
    for (const auto& [monomial, coefficient] : p.terms) {
      const auto rest = divide(monomial, {axis});
      if (!rest) {
        for (const Expr& atom : monomial)
          if (uses_var(atom, axis)) return std::nullopt;
        continue;
      }
      for (const Expr& atom : *rest)
        if (uses_var(atom, axis)) return std::nullopt;
      slope.add(*rest, coefficient);
    }
    return slope.terms.empty() ? std::nullopt : std::optional(slope);
  }

  Interval range(const Expr& atom) {
    if (atom->kind == ExprKind::kVar) {
      if (const SymbolRange* known = KnownSymbols::find(atom.get()))
        return {known->lo, known->hi == INT64_MAX ? std::nullopt : std::optional(known->hi)};
      if (const ExprPolynomial* extent = extent_of(atom)) {
        const auto most = upper(*extent);
        return {0, most ? std::optional(std::max<int64_t>(*most - 1, 0)) : std::nullopt};
      }
      return {};
    }
    if (atom->kind != ExprKind::kBinary) return {};
    if (const SymbolRange* known = stepped(atom))
      return {known->lo / known->step, known->hi == INT64_MAX ? std::nullopt : std::optional(known->hi / known->step)};
    if (const auto it = ranges_.find(atom.get()); it != ranges_.end()) return it->second;
    const ExprPolynomial a = of(atom->operands[0]), b = of(atom->operands[1]);
    const Interval x{lower(a), upper(a)}, y{lower(b), upper(b)};
    Interval result;
    switch (atom->binary) {
      case BinaryOp::kFloorDiv:
        if (!y.lo || *y.lo < 1) break;
        if (x.lo) result.lo = *x.lo >= 0 ? (y.hi ? *x.lo / *y.hi : 0) : floor_div(*x.lo, *y.lo);
        if (x.hi) result.hi = *x.hi >= 0 ? *x.hi / *y.lo : y.hi ? floor_div(*x.hi, *y.hi) : -1;
        break;
      case BinaryOp::kFloorMod:
        if (!y.lo || *y.lo < 1) break;
        result.lo = 0;
        if (y.hi) result.hi = *y.hi - 1;
        if (x.lo && *x.lo >= 0 && x.hi) result.hi = std::min(*x.hi, result.hi.value_or(INT64_MAX));
        break;
      case BinaryOp::kMin:
        if (x.lo && y.lo) result.lo = std::min(*x.lo, *y.lo);
        result.hi = x.hi && y.hi ? std::optional(std::min(*x.hi, *y.hi)) : x.hi ? x.hi : y.hi;
        break;
      case BinaryOp::kMax:
        if (x.hi && y.hi) result.hi = std::max(*x.hi, *y.hi);
        result.lo = x.lo && y.lo ? std::optional(std::max(*x.lo, *y.lo)) : x.lo ? x.lo : y.lo;
        break;
      default: break;
    }
    keep_.push_back(atom);
    ranges_[atom.get()] = result;
    return result;
  }

  // By the ranges of the atoms, each term for itself.
  std::optional<int64_t> interval_lower(const ExprPolynomial& p) {
    Int128 sum = 0;
    for (const auto& [monomial, coefficient] : p.terms) {
      std::optional<Int128> lo = 1, hi = 1;
      for (const Expr& atom : monomial) {
        const Interval r = range(atom);
        if (!r.lo) return std::nullopt;
        if (*r.lo >= 0 && lo && *lo >= 0) {
          Int128 low = 0, high = 0;
          if (__builtin_mul_overflow(*lo, static_cast<Int128>(*r.lo), &low)) return std::nullopt;
          const bool no_high =
              !hi || !r.hi || __builtin_mul_overflow(*hi, static_cast<Int128>(*r.hi), &high) || high > INT64_MAX;
          lo = low;
          hi = no_high ? std::nullopt : std::optional(high);
          continue;
        }
        if (!lo || !hi || !r.hi) return std::nullopt;
        const Int128 ends[] = {*lo * *r.lo, *lo * *r.hi, *hi * *r.lo, *hi * *r.hi};
        lo = *std::min_element(ends, ends + 4);
        hi = *std::max_element(ends, ends + 4);
        if (*hi > INT64_MAX || *lo < INT64_MIN) return std::nullopt;
      }
      const std::optional<Int128>& end = coefficient > 0 ? lo : hi;
      if (!end || *end > INT64_MAX || *end < INT64_MIN) return std::nullopt;
      sum += *end * coefficient;
    }
    return narrow(sum);
  }

  // With atom = its least value + something that is not negative, multiplied out: exact where terms cancel.
  std::optional<int64_t> shifted_lower(const ExprPolynomial& p) {
    ExprPolynomial shifted = p;
    std::vector<Expr> atoms;
    for (const auto& [monomial, coefficient] : p.terms)
      for (const Expr& atom : monomial)
        if (std::none_of(atoms.begin(), atoms.end(), [&](const Expr& a) { return same(a, atom); }))
          atoms.push_back(atom);
    for (const Expr& atom : atoms) {
      const Interval r = range(atom);
      if (!r.lo) return std::nullopt;
      shifted = replace_atom(shifted, atom, ExprPolynomial::of(atom) + ExprPolynomial(*r.lo));
    }
    if (!shifted.exact) return std::nullopt;
    for (const auto& [monomial, coefficient] : shifted.terms)
      if (!monomial.empty() && coefficient < 0) return std::nullopt;
    return shifted.constant();
  }

  // c * floordiv(x, c) lies between x - c + 1 and x.
  std::optional<int64_t> lower_by_quotients(const ExprPolynomial& p, int depth) {
    for (const auto& [monomial, coefficient] : p.terms) {
      if (monomial.size() != 1 || !is_binary(monomial[0], BinaryOp::kFloorDiv) || stepped(monomial[0])) continue;
      const auto divisor = as_int(monomial[0]->operands[1]);
      if (!divisor || *divisor < 1 || *divisor > (int64_t{1} << 20)) continue;
      ExprPolynomial term;
      term.add(monomial, coefficient);
      const ExprPolynomial x = of(monomial[0]->operands[0]);
      const ExprPolynomial bound = coefficient < 0 ? x : x - ExprPolynomial(*divisor - 1);
      const auto scaled = lower((p - term) * *divisor + bound * coefficient, depth + 2);
      if (scaled) return -floor_div(-*scaled, *divisor);
    }
    return std::nullopt;
  }

  // A minimum or maximum is one of its operands; in one direction, it bounds as either of them.
  std::optional<int64_t> lower_by_cases(const ExprPolynomial& p, int depth) {
    for (const auto& [monomial, coefficient] : p.terms) {
      if (monomial.size() != 1) continue;
      const bool is_min = is_binary(monomial[0], BinaryOp::kMin);
      if (!is_min && !is_binary(monomial[0], BinaryOp::kMax)) continue;
      std::optional<int64_t> found[2];
      for (size_t i = 0; i < 2; ++i)
        found[i] = lower(replace_atom(p, monomial[0], of(monomial[0]->operands[i])), depth + 2);
      const auto has_it = [&](const auto& term) { return divide(term.first, monomial).has_value(); };
      const bool once = std::count_if(p.terms.begin(), p.terms.end(), has_it) == 1;
      const bool either = once && is_min == (coefficient < 0);
      if (found[0] && found[1]) return either ? std::max(*found[0], *found[1]) : std::min(*found[0], *found[1]);
      return either ? (found[0] ? found[0] : found[1]) : std::nullopt;
    }
    return std::nullopt;
  }

  // With its bound in place of a data symbol that only makes p less.
  std::optional<int64_t> lower_by_bounds(const ExprPolynomial& p, int depth) {
    for (const auto& [monomial, coefficient] : p.terms)
      for (const Expr& atom : monomial) {
        const SymbolRange* known = atom->kind == ExprKind::kVar ? KnownSymbols::find(atom.get()) : nullptr;
        if (coefficient > 0 || !known || !known->is_data()) continue;
        const bool only_less = std::all_of(p.terms.begin(), p.terms.end(), [&](const auto& term) {
          const auto uses = [&](const Expr& factor) { return uses_var(factor, atom); };
          if (std::none_of(term.first.begin(), term.first.end(), uses)) return true;
          return term.second < 0 && std::all_of(
                                        term.first.begin(), term.first.end(),
                                        [&](const Expr& factor) {
                                          return factor.same_node(atom) ||
                                                 (!uses(factor) && range(factor).lo.value_or(-1) >= 0);
                                        });
        });
        if (only_less) return lower(replace_atom(p, atom, of(known->bound)), depth + 2);
      }
    return std::nullopt;
  }

  // a / b where b divides it without a rest.
  static std::optional<ExprPolynomial> exact_quotient(ExprPolynomial a, const ExprPolynomial& b) {
    ExprPolynomial result;
    if (b.terms.empty()) return std::nullopt;
    const auto& [lead, lead_coefficient] = *b.terms.rbegin();
    for (int steps = 0; !a.terms.empty(); ++steps) {
      const auto& [monomial, coefficient] = *a.terms.rbegin();
      const auto rest = divide(monomial, lead);
      if (!a.exact || steps > 64 || !rest || coefficient % lead_coefficient != 0) return std::nullopt;
      ExprPolynomial term;
      term.add(*rest, coefficient / lead_coefficient);
      result = result + term;
      a = a - term * b;
    }
    return a.exact ? std::optional(result) : std::nullopt;
  }

  // a = b * quotient + rest; of a divisor of several terms only when there is no rest. REQUIRES: b >= 1.
  static void split(const ExprPolynomial& a, const ExprPolynomial& b, ExprPolynomial& quotient, ExprPolynomial& rest) {
    quotient = {};
    rest = {};
    if (b.terms.size() != 1) {
      if (const auto exact = exact_quotient(a, b)) quotient = *exact;
      else rest = a;
      return;
    }
    const auto& [divisor, size] = *b.terms.begin();
    for (const auto& [monomial, coefficient] : a.terms) {
      const auto left = divide(monomial, divisor);
      if (left && monomial.empty()) {
        quotient.add({}, floor_div(coefficient, size));
        rest.add({}, coefficient - floor_div(coefficient, size) * size);
      } else if (left && coefficient % size == 0) {
        quotient.add(*left, coefficient / size);
      } else {
        rest.add(monomial, coefficient);
      }
    }
  }

  // q when b * q <= rest < b * (q + 1) is proved.
  std::optional<int64_t> settled(const ExprPolynomial& rest, const ExprPolynomial& b) {
    if (rest.terms.empty()) return 0;
    if (const auto c = b.as_constant()) {
      const auto lo = lower(rest), hi = upper(rest);
      if (lo && hi && floor_div(*lo, *c) == floor_div(*hi, *c)) return floor_div(*lo, *c);
      return std::nullopt;
    }
    for (const int64_t q : {0, -1})
      if (lower(rest - b * q).value_or(-1) >= 0 && lower(b * (q + 1) - rest).value_or(0) >= 1) return q;
    return std::nullopt;
  }

  // rest = g * big + small with 0 <= small < g for some g > 1 that divides c.
  bool split_small(const ExprPolynomial& rest, int64_t c, int64_t& g, ExprPolynomial& big) {
    for (const auto& [of, of_coefficient] : rest.terms) {
      if (of.empty() || of_coefficient == INT64_MIN) continue;
      g = std::gcd(of_coefficient, c);
      if (g <= 1) continue;
      ExprPolynomial small;
      big = {};
      for (const auto& [monomial, coefficient] : rest.terms) {
        if (monomial.empty()) {
          big.add({}, floor_div(coefficient, g));
          small.add({}, coefficient - floor_div(coefficient, g) * g);
        } else if (coefficient % g == 0) {
          big.add(monomial, coefficient / g);
        } else {
          small.add(monomial, coefficient);
        }
      }
      const auto lo = lower(small), hi = upper(small);
      if (lo && hi && *lo >= 0 && *hi < g) return true;
    }
    return false;
  }

  // Whether 0 <= a < b is proved from what is known of a place of an axis: floordiv(i, k) stays below b where the
  // extent of i is at most k * b. Asks for no least value of b, which an axis without places has none of.
  bool is_within(const ExprPolynomial& a, const ExprPolynomial& b) {
    if (a.terms.size() != 1 || a.terms.begin()->second != 1 || a.terms.begin()->first.size() != 1) return false;
    Expr place = a.terms.begin()->first[0];
    int64_t k = 1;
    if (is_binary(place, BinaryOp::kFloorDiv)) {
      const auto divisor = as_int(place->operands[1]);
      if (!divisor || *divisor < 1) return false;
      k = *divisor;
      place = place->operands[0];
    }
    const ExprPolynomial* extent = extent_of(place);
    return extent && lower(b * k - *extent).value_or(-1) >= 0;
  }

  ExprPolynomial quotient(const ExprPolynomial& a, const ExprPolynomial& b, const Expr& e) {
    if (a.exact && b.exact && is_within(a, b)) return ExprPolynomial(0);
    if (!a.exact || !b.exact || lower(b).value_or(0) < 1) return ExprPolynomial::of(e);
    if (b.as_constant() == 1) return a;
    ExprPolynomial whole, rest;
    split(a, b, whole, rest);
    if (const auto q = settled(rest, b)) return whole + ExprPolynomial(*q);
    const auto c = b.as_constant();
    int64_t g = 0;
    ExprPolynomial big;
    if (c && split_small(rest, *c, g, big)) return whole + quotient(big, ExprPolynomial(*c / g), e);
    // floordiv(floordiv(x, k) + m, c) is floordiv(x + m * k, c * k).
    const ExprPolynomial one = rest.without_constant();
    if (c && one.terms.size() == 1 && one.terms.begin()->second == 1 && one.terms.begin()->first.size() == 1) {
      const Expr inner = one.terms.begin()->first[0];
      int64_t product = 0;
      const auto k =
          is_binary(inner, BinaryOp::kFloorDiv) && !stepped(inner) ? as_int(inner->operands[1]) : std::nullopt;
      if (k && *k > 0 && !__builtin_mul_overflow(*k, *c, &product) && product < (int64_t{1} << 40))
        return whole +
               quotient(of(inner->operands[0]) + ExprPolynomial(rest.constant()) * *k, ExprPolynomial(product), e);
    }
    return whole + ExprPolynomial::of(floordiv(to_expr(rest), to_expr(b)));
  }

  ExprPolynomial remainder(const ExprPolynomial& a, const ExprPolynomial& b, const Expr& e) {
    if (a.exact && b.exact && is_within(a, b)) return a;
    if (!a.exact || !b.exact || lower(b).value_or(0) < 1) return ExprPolynomial::of(e);
    if (b.as_constant() == 1) return ExprPolynomial(0);
    ExprPolynomial whole, rest;
    split(a, b, whole, rest);
    if (const auto q = settled(rest, b)) return rest - b * *q;
    const auto c = b.as_constant();
    int64_t g = 0;
    ExprPolynomial big;
    if (c && split_small(rest, *c, g, big)) return remainder(big, ExprPolynomial(*c / g), e) * g + (rest - big * g);
    return ExprPolynomial::of(floormod(to_expr(rest), to_expr(b)));
  }

  ExprPolynomial extremum(BinaryOp op, const ExprPolynomial& a, const ExprPolynomial& b, const Expr& e) {
    if (!a.exact || !b.exact) return ExprPolynomial::of(e);
    const bool is_min = op == BinaryOp::kMin;
    if (lower(b - a).value_or(-1) >= 0) return is_min ? a : b;
    if (lower(a - b).value_or(-1) >= 0) return is_min ? b : a;
    Expr x = to_expr(a), y = to_expr(b);
    if (compare_exprs(x, y) > 0) std::swap(x, y);
    return ExprPolynomial::of(binary(op, x, y));
  }

  std::vector<std::pair<Var, ExprPolynomial>> axes_;
  std::unordered_map<const ExprNode*, Interval> ranges_;
  std::vector<Expr> keep_;  // keeps the keys of `ranges_` alive
};

}  // namespace

KnownSymbols::KnownSymbols(const std::vector<SymbolRange>& symbols) : count_(symbols.size()) {
  known_symbols.insert(known_symbols.end(), symbols.begin(), symbols.end());
}

void KnownSymbols::add(const SymbolRange& symbol) {
  known_symbols.push_back(symbol);
  ++count_;
}

KnownSymbols::~KnownSymbols() { known_symbols.resize(known_symbols.size() - count_); }

const SymbolRange* KnownSymbols::find(const ExprNode* var) {
  for (size_t i = known_symbols.size(); i-- > 0;)
    if (known_symbols[i].var.get() == var) return &known_symbols[i];
  return nullptr;
}

Expr normalize_size(const Expr& size, const std::vector<std::pair<Var, Expr>>& axes) {
  if (size->kind == ExprKind::kConst) return size;
  Normalizer normalizer(axes);
  const ExprPolynomial p = normalizer.of(size);
  return p.exact ? normalizer.to_expr(p) : size;
}

namespace {

std::optional<int64_t> least_difference(const Expr& a, const Expr& b) {
  Normalizer normalizer({});
  return normalizer.lower(normalizer.of(a) - normalizer.of(b));
}

}  // namespace

bool equal_sizes(const Expr& a, const Expr& b) {
  const auto ca = as_int(a), cb = as_int(b);
  if (ca && cb) return *ca == *cb;
  if (structurally_equal(a, b)) return true;
  Normalizer normalizer({});
  const ExprPolynomial difference = normalizer.of(a) - normalizer.of(b);
  return difference.exact && is_const_int(normalizer.to_expr(difference), 0);
}

bool size_at_most(const Expr& a, const Expr& b) { return least_difference(b, a).value_or(-1) >= 0; }

bool sizes_differ(const Expr& a, const Expr& b) {
  return least_difference(a, b).value_or(0) >= 1 || least_difference(b, a).value_or(0) >= 1;
}

Interval size_range(const Expr& size) {
  Normalizer normalizer({});
  const ExprPolynomial p = normalizer.of(size);
  return {normalizer.lower(p), normalizer.upper(p)};
}

namespace {

template <typename ValueOf>
Expr with_values(const Expr& size, const ValueOf& value_of) {
  return simplify(transform(size, [&](const Expr& e) -> Expr {
    return e->kind == ExprKind::kVar ? value_of(e, KnownSymbols::find(e.get())) : Expr();
  }));
}

}  // namespace

int64_t typical_size(const Expr& size) {
  if (const auto known = as_int(size)) return *known;
  static constexpr int64_t kOfUnknown = 64;
  const Expr value = with_values(size, [](const Expr&, const SymbolRange* known) -> Expr {
    if (!known) return kOfUnknown;
    if (known->hi == INT64_MAX) return std::max(known->lo, kOfUnknown);
    const double middle =
        std::sqrt(static_cast<double>(std::max<int64_t>(known->lo, 1)) * static_cast<double>(known->hi));
    const auto steps =
        static_cast<int64_t>((middle - static_cast<double>(known->lo)) / static_cast<double>(known->step));
    return std::clamp(known->lo + std::max<int64_t>(steps, 0) * known->step, known->lo, known->hi);
  });
  return as_int(value).value_or(kOfUnknown);
}

std::optional<int64_t> value_at_least_sizes(const Expr& size) {
  return as_int(with_values(
      size, [](const Expr&, const SymbolRange* known) -> Expr { return known ? Expr(known->lo) : Expr(); }));
}

}  // namespace tessera::inline arith
