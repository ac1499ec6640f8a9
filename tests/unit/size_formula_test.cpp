// Formulas of sizes from a few known values.
#include "program/size_formula.h"

#include <gtest/gtest.h>

#include <functional>

namespace tessera {
namespace {

int64_t floor_divide(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a % b < 0) != (b < 0) ? 1 : 0); }

using Function = std::function<int64_t(const SizePoint&)>;

// Looks for more points as long as there is a doubt; the formula must then be right for every value of the range.
void expect_found(const std::vector<SymbolRange>& symbols, const Function& truth) {
  std::vector<SizePoint> points = first_points(symbols);
  Expr formula;
  for (int round = 0; round < 40; ++round) {
    SizeFormulas formulas(symbols, points);
    SizeFinder::Known values;
    for (const SizePoint& point : points) values.emplace_back(truth(point));
    formula = formulas.find(values);
    if (!formulas.doubt()) break;
    points.push_back(*formulas.doubt());
  }
  ASSERT_TRUE(formula);
  SizePoint point;
  for (const SymbolRange& s : symbols) point.push_back(s.lo);
  for (size_t s = 0; s < symbols.size(); ++s)
    for (int64_t n = symbols[s].lo; n <= symbols[s].hi; n += symbols[s].step) {
      point[s] = n;
      ASSERT_EQ(value_at(formula, symbols, point), truth(point)) << to_string(formula) << " at " << n;
    }
}

SymbolRange range(const char* name, int64_t lo, int64_t hi, int64_t step = 1) { return {make_var(name), lo, hi, step}; }

TEST(SizeFormula, OneSymbol) {
  const std::vector<SymbolRange> n = {range("n", 1, 300)};
  expect_found(n, [](const SizePoint&) { return 7; });
  expect_found(n, [](const SizePoint& p) { return p[0]; });
  expect_found(n, [](const SizePoint& p) { return 12 * p[0] - 5; });
  expect_found(n, [](const SizePoint& p) { return 3 * p[0] * p[0]; });
  expect_found(n, [](const SizePoint& p) { return floor_divide(p[0] + 1, 2); });
  expect_found(n, [](const SizePoint& p) { return 16 * floor_divide(p[0] + 5, 7) + 3; });
  expect_found(n, [](const SizePoint& p) { return floor_divide(p[0] - 3, 32) + 1; });
}

// A share of a multiple: what each of 16 threads copies of rows of 5.
TEST(SizeFormula, PartsOfAMultiple) {
  for (const int64_t end : {100, 3000}) {
    const std::vector<SymbolRange> n = {range("n", 0, end)};
    expect_found(n, [](const SizePoint& p) { return floor_divide(5 * p[0], 16); });
    expect_found(n, [](const SizePoint& p) { return 16 * floor_divide(3 * p[0], 16); });
    expect_found(n, [](const SizePoint& p) { return floor_divide(7 * p[0] + 4, 3); });
    expect_found(n, [](const SizePoint& p) { return 12 * floor_divide(3 * p[0] - 2, 5); });
  }
}

TEST(SizeFormula, SymbolsInSteps) {
  const std::vector<SymbolRange> sizes = {range("h", 32, 640, 32), range("w", 48, 960, 16)};
  expect_found(sizes, [](const SizePoint& p) { return p[0] / 32 * (p[1] / 16); });
  expect_found(sizes, [](const SizePoint& p) { return 24 * (p[0] / 4) * (p[1] / 8); });
  expect_found(sizes, [](const SizePoint& p) { return 5 * p[0] * p[1]; });
}

TEST(SizeFormula, ProductsAndSums) {
  const std::vector<SymbolRange> sizes = {range("batch", 1, 20), range("length", 1, 200)};
  expect_found(sizes, [](const SizePoint& p) { return 768 * p[0] * p[1]; });
  expect_found(sizes, [](const SizePoint& p) { return 12 * p[0] * p[1] * p[1]; });
  expect_found(sizes, [](const SizePoint& p) { return (p[0] + 2) * floor_divide(p[1] + 3, 4); });
  expect_found(sizes, [](const SizePoint& p) { return 4 * p[0] + 9 * p[1] - 2; });
}

TEST(SizeFormula, WhatNoFormulaGives) {
  const std::vector<SymbolRange> n = {range("n", 1, 300)};
  SizeFormulas formulas(n, first_points(n));
  SizeFinder::Known values;
  for (const SizePoint& point : formulas.points()) values.emplace_back(point[0] * point[0] * point[0] % 97);
  EXPECT_FALSE(formulas.find(values));
}

TEST(SizeFormula, FewKnownValuesAreADoubt) {
  const std::vector<SymbolRange> n = {range("n", 10, 300)};
  SizeFormulas formulas(n, first_points(n));
  SizeFinder::Known values(formulas.points().size());
  values[1] = formulas.points()[1][0];
  EXPECT_FALSE(formulas.find(values)) << "one value may be a constant or anything else";
  EXPECT_TRUE(formulas.doubt());
}

}  // namespace
}  // namespace tessera
