#include "schedule/dynamic/stride_finder.h"

#include <algorithm>
#include <array>
#include <random>

#include "arith/int_ops.h"

namespace tessera::inline schedule {
namespace {

// Sizes that must know a number: what the formula is made of, and two to check it.
constexpr size_t kEnough = 4, kEnoughForTwoTerms = 5;

}  // namespace

std::vector<SizePoint> sample_points(const std::vector<SymbolRange>& symbols, size_t count, int64_t stretch) {
  std::vector<SizePoint> points(count);
  std::mt19937_64 random(1);
  for (size_t first = 0; first < count; first += kSamplePoints)
    for (size_t s = 0; s < symbols.size(); ++s) {
      std::array<int64_t, kSamplePoints> steps;
      for (size_t i = 0; i < kSamplePoints; ++i)
        steps[i] = 180 + 37 * static_cast<int64_t>(first + i) + static_cast<int64_t>(s);
      for (size_t i = kSamplePoints - 1; i > 0; --i) std::swap(steps[i], steps[random() % (i + 1)]);
      for (size_t i = 0; i < kSamplePoints; ++i)
        points[first + i].push_back(symbols[s].lo + symbols[s].step * stretch * steps[i]);
    }
  return points;
}

StrideFinder::StrideFinder(const TensorProgram& kernel, const std::vector<SymbolRange>& symbols,
                           const std::vector<SizePoint>& points) {
  const auto add_shape = [&](const Shape& shape) {
    Expr stride = 1;
    for (size_t i = shape.size(); i-- > 0;) {
      add(shape[i], symbols, points);
      stride = stride * shape[i];
      add(stride, symbols, points);
    }
  };
  for (const TensorParam& param : kernel.params) add_shape(physical_shape(param.buffer->shape, param.layout));
  add_shape(physical_shape(kernel.output().out->shape, kernel.output().layout));
}

Expr StrideFinder::find(const Known& values) {
  std::vector<size_t> known;
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i]) known.push_back(i);
  if (known.size() < kEnough) return {};
  const auto at = [&](size_t i) { return *values[known[i]]; };
  const auto fits = [&](const auto& formula) {
    return std::all_of(known.begin(), known.end(), [&](size_t i) { return formula(i) == *values[i]; });
  };
  if (fits([&](size_t) { return at(0); })) return at(0);
  // An extent as it is.
  for (const Term& term : terms_)
    if (fits([&](size_t i) { return term.values[i]; })) return term.expr;
  // scale * term + offset
  for (const Term& term : terms_) {
    const int64_t run = term.values[known[1]] - term.values[known[0]];
    if (run == 0 || (at(1) - at(0)) % run != 0) continue;
    const int64_t scale = (at(1) - at(0)) / run;
    const int64_t offset = at(0) - scale * term.values[known[0]];
    if (fits([&](size_t i) { return scale * term.values[i] + offset; })) return term.expr * Expr(scale) + Expr(offset);
  }
  // two terms and an offset, by Cramer's rule on differences
  if (known.size() < kEnoughForTwoTerms) return {};
  for (size_t a = 0; a < terms_.size(); ++a)
    for (size_t b = 0; b < a; ++b) {
      const auto& x = terms_[a].values;
      const auto& y = terms_[b].values;
      const int64_t x1 = x[known[1]] - x[known[0]], x2 = x[known[2]] - x[known[0]];
      const int64_t y1 = y[known[1]] - y[known[0]], y2 = y[known[2]] - y[known[0]];
      const int64_t v1 = at(1) - at(0), v2 = at(2) - at(0);
      const auto determinant = static_cast<Int128>(x1) * y2 - static_cast<Int128>(x2) * y1;
      if (determinant == 0) continue;
      const auto p = static_cast<Int128>(v1) * y2 - static_cast<Int128>(v2) * y1;
      const auto q = static_cast<Int128>(x1) * v2 - static_cast<Int128>(x2) * v1;
      if (p % determinant != 0 || q % determinant != 0) continue;
      const auto s = static_cast<int64_t>(p / determinant), t = static_cast<int64_t>(q / determinant);
      const int64_t offset = at(0) - s * x[known[0]] - t * y[known[0]];
      if (fits([&](size_t i) { return s * x[i] + t * y[i] + offset; }))
        return terms_[a].expr * Expr(s) + terms_[b].expr * Expr(t) + Expr(offset);
    }
  return {};
}

void StrideFinder::add(const Expr& e, const std::vector<SymbolRange>& symbols, const std::vector<SizePoint>& points) {
  if (as_int(e)) return;
  Term term{e, {}};
  for (const SizePoint& point : points) term.values.push_back(value_at(e, symbols, point));
  if (std::none_of(terms_.begin(), terms_.end(), [&](const Term& known) { return known.values == term.values; }))
    terms_.push_back(std::move(term));
}

}  // namespace tessera::inline schedule
