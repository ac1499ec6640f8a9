#include "arith/simplify.h"

#include <algorithm>
#include <numeric>

#include "arith/expr_order.h"
#include "arith/int_ops.h"
#include "support/error.h"

namespace tessera::inline arith {
namespace {

using Wide = Int128;

std::optional<int64_t> narrow(Wide v) {
  if (v > INT64_MAX || v < INT64_MIN) return std::nullopt;
  return static_cast<int64_t>(v);
}

int64_t floor_mod(int64_t a, int64_t b) {
  const int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

int64_t negated(int64_t a) { return static_cast<int64_t>(0 - static_cast<uint64_t>(a)); }

bool is_binary(const Expr& e, BinaryOp op) { return e->kind == ExprKind::kBinary && e->binary == op; }

// constant + sum of coefficient * term; terms sorted, distinct, not sums themselves; coefficients not zero. A number
// that does not fit into 64 bits wraps, and nothing may be concluded from the sum.
struct Linear {
  int64_t constant = 0;
  std::vector<std::pair<Expr, int64_t>> terms;
  bool exact = true;

  int64_t sum(int64_t a, int64_t b) {
    int64_t result;
    if (__builtin_add_overflow(a, b, &result)) exact = false;
    return result;
  }
  int64_t product(int64_t a, int64_t b) {
    int64_t result;
    if (__builtin_mul_overflow(a, b, &result)) exact = false;
    return result;
  }
  void add_term(const Expr& term, int64_t coefficient) {
    if (coefficient == 0) return;
    const auto it = std::lower_bound(terms.begin(), terms.end(), term, [](const auto& entry, const Expr& t) {
      return compare_exprs(entry.first, t) < 0;
    });
    if (it != terms.end() && structurally_equal(it->first, term)) {
      it->second = sum(it->second, coefficient);
      if (it->second == 0) terms.erase(it);
    } else {
      terms.insert(it, {term, coefficient});
    }
  }
  void add(const Linear& other, int64_t factor) {
    exact = exact && other.exact;
    constant = sum(constant, product(other.constant, factor));
    for (const auto& [term, coefficient] : other.terms) add_term(term, product(coefficient, factor));
  }
};

// Decomposes the i64 expression `e` without simplifying its terms.
void decompose(const Expr& e, int64_t factor, Linear& out) {
  if (const auto c = as_int(e)) {
    out.constant = out.sum(out.constant, out.product(*c, factor));
    return;
  }
  if (e->kind == ExprKind::kBinary) {
    const Expr& a = e->operands[0];
    const Expr& b = e->operands[1];
    if (e->binary == BinaryOp::kAdd || e->binary == BinaryOp::kSub) {
      decompose(a, factor, out);
      decompose(b, e->binary == BinaryOp::kSub ? out.product(factor, -1) : factor, out);
      return;
    }
    if (e->binary == BinaryOp::kMul) {
      if (const auto cb = as_int(b)) return decompose(a, out.product(factor, *cb), out);
      if (const auto ca = as_int(a)) return decompose(b, out.product(factor, *ca), out);
    }
  }
  if (e->kind == ExprKind::kUnary && e->unary == UnaryOp::kNeg)
    return decompose(e->operands[0], out.product(factor, -1), out);
  out.add_term(e, factor);
}

Linear linear_of(const Expr& e) {
  Linear linear;
  decompose(e, 1, linear);
  return linear;
}

Linear difference_of(const Expr& a, const Expr& b) {
  Linear linear = linear_of(a);
  linear.add(linear_of(b), -1);
  return linear;
}

// k*c*floordiv(x, c) + k*floormod(x, c) = k*x.
void join_div_mod(Linear& linear) {
  for (size_t i = 0; i < linear.terms.size(); ++i) {
    const auto [mod, k] = linear.terms[i];
    if (!is_binary(mod, BinaryOp::kFloorMod)) continue;
    const auto c = as_int(mod->operands[1]);
    if (!c) continue;
    for (size_t j = 0; j < linear.terms.size(); ++j) {
      const auto [div, kc] = linear.terms[j];
      if (!is_binary(div, BinaryOp::kFloorDiv) || !is_const_int(div->operands[1], *c) ||
          kc != static_cast<Wide>(k) * *c || !structurally_equal(div->operands[0], mod->operands[0]))
        continue;
      const Expr x = mod->operands[0];
      linear.add_term(mod, negated(k));
      linear.add_term(div, negated(kc));
      linear.add(linear_of(x), k);
      join_div_mod(linear);
      return;
    }
  }
}

Expr to_expr(const Linear& linear) {
  Expr sum;
  for (const auto& [term, coefficient] : linear.terms) {
    if (!sum) sum = coefficient == 1 ? term : term * Expr(coefficient);
    else if (coefficient == 1) sum = sum + term;
    else if (coefficient == -1) sum = sum - term;
    else if (coefficient < 0) sum = sum - term * Expr(negated(coefficient));
    else sum = sum + term * Expr(coefficient);
  }
  if (!sum) return linear.constant;
  if (linear.constant > 0) return sum + Expr(linear.constant);
  if (linear.constant < 0 && linear.constant != INT64_MIN) return sum - Expr(-linear.constant);
  return sum + Expr(linear.constant);
}

class Engine {
 public:
  explicit Engine(const Bounds& bounds) : bounds_(bounds) {}

  Interval range(const Expr& e) {
    if (const auto c = as_int(e)) return Interval::point(*c);
    const Linear linear = linear_of(e);
    if (linear.terms.size() == 1 && linear.constant == 0 && linear.terms[0].second == 1 &&
        linear.terms[0].first.same_node(e))
      return atom_range(e);
    return may_wrap(linear) ? Interval{} : range(linear);
  }

  // Of the sum as a number without bounds; nothing where a number in it does not fit into 64 bits.
  Interval range(const Linear& linear) {
    if (!linear.exact) return {};
    Wide lo = linear.constant;
    Wide hi = linear.constant;
    bool has_lo = true;
    bool has_hi = true;
    const auto add = [](Wide& sum, bool& has, const std::optional<int64_t>& end, int64_t k) {
      has = has && end && !__builtin_add_overflow(sum, static_cast<Wide>(*end) * k, &sum);
    };
    for (const auto& [term, k] : linear.terms) {
      const Interval r = atom_range(term);
      const auto& low_end = k > 0 ? r.lo : r.hi;
      const auto& high_end = k > 0 ? r.hi : r.lo;
      add(lo, has_lo, low_end, k);
      add(hi, has_hi, high_end, k);
    }
    return {has_lo ? narrow(lo) : std::nullopt, has_hi ? narrow(hi) : std::nullopt};
  }

  Expr simplify(const Expr& e) {
    if (e->kind == ExprKind::kConst) return e;
    if (const auto it = memo_.find(e.get()); it != memo_.end()) return it->second;
    Expr result = simplify_node(e);
    keep_.push_back(e);
    memo_.emplace(e.get(), result);
    return result;
  }

 private:
  bool has_load(const Expr& e) {
    if (e->operands.empty()) return e->kind == ExprKind::kLoad;
    if (const auto it = has_load_.find(e.get()); it != has_load_.end()) return it->second;
    bool found = e->kind == ExprKind::kLoad;
    for (const Expr& operand : e->operands) found = found || has_load(operand);
    keep_.push_back(e);
    return has_load_[e.get()] = found;
  }

  // Whether the value may differ from the sum because 64 bits do not hold that: sums of what is loaded from memory wrap
  // (expr.h). Sums of loop variables and of sizes count elements, which fit.
  bool may_wrap(const Linear& linear) {
    if (!linear.exact) return true;
    if (linear.terms.empty() || (linear.terms.size() == 1 && linear.constant == 0 && linear.terms[0].second == 1))
      return false;
    if (std::none_of(linear.terms.begin(), linear.terms.end(), [&](const auto& term) { return has_load(term.first); }))
      return false;
    const Interval r = range(linear);
    return !r.lo || !r.hi;
  }

  // Of a - b as a number without bounds.
  Interval difference(const Expr& a, const Expr& b) {
    const Linear linear = difference_of(a, b);
    if (linear.exact && linear.terms.empty() && linear.constant == 0) return Interval::point(0);
    return may_wrap(linear_of(a)) || may_wrap(linear_of(b)) ? Interval{} : range(linear);
  }

  Interval atom_range(const Expr& e) {
    switch (e->kind) {
      case ExprKind::kConst: return Interval::point(e->int_value);
      case ExprKind::kVar: return bounds_.of(e.get());
      case ExprKind::kSelect: return unite(range(e->operands[1]), range(e->operands[2]));
      case ExprKind::kCast: {
        const DType from = e->operands[0].dtype();
        if (from == DType::kBool) return {0, 1};
        if (is_int(from) && dtype_bits(from) <= 32 && dtype_bits(e->dtype) > dtype_bits(from))
          return is_signed_int(from) ? Interval{-(1ll << (dtype_bits(from) - 1)), (1ll << (dtype_bits(from) - 1)) - 1}
                                     : Interval{0, (1ll << dtype_bits(from)) - 1};
        return {};
      }
      case ExprKind::kUnary:
        // That of the smallest number is itself.
        if (e->unary == UnaryOp::kAbs && (!has_load(e) || range(e->operands[0]).lo.value_or(INT64_MIN) > INT64_MIN))
          return {0, std::nullopt};
        return e->dtype == DType::kBool ? Interval{0, 1} : Interval{};
      case ExprKind::kBinary: return binary_range(e);
      default: return e->dtype == DType::kBool ? Interval{0, 1} : Interval{};
    }
  }

  static Interval unite(const Interval& a, const Interval& b) {
    return {a.lo && b.lo ? std::optional(std::min(*a.lo, *b.lo)) : std::nullopt,
            a.hi && b.hi ? std::optional(std::max(*a.hi, *b.hi)) : std::nullopt};
  }

  Interval binary_range(const Expr& e) {
    if (e->dtype == DType::kBool) return {0, 1};
    if (e->dtype != DType::kI64) return {};
    const Interval a = range(e->operands[0]);
    const Interval b = range(e->operands[1]);
    switch (e->binary) {
      case BinaryOp::kMin:
        return {a.lo && b.lo ? std::optional(std::min(*a.lo, *b.lo)) : std::nullopt,
                a.hi && b.hi ? std::optional(std::min(*a.hi, *b.hi))
                : a.hi       ? a.hi
                             : b.hi};
      case BinaryOp::kMax:
        return {a.lo && b.lo ? std::optional(std::max(*a.lo, *b.lo))
                : a.lo       ? a.lo
                             : b.lo,
                a.hi && b.hi ? std::optional(std::max(*a.hi, *b.hi)) : std::nullopt};
      case BinaryOp::kMul: {
        if (!a.lo || !a.hi || !b.lo || !b.hi) {
          if (!has_load(e) && a.lo && b.lo && *a.lo >= 0 && *b.lo >= 0)
            return {narrow(static_cast<Wide>(*a.lo) * *b.lo), std::nullopt};
          return {};
        }
        const Wide products[] = {static_cast<Wide>(*a.lo) * *b.lo, static_cast<Wide>(*a.lo) * *b.hi,
                                 static_cast<Wide>(*a.hi) * *b.lo, static_cast<Wide>(*a.hi) * *b.hi};
        const Interval product = {narrow(*std::min_element(products, products + 4)),
                                  narrow(*std::max_element(products, products + 4))};
        return has_load(e) && (!product.lo || !product.hi) ? Interval{} : product;
      }
      case BinaryOp::kFloorDiv: {
        if (!b.is_point() || *b.lo <= 0) {
          if (a.lo && b.lo && *a.lo >= 0 && *b.lo > 0) return {0, a.hi ? std::optional(*a.hi / *b.lo) : std::nullopt};
          return {};
        }
        return {a.lo ? std::optional(floor_div(*a.lo, *b.lo)) : std::nullopt,
                a.hi ? std::optional(floor_div(*a.hi, *b.lo)) : std::nullopt};
      }
      case BinaryOp::kFloorMod: {
        if (!b.lo || *b.lo <= 0) return {};
        if (b.is_point() && a.lo && a.hi && floor_div(*a.lo, *b.lo) == floor_div(*a.hi, *b.lo))
          return {floor_mod(*a.lo, *b.lo), floor_mod(*a.hi, *b.lo)};
        return {0, b.hi ? std::optional(*b.hi - 1) : std::nullopt};
      }
      default: return {};
    }
  }

  Expr simplify_node(const Expr& e) {
    if (e->kind == ExprKind::kVar) {
      const Interval r = bounds_.of(e.get());
      return r.is_point() && e->dtype == DType::kI64 ? Expr(*r.lo) : e;
    }
    std::vector<Expr> operands;
    bool changed = false;
    for (const Expr& operand : e->operands) {
      operands.push_back(simplify(operand));
      changed |= !operands.back().same_node(operand);
    }
    switch (e->kind) {
      case ExprKind::kLoad: return changed ? load(e->buffer, std::move(operands)) : e;
      case ExprKind::kUnary:
        if (e->unary == UnaryOp::kNeg && e->dtype == DType::kI64) return canonical(-operands[0]);
        if (!changed) return e;
        return e->unary == UnaryOp::kBitcast ? bitcast(e->dtype, operands[0]) : unary(e->unary, operands[0]);
      case ExprKind::kSelect:
        if (structurally_equal(operands[1], operands[2])) return operands[1];
        return select(operands[0], operands[1], operands[2]);
      case ExprKind::kFma: return changed ? fma(operands[0], operands[1], operands[2]) : e;
      case ExprKind::kCast: return changed ? cast(e->dtype, operands[0]) : e;
      case ExprKind::kBinary:
        if (operands[0].dtype() == DType::kI64) return simplify_binary(e->binary, operands[0], operands[1]);
        return changed ? binary(e->binary, operands[0], operands[1]) : e;
      default: return e;
    }
  }

  Expr canonical(const Expr& sum) {
    Linear linear = linear_of(sum);
    join_div_mod(linear);
    return linear.exact ? to_expr(linear) : sum;
  }

  Expr simplify_binary(BinaryOp op, const Expr& a, const Expr& b) {
    switch (op) {
      case BinaryOp::kAdd:
      case BinaryOp::kSub:
      case BinaryOp::kMul: return canonical(binary(op, a, b));
      case BinaryOp::kDiv:
      case BinaryOp::kRem: {
        const Interval ra = range(a);
        const Interval rb = range(b);
        if (ra.lo && *ra.lo >= 0 && rb.lo && *rb.lo > 0)
          return simplify_binary(op == BinaryOp::kDiv ? BinaryOp::kFloorDiv : BinaryOp::kFloorMod, a, b);
        return binary(op, a, b);
      }
      case BinaryOp::kFloorDiv: return divide(a, b);
      case BinaryOp::kFloorMod: return modulo(a, b);
      case BinaryOp::kMin:
      case BinaryOp::kMax: {
        const Interval d = difference(a, b);
        const bool is_min = op == BinaryOp::kMin;
        if (d.hi && *d.hi <= 0) return is_min ? a : b;
        if (d.lo && *d.lo >= 0) return is_min ? b : a;
        return binary(op, a, b);
      }
      default: break;
    }
    if (is_comparison(op)) {
      const Interval d = difference(a, b);
      const bool below = d.hi && *d.hi < 0;  // a < b
      const bool not_above = d.hi && *d.hi <= 0;
      const bool above = d.lo && *d.lo > 0;
      const bool not_below = d.lo && *d.lo >= 0;
      const auto answer = [&](bool yes, bool no, const Expr& open) {
        return yes ? const_int(DType::kBool, 1) : no ? const_int(DType::kBool, 0) : open;
      };
      const Expr open = binary(op, a, b);
      switch (op) {
        case BinaryOp::kLt: return answer(below, not_below, open);
        case BinaryOp::kLe: return answer(not_above, above, open);
        case BinaryOp::kGt: return answer(above, not_above, open);
        case BinaryOp::kGe: return answer(not_below, below, open);
        case BinaryOp::kEq: return answer(d.is_point() && *d.lo == 0, below || above, open);
        case BinaryOp::kNe: return answer(below || above, d.is_point() && *d.lo == 0, open);
        default: break;
      }
    }
    return binary(op, a, b);
  }

  // Splits linear = c * quotient + rest with coefficients of `rest` not divisible by c, and 0 <= rest.constant < c.
  static void split(const Linear& linear, int64_t c, Linear& quotient, Linear& rest) {
    quotient.constant = floor_div(linear.constant, c);
    rest.constant = floor_mod(linear.constant, c);
    for (const auto& [term, k] : linear.terms) {
      if (k % c == 0) quotient.terms.push_back({term, k / c});
      else rest.terms.push_back({term, k});
    }
  }

  // g*X + s = rest with 0 <= s < g for some g > 1 that divides c: then floordiv and floormod work on X alone.
  bool split_small(const Linear& rest, int64_t c, int64_t& g, Linear& big, Linear& small) {
    for (const auto& entry : rest.terms) {
      g = entry.second == INT64_MIN ? 1 : std::gcd(entry.second, c);
      if (g <= 1 || g >= c) continue;
      big = {};
      small = {};
      big.constant = floor_div(rest.constant, g);
      small.constant = floor_mod(rest.constant, g);
      for (const auto& [term, k] : rest.terms) {
        if (k % g == 0) big.terms.push_back({term, k / g});
        else small.terms.push_back({term, k});
      }
      const Interval r = range(small);
      if (r.lo && r.hi && *r.lo >= 0 && *r.hi < g) return true;
    }
    return false;
  }

  Expr divide(const Expr& a, const Expr& b) {
    const auto c = as_int(b);
    if (!c || *c <= 0) return binary(BinaryOp::kFloorDiv, a, b);
    if (*c == 1) return a;
    if (is_binary(a, BinaryOp::kFloorDiv))
      if (const auto inner = as_int(a->operands[1]); inner && *inner > 0)
        if (const auto product = narrow(static_cast<Wide>(*inner) * *c)) return divide(a->operands[0], *product);
    const Linear linear = linear_of(a);
    if (may_wrap(linear)) return binary(BinaryOp::kFloorDiv, a, b);
    Linear quotient;
    Linear rest;
    split(linear, *c, quotient, rest);
    if (may_wrap(quotient) || may_wrap(rest)) return binary(BinaryOp::kFloorDiv, a, b);
    const Interval r = range(rest);
    if (r.lo && r.hi && floor_div(*r.lo, *c) == floor_div(*r.hi, *c)) {
      quotient.constant = quotient.sum(quotient.constant, floor_div(*r.lo, *c));
      if (quotient.exact) return canonical(to_expr(quotient));
    }
    int64_t g = 0;
    Linear big;
    Linear small;
    Expr tail;
    if (split_small(rest, *c, g, big, small)) tail = divide(to_expr(big), *c / g);
    else tail = binary(BinaryOp::kFloorDiv, to_expr(rest), b);
    return canonical(to_expr(quotient) + tail);
  }

  Expr modulo(const Expr& a, const Expr& b) {
    const auto c = as_int(b);
    if (!c || *c <= 0) return binary(BinaryOp::kFloorMod, a, b);
    if (*c == 1) return 0;
    if (is_binary(a, BinaryOp::kFloorMod))
      if (const auto inner = as_int(a->operands[1]); inner && *inner > 0 && *inner % *c == 0)
        return modulo(a->operands[0], b);
    const Linear linear = linear_of(a);
    if (may_wrap(linear)) return binary(BinaryOp::kFloorMod, a, b);
    Linear quotient;
    Linear rest;
    split(linear, *c, quotient, rest);
    if (may_wrap(rest)) return binary(BinaryOp::kFloorMod, a, b);
    const Interval r = range(rest);
    if (r.lo && r.hi && floor_div(*r.lo, *c) == floor_div(*r.hi, *c)) {
      const auto constant = narrow(rest.constant - static_cast<Wide>(floor_div(*r.lo, *c)) * *c);
      if (constant) {
        rest.constant = *constant;
        return canonical(to_expr(rest));
      }
    }
    int64_t g = 0;
    Linear big;
    Linear small;
    if (split_small(rest, *c, g, big, small)) return canonical(modulo(to_expr(big), *c / g) * Expr(g) + to_expr(small));
    return binary(BinaryOp::kFloorMod, to_expr(rest), b);
  }

  const Bounds& bounds_;
  std::unordered_map<const ExprNode*, Expr> memo_;
  std::unordered_map<const ExprNode*, bool> has_load_;
  std::vector<Expr> keep_;  // keeps the keys of the memos alive
};

}  // namespace

Interval Bounds::of(const ExprNode* var) const {
  const auto it = intervals_.find(var);
  return it == intervals_.end() ? Interval{} : it->second;
}

Interval bounds_of(const Expr& e, const Bounds& bounds) {
  Engine engine(bounds);
  return engine.range(engine.simplify(e));
}

Expr simplify(const Expr& e, const Bounds& bounds) { return Engine(bounds).simplify(e); }

bool can_prove(const Expr& condition, const Bounds& bounds) {
  check(condition.dtype() == DType::kBool, "can_prove needs a bool");
  return is_true(Engine(bounds).simplify(condition));
}

std::optional<int64_t> linear_coefficient(const Expr& e, const Var& var, const Bounds& bounds) {
  const Linear linear = linear_of(Engine(bounds).simplify(e));
  int64_t coefficient = 0;
  for (const auto& [term, k] : linear.terms) {
    if (term.same_node(var)) coefficient = k;
    else if (uses_var(term, var)) return std::nullopt;
  }
  return coefficient;
}

}  // namespace tessera::inline arith
