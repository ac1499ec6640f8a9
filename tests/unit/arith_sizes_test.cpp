// Normal forms of sizes and proofs about them, held against evaluation: random expressions of symbols with ranges and
// steps, and of indices of tensors of such sizes.
#include <gtest/gtest.h>

#include <random>

#include "arith/int_ops.h"
#include "arith/simplify.h"

namespace tessera {
namespace {

using Assignment = std::unordered_map<const ExprNode*, int64_t>;

int64_t evaluate(const Expr& e, const Assignment& values) {
  if (const auto c = as_int(e)) return *c;
  if (e->kind == ExprKind::kVar) return values.at(e.get());
  const int64_t a = evaluate(e->operands[0], values);
  if (e->kind == ExprKind::kUnary) return -a;
  const int64_t b = evaluate(e->operands[1], values);
  switch (e->binary) {
    case BinaryOp::kAdd: return a + b;
    case BinaryOp::kSub: return a - b;
    case BinaryOp::kMul: return a * b;
    case BinaryOp::kFloorDiv: return b == 0 ? 0 : floor_div(a, b);
    case BinaryOp::kFloorMod: return b == 0 ? a : a - floor_div(a, b) * b;
    case BinaryOp::kDiv: return b == 0 ? 0 : a / b;
    case BinaryOp::kRem: return b == 0 ? a : a % b;
    case BinaryOp::kMin: return std::min(a, b);
    case BinaryOp::kMax: return std::max(a, b);
    default: ADD_FAILURE() << "unexpected " << to_string(e); return 0;
  }
}

struct Sizes {
  std::vector<SymbolRange> symbols = {
      {make_var("n"), 1, 9, 1}, {make_var("l"), 0, 12, 1}, {make_var("h"), 32, 160, 32}, {make_var("w"), 3, 30, 9}};
  const Expr& n = symbols[0].var;
  const Expr& l = symbols[1].var;
  const Expr& h = symbols[2].var;
  const Expr& w = symbols[3].var;

  Assignment random_values(std::mt19937_64& random) const {
    Assignment values;
    for (const SymbolRange& s : symbols) {
      const auto count = static_cast<uint64_t>((s.hi - s.lo) / s.step + 1);
      values[s.var.get()] = s.lo + static_cast<int64_t>(random() % count) * s.step;
    }
    return values;
  }
};

Expr random_size(std::mt19937_64& random, const std::vector<Expr>& leaves, int depth) {
  if (depth == 0 || random() % 6 == 0) {
    if (random() % 3 == 0) return static_cast<int64_t>(random() % 40) - 5;
    return leaves[random() % leaves.size()];
  }
  Expr a = random_size(random, leaves, depth - 1);
  const auto divisor = [&]() -> Expr {
    static constexpr int64_t kDivisors[] = {1, 2, 3, 4, 8, 16, 32, 64};
    if (random() % 4 == 0) return random_size(random, leaves, 1);
    return kDivisors[random() % 8];
  };
  switch (random() % 10) {
    case 0:
    case 1:
    case 2: return a + random_size(random, leaves, depth - 1);
    case 3: return a - random_size(random, leaves, depth - 1);
    case 4:
    case 5: return a * random_size(random, leaves, depth > 2 ? 1 : depth - 1);
    case 6: return floordiv(a, divisor());
    case 7: return floormod(a, divisor());
    case 8: return min(a, random_size(random, leaves, depth - 1));
    default: return max(a, random_size(random, leaves, depth - 1));
  }
}

TEST(Sizes, NormalFormsHaveTheSameValues) {
  std::mt19937_64 random(1);
  const Sizes sizes;
  const KnownSymbols known(sizes.symbols);
  for (int i = 0; i < 4000; ++i) {
    const Expr e = random_size(random, {sizes.n, sizes.l, sizes.h, sizes.w}, 1 + i % 5);
    const Expr normal = normalize_size(e);
    const Interval range = size_range(e);
    for (int k = 0; k < 12; ++k) {
      const Assignment values = sizes.random_values(random);
      const int64_t value = evaluate(e, values);
      ASSERT_EQ(value, evaluate(normal, values)) << to_string(e) << "\n  became " << to_string(normal);
      if (range.lo) {
        ASSERT_LE(*range.lo, value) << to_string(e);
      }
      if (range.hi) {
        ASSERT_GE(*range.hi, value) << to_string(e);
      }
    }
  }
}

TEST(Sizes, NormalFormsStayAsTheyAre) {
  std::mt19937_64 random(2);
  const Sizes sizes;
  const KnownSymbols known(sizes.symbols);
  for (int i = 0; i < 2000; ++i) {
    const Expr once = normalize_size(random_size(random, {sizes.n, sizes.l, sizes.h, sizes.w}, 1 + i % 4));
    const Expr twice = normalize_size(once);
    EXPECT_TRUE(structurally_equal(once, twice)) << to_string(once) << "\n  became " << to_string(twice);
  }
}

TEST(Sizes, ProofsHoldForAllValues) {
  std::mt19937_64 random(3);
  const Sizes sizes;
  const KnownSymbols known(sizes.symbols);
  int proofs = 0;
  for (int i = 0; i < 6000; ++i) {
    const Expr a = random_size(random, {sizes.n, sizes.l, sizes.h, sizes.w}, 1 + i % 3);
    const Expr b = random_size(random, {sizes.n, sizes.l, sizes.h, sizes.w}, 1 + i % 3);
    const bool equal = equal_sizes(a, b), at_most = size_at_most(a, b), differ = sizes_differ(a, b);
    proofs += equal || at_most || differ;
    for (int k = 0; k < 20; ++k) {
      const Assignment values = sizes.random_values(random);
      const int64_t x = evaluate(a, values), y = evaluate(b, values);
      if (equal) {
        ASSERT_EQ(x, y) << to_string(a) << " == " << to_string(b);
      }
      if (at_most) {
        ASSERT_LE(x, y) << to_string(a) << " <= " << to_string(b);
      }
      if (differ) {
        ASSERT_NE(x, y) << to_string(a) << " != " << to_string(b);
      }
    }
  }
  EXPECT_GT(proofs, 1000);
}

TEST(Sizes, IndicesWithinTensorsOfSuchSizes) {
  std::mt19937_64 random(4);
  const Sizes sizes;
  const KnownSymbols known(sizes.symbols);
  for (int i = 0; i < 3000; ++i) {
    const std::vector<std::pair<Var, Expr>> axes = {{make_var("i"), sizes.n},
                                                    {make_var("j"), sizes.h},
                                                    {make_var("k"), sizes.n * sizes.l + Expr(1)},
                                                    {make_var("c"), 8},
                                                    {make_var("p"), sizes.l * sizes.n * Expr(3) + sizes.n}};
    std::vector<Expr> leaves = {sizes.n, sizes.l, sizes.h, sizes.l * sizes.n + sizes.n};
    for (const auto& [var, extent] : axes) leaves.push_back(var);
    for (const int64_t k : {2, 3}) leaves.push_back(floordiv(axes.back().first, k));
    const Expr e = random_size(random, leaves, 1 + i % 4);
    const Expr normal = normalize_size(e, axes);
    for (int k = 0; k < 12; ++k) {
      Assignment values = sizes.random_values(random);
      for (const auto& [var, extent] : axes)
        values[var.get()] = static_cast<int64_t>(random() % static_cast<uint64_t>(evaluate(extent, values)));
      ASSERT_EQ(evaluate(e, values), evaluate(normal, values)) << to_string(e) << "\n  became " << to_string(normal);
    }
  }
}

TEST(Sizes, WhatNetworksAsk) {
  const Sizes s;
  const KnownSymbols known(s.symbols);
  const auto text = [](const Expr& e) { return to_string(normalize_size(e)); };
  // Reshapes.
  EXPECT_TRUE(equal_sizes(s.n * s.l * Expr(768), s.n * Expr(12) * s.l * Expr(64)));
  EXPECT_TRUE(equal_sizes((s.n + Expr(1)) * (s.l + Expr(2)), s.n * s.l + Expr(2) * s.n + s.l + Expr(2)));
  EXPECT_EQ(text(floordiv(s.n * s.h * Expr(12), s.n * Expr(3))), text(s.h * Expr(4)));
  EXPECT_EQ(text(floordiv(s.n * (s.l + Expr(1)), s.l + Expr(1))), "n");
  // Strides: ceil(ceil(h / 2) / 2), and up again.
  const auto half = [](const Expr& e) { return floordiv(e - Expr(1), 2) + Expr(1); };
  EXPECT_EQ(text(half(half(s.w))), text(floordiv(s.w - Expr(1), 4) + Expr(1)));
  EXPECT_TRUE(equal_sizes(half(half(half(s.h))) * Expr(8), s.h));
  EXPECT_TRUE(equal_sizes(floormod(s.h, 16), 0));
  EXPECT_TRUE(equal_sizes(floordiv(s.h + Expr(31), 32) * Expr(32), s.h));
  EXPECT_FALSE(equal_sizes(half(half(s.w)) * Expr(4), s.w));
  // Order.
  EXPECT_TRUE(size_at_most(s.n, s.n * s.h));
  EXPECT_TRUE(size_at_most(floordiv(s.w, 2) * Expr(2), s.w));
  EXPECT_TRUE(sizes_differ(s.n + Expr(9), s.n));
  EXPECT_TRUE(sizes_differ(s.h, s.n));
  EXPECT_FALSE(sizes_differ(s.l, s.n));
  EXPECT_EQ(text(min(s.n, s.h)), "n");
  EXPECT_EQ(text(max(s.n, s.h)), "h");
  // A view of [n, l, 768] as [n, l, 12, 64].
  const Var i = make_var("i"), j = make_var("j"), k = make_var("k"), d = make_var("d");
  const std::vector<std::pair<Var, Expr>> axes = {{i, s.n}, {j, s.h}, {k, 12}, {d, 64}};
  const Expr flat = ((i * s.h + j) * Expr(12) + k) * Expr(64) + d;
  EXPECT_EQ(to_string(normalize_size(floormod(flat, 768), axes)), "((k * 64) + d)");
  EXPECT_EQ(to_string(normalize_size(floormod(floordiv(flat, 768), s.h), axes)), "j");
  EXPECT_EQ(to_string(normalize_size(floordiv(floordiv(flat, 768), s.h), axes)), "i");
  // Halves of an image of twice a size that may be 0.
  const Var row = make_var("row");
  const std::vector<std::pair<Var, Expr>> rows = {{row, s.l * Expr(2)}};
  EXPECT_EQ(to_string(normalize_size(floordiv(floordiv(row, 2), s.l), rows)), "0");
  EXPECT_EQ(to_string(normalize_size(floormod(floordiv(row, 2), s.l), rows)),
            to_string(normalize_size(floordiv(row, 2), rows)));
  EXPECT_EQ(to_string(normalize_size(floormod(row, s.l * Expr(2)), rows)), "row");
  EXPECT_NE(to_string(normalize_size(floordiv(row, s.l), rows)), "0");
}

}  // namespace
}  // namespace tessera
