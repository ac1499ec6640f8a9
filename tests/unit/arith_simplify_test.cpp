// The index simplifier held against evaluation: random expressions over bounded variables, every assignment (or a
// sample of them when there are many).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "arith/expr.h"
#include "arith/simplify.h"
#include "support/error.h"

namespace tessera {
namespace {

using Assignment = std::unordered_map<const ExprNode*, int64_t>;

int64_t floor_div(int64_t a, int64_t b) {
  if (b == 0) return 0;
  const int64_t q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

// The meaning of index expressions, written independently of arith's own folding. Loads are a fixed function of
// their indices, so that load indices are compared too. Values stay small: no overflow.
int64_t evaluate(const Expr& e, const Assignment& values) {
  const auto at = [&](size_t i) { return evaluate(e->operands[i], values); };
  switch (e->kind) {
    case ExprKind::kConst: return e->int_value;
    case ExprKind::kVar: return values.at(e.get());
    case ExprKind::kLoad: {
      int64_t hash = 7;
      for (size_t i = 0; i < e->operands.size(); ++i) hash = hash * 31 + at(i);
      return floor_div(hash, 3) - floor_div(floor_div(hash, 3), 50) * 50;
    }
    case ExprKind::kSelect: return at(0) ? at(1) : at(2);
    case ExprKind::kCast: return e.dtype() == DType::kBool ? at(0) != 0 : at(0);
    case ExprKind::kUnary:
      switch (e->unary) {
        case UnaryOp::kNeg: return -at(0);
        case UnaryOp::kAbs: return std::abs(at(0));
        case UnaryOp::kNot: return e.dtype() == DType::kBool ? !at(0) : ~at(0);
        default: break;
      }
      break;
    case ExprKind::kBinary: {
      const int64_t a = at(0);
      const int64_t b = at(1);
      switch (e->binary) {
        case BinaryOp::kAdd: return a + b;
        case BinaryOp::kSub: return a - b;
        case BinaryOp::kMul: return a * b;
        case BinaryOp::kDiv: return b == 0 ? 0 : a / b;
        case BinaryOp::kRem: return b == 0 ? a : a % b;
        case BinaryOp::kFloorDiv: return floor_div(a, b);
        case BinaryOp::kFloorMod: return b == 0 ? a : a - floor_div(a, b) * b;
        case BinaryOp::kMin: return std::min(a, b);
        case BinaryOp::kMax: return std::max(a, b);
        case BinaryOp::kAnd: return a & b;
        case BinaryOp::kOr: return a | b;
        case BinaryOp::kXor: return a ^ b;
        case BinaryOp::kEq: return a == b;
        case BinaryOp::kNe: return a != b;
        case BinaryOp::kLt: return a < b;
        case BinaryOp::kLe: return a <= b;
        case BinaryOp::kGt: return a > b;
        case BinaryOp::kGe: return a >= b;
        default: break;
      }
      break;
    }
    case ExprKind::kFma: break;
  }
  throw InternalError("not an index expression: " + to_string(e));
}

// Random index expressions over a few bounded variables.
class Generator {
 public:
  explicit Generator(unsigned seed) : random_(seed), x_(make_buffer("x", DType::kI64, {100, 100})) {
    for (const char* name : {"i", "j", "k"}) {
      const Var var = make_var(name);
      const int64_t lo = pick(4) == 0 ? pick(9) - 6 : 0;
      const int64_t extent = std::vector<int64_t>{1, 2, 3, 4, 7, 8, 12, 16}[static_cast<size_t>(pick(8))];
      vars.push_back(var);
      ranges.push_back({lo, lo + extent - 1});
      bounds.set(var, lo, lo + extent - 1);
    }
  }

  int64_t pick(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }

  Expr index(int depth) {
    if (depth == 0 || pick(8) == 0) return pick(4) == 0 ? Expr(pick(33) - 8) : vars[static_cast<size_t>(pick(3))];
    switch (pick(14)) {
      case 0:
      case 1:
      case 2: return index(depth - 1) + index(depth - 1);
      case 3: return index(depth - 1) - index(depth - 1);
      case 4:
      case 5: return index(depth - 1) * Expr(factor());
      case 6: return floordiv(index(depth - 1), factor());
      case 7: return floormod(index(depth - 1), factor());
      case 8: return floordiv(index(depth - 1) * Expr(factor()) + index(depth - 1), factor());
      case 9: return floormod(index(depth - 1) * Expr(factor()) + index(depth - 1), factor());
      case 10: return pick(2) ? min(index(depth - 1), index(depth - 1)) : max(index(depth - 1), index(depth - 1));
      case 11: return select(condition(depth - 1), index(depth - 1), index(depth - 1));
      case 12: return pick(2) ? -index(depth - 1) : index(depth - 1) * index(depth - 1);
      default: return odd(depth);
    }
  }

  Expr condition(int depth) {
    switch (pick(10)) {
      case 0: return logical_and(condition_or_leaf(depth), condition_or_leaf(depth));
      case 1: return logical_or(condition_or_leaf(depth), condition_or_leaf(depth));
      case 2: return unary(UnaryOp::kNot, condition_or_leaf(depth));
      default: break;
    }
    static constexpr BinaryOp kOps[] = {BinaryOp::kEq, BinaryOp::kNe, BinaryOp::kLt,
                                        BinaryOp::kLe, BinaryOp::kGt, BinaryOp::kGe};
    return binary(kOps[pick(6)], index(std::max(0, depth - 1)), index(std::max(0, depth - 1)));
  }

  Assignment sample() {
    Assignment values;
    for (size_t i = 0; i < vars.size(); ++i)
      values[vars[i].get()] = ranges[i].first + pick(ranges[i].second - ranges[i].first + 1);
    return values;
  }

  std::vector<Var> vars;
  std::vector<std::pair<int64_t, int64_t>> ranges;
  Bounds bounds;

 private:
  Expr condition_or_leaf(int depth) { return depth > 0 ? condition(depth - 1) : vars[0] < vars[1]; }
  int64_t factor() { return std::vector<int64_t>{2, 3, 4, 8, 16, 12, 1, 5}[static_cast<size_t>(pick(8))]; }
  Expr odd(int depth) {
    switch (pick(7)) {
      case 0: return load(x_, {index(depth - 1), index(depth - 1)});
      case 1: return binary(BinaryOp::kDiv, index(depth - 1), factor());
      case 2: return binary(BinaryOp::kRem, index(depth - 1), factor());
      case 3: return unary(UnaryOp::kAbs, index(depth - 1));
      case 4: return floordiv(index(depth - 1), pick(2) ? Expr(-factor()) : index(0));  // the divisor may be 0
      case 5: return floormod(index(depth - 1), pick(2) ? Expr(-factor()) : index(0));
      default: return cast(DType::kI64, condition(depth - 1));
    }
  }

  std::mt19937 random_;
  BufferPtr x_;
};

constexpr int kSeeds = 6000;
constexpr int kSamples = 40;

std::string where(const Generator& g, const Assignment& values) {
  std::string text;
  for (size_t i = 0; i < g.vars.size(); ++i)
    text += g.vars[i]->name + " in " + std::to_string(g.ranges[i].first) + ".." + std::to_string(g.ranges[i].second) +
            " = " + std::to_string(values.at(g.vars[i].get())) + "; ";
  return text;
}

TEST(Simplify, EqualForAllAssignments) {
  int failures = 0;
  for (unsigned seed = 0; seed < kSeeds && failures < 5; ++seed) {
    Generator g(seed);
    const Expr e = g.index(1 + static_cast<int>(seed % 5));
    const Expr s = simplify(e, g.bounds);
    for (int sample = 0; sample < kSamples; ++sample) {
      const Assignment values = g.sample();
      if (evaluate(e, values) == evaluate(s, values)) continue;
      ADD_FAILURE() << "seed " << seed << ": " << to_string(e) << "\n  became " << to_string(s) << "\n  at "
                    << where(g, values) << evaluate(e, values) << " became " << evaluate(s, values);
      ++failures;
      break;
    }
  }
}

TEST(Simplify, WithoutBoundsToo) {
  int failures = 0;
  for (unsigned seed = 0; seed < kSeeds && failures < 5; ++seed) {
    Generator g(seed);
    const Expr e = g.index(1 + static_cast<int>(seed % 4));
    const Expr s = simplify(e);
    for (int sample = 0; sample < kSamples; ++sample) {
      Assignment values;
      for (const Var& var : g.vars) values[var.get()] = g.pick(2001) - 1000;
      if (evaluate(e, values) == evaluate(s, values)) continue;
      ADD_FAILURE() << "seed " << seed << ": " << to_string(e) << "\n  became " << to_string(s);
      ++failures;
      break;
    }
  }
}

TEST(Simplify, Conditions) {
  int failures = 0;
  int proved = 0;
  for (unsigned seed = 0; seed < kSeeds && failures < 5; ++seed) {
    Generator g(seed);
    const Expr e = g.condition(1 + static_cast<int>(seed % 4));
    const Expr s = simplify(e, g.bounds);
    const bool certain = can_prove(e, g.bounds);
    proved += certain;
    for (int sample = 0; sample < kSamples; ++sample) {
      const Assignment values = g.sample();
      const bool holds = evaluate(e, values) != 0;
      if (holds == (evaluate(s, values) != 0) && (holds || !certain)) continue;
      ADD_FAILURE() << "seed " << seed << ": " << to_string(e) << "\n  became " << to_string(s)
                    << (certain ? " (proved)" : "") << "\n  at " << where(g, values);
      ++failures;
      break;
    }
  }
  EXPECT_GT(proved, kSeeds / 20);
}

TEST(Simplify, BoundsContainEveryValue) {
  int failures = 0;
  int known = 0;
  for (unsigned seed = 0; seed < kSeeds && failures < 5; ++seed) {
    Generator g(seed);
    const Expr e = g.index(1 + static_cast<int>(seed % 5));
    const Interval range = bounds_of(e, g.bounds);
    known += range.lo && range.hi;
    for (int sample = 0; sample < kSamples; ++sample) {
      const Assignment values = g.sample();
      const int64_t value = evaluate(e, values);
      if ((!range.lo || *range.lo <= value) && (!range.hi || value <= *range.hi)) continue;
      ADD_FAILURE() << "seed " << seed << ": " << to_string(e) << " = " << value << " at " << where(g, values)
                    << "\n  bounds " << (range.lo ? std::to_string(*range.lo) : "-") << ".."
                    << (range.hi ? std::to_string(*range.hi) : "-");
      ++failures;
      break;
    }
  }
  EXPECT_GT(known, kSeeds * 7 / 10);  // loads and products of unknowns have none
}

TEST(Simplify, LinearCoefficientIsTheSlope) {
  int failures = 0;
  int linear = 0;
  for (unsigned seed = 0; seed < kSeeds && failures < 5; ++seed) {
    Generator g(seed);
    const Expr e = g.index(1 + static_cast<int>(seed % 4));
    const Var var = g.vars[seed % 3];
    const auto c = linear_coefficient(e, var, g.bounds);
    if (!c) continue;
    linear += *c != 0;
    for (int sample = 0; sample < kSamples; ++sample) {
      Assignment values = g.sample();
      if (values[var.get()] == g.ranges[seed % 3].second) continue;
      const int64_t before = evaluate(e, values);
      ++values[var.get()];
      if (evaluate(e, values) == before + *c) continue;
      ADD_FAILURE() << "seed " << seed << ": " << to_string(e) << " has coefficient " << *c << " of " << var->name
                    << "?";
      ++failures;
      break;
    }
  }
  EXPECT_GT(linear, kSeeds / 20);
}

TEST(Simplify, IsStable) {
  int changed = 0;
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    Generator g(seed);
    const Expr once = simplify(g.index(1 + static_cast<int>(seed % 4)), g.bounds);
    changed += to_string(simplify(once, g.bounds)) != to_string(once);
  }
  EXPECT_LT(changed, kSeeds / 50) << "simplifying twice should rarely find more";
}

TEST(Simplify, KnownForms) {
  const Var i = make_var("i");
  const Var j = make_var("j");
  Bounds bounds;
  bounds.set(i, 0, 55);
  bounds.set(j, 0, 15);
  const auto text = [&](const Expr& e) { return to_string(simplify(e, bounds)); };
  EXPECT_EQ(text(floordiv(i * 16 + j, 16)), "i");
  EXPECT_EQ(text(floormod(i * 16 + j, 16)), "j");
  EXPECT_EQ(text(floordiv(j, 16)), "0");
  EXPECT_EQ(text(floormod(i, 56)), "i");
  EXPECT_EQ(text(floordiv(i, 8) * 8 + floormod(i, 8)), "i");
  EXPECT_EQ(text(i + j - i), "j");
  EXPECT_EQ(text(i < Expr(56)), "true");
  EXPECT_EQ(text(j * 2 >= Expr(31)), "false");
  EXPECT_EQ(text(min(i, Expr(60))), "i");
  EXPECT_EQ(text(select(j < Expr(16), i, j)), "i");
  EXPECT_FALSE(can_prove(i < Expr(55), bounds));
  EXPECT_TRUE(can_prove(i + j < Expr(71), bounds));
}

// Numbers near the ends of 64 bits: nothing may be concluded from sums that wrap.
TEST(Simplify, HugeNumbers) {
  const Var i = make_var("i");
  Bounds bounds;
  bounds.set(i, INT64_MAX - 5, INT64_MAX);
  EXPECT_FALSE(can_prove(i + Expr(10) > Expr(0), bounds));
  const Interval sum = bounds_of(i + Expr(10), bounds);
  EXPECT_TRUE(!sum.hi || *sum.hi == INT64_MAX || !sum.lo);
  bounds.set(i, INT64_MIN, INT64_MAX);
  EXPECT_FALSE(can_prove(i * Expr(2) <= Expr(INT64_MAX - 1), bounds));
  EXPECT_NO_THROW(simplify(floordiv(i * Expr(INT64_MAX) + Expr(INT64_MIN), 7), bounds));
  EXPECT_NO_THROW(simplify(floormod(i - Expr(INT64_MIN), INT64_MAX), bounds));
}

// What is loaded from memory may be any number, and its sums and products wrap.
TEST(Simplify, LoadedNumbersWrap) {
  const Expr x = load(make_buffer("x", DType::kI64, {Expr(9)}), {Expr(0)});
  const Expr n = cast(DType::kI64, load(make_buffer("n", DType::kI32, {Expr(9)}), {Expr(0)}));
  const Var j = make_var("j");
  Bounds bounds;
  bounds.set(j, 0, 15);
  const Expr huge(int64_t{1} << 62);
  const auto text = [&](const Expr& e) { return to_string(simplify(e, bounds)); };
  EXPECT_EQ(text(floordiv(x * huge, huge)), to_string(floordiv(x * huge, huge)));
  EXPECT_EQ(text(floormod(x * Expr(3) + Expr(3), 3)), to_string(floormod(x * Expr(3) + Expr(3), 3)));
  EXPECT_FALSE(can_prove(x + Expr(INT64_MAX) > x, bounds));
  EXPECT_FALSE(can_prove(x + Expr(1) > x, bounds));
  EXPECT_EQ(text(min(x, x + Expr(1))), to_string(min(x, x + Expr(1))));
  EXPECT_FALSE(bounds_of(unary(UnaryOp::kAbs, x), bounds).lo.has_value());
  EXPECT_FALSE(bounds_of(unary(UnaryOp::kAbs, n * Expr(int64_t{1} << 32)), bounds).lo.has_value());
  EXPECT_EQ(bounds_of(unary(UnaryOp::kAbs, n), bounds).lo, 0);
  EXPECT_FALSE(bounds_of(n * n * n, bounds).hi.has_value());
  EXPECT_TRUE(can_prove(equal(x + Expr(1), Expr(1) + x), bounds));
  EXPECT_TRUE(can_prove(max(min(x, Expr(8)), Expr(0)) < Expr(9), bounds));
  // 32 bits and a few more fit.
  EXPECT_TRUE(can_prove(n + Expr(1) > n, bounds));
  EXPECT_EQ(text(floordiv(n * Expr(16) + j, 16)), to_string(n));
  EXPECT_EQ(text(floormod(n * Expr(16) + j, 16)), "j");
}

}  // namespace
}  // namespace tessera
