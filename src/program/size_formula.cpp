#include "program/size_formula.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "arith/simplify.h"
#include "support/error.h"

namespace tessera::inline program {
namespace {

int64_t floor_divide(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a % b < 0) != (b < 0) ? 1 : 0); }

constexpr int64_t kMaxDivisor = 128;
constexpr size_t kEnough = 4;       // values of each symbol at which a number must be known
constexpr int64_t kFarSteps = 300;  // how far beyond the range to look
constexpr int64_t kFewSteps = 24;   // a shorter range is left to find generic values

}  // namespace

std::vector<SizePoint> first_points(const std::vector<SymbolRange>& symbols) {
  // Fractions of the range that have nothing in common; a value that another symbol has is moved on.
  static constexpr double kFractions[] = {0.37, 0.73, 0.53, 0.23, 0.83};
  std::set<int64_t> taken;
  const auto pick = [&](const SymbolRange& symbol, double fraction) {
    const int64_t steps = std::max((symbol.hi - symbol.lo) / symbol.step, kFewSteps);
    const auto wish = static_cast<int64_t>(fraction * static_cast<double>(steps));
    for (int64_t i = 0; i <= steps; ++i) {
      // Small values and powers of two last: what is divided by them is simplified in ways of its own.
      const int64_t value = symbol.lo + (wish + i) % (steps + 1) * symbol.step;
      if (value > 2 && !std::has_single_bit(static_cast<uint64_t>(value)) && taken.insert(value).second) return value;
    }
    return symbol.lo + std::clamp<int64_t>(wish, 0, steps) * symbol.step;
  };
  SizePoint base;
  std::vector<std::vector<int64_t>> others(symbols.size());
  for (size_t i = 0; i < symbols.size(); ++i) base.push_back(pick(symbols[i], kFractions[i % 2]));
  for (size_t i = 0; i < symbols.size(); ++i)
    for (const double fraction : {0.83, 0.13}) others[i].push_back(pick(symbols[i], fraction));
  std::vector<SizePoint> points{base};
  for (size_t i = 0; i < symbols.size(); ++i)
    for (const int64_t value : others[i]) {
      SizePoint point = base;
      point[i] = value;
      points.push_back(std::move(point));
    }
  for (const double fraction : {0.61, 0.29}) {
    SizePoint point;
    for (const SymbolRange& symbol : symbols) point.push_back(pick(symbol, fraction));
    points.push_back(std::move(point));
  }
  points.push_back(largest_sizes(symbols));
  std::vector<SizePoint> unique;  // a short range has few values
  for (SizePoint& point : points)
    if (std::find(unique.begin(), unique.end(), point) == unique.end()) unique.push_back(std::move(point));
  return unique;
}

std::vector<SizePoint> inner_points(const std::vector<SymbolRange>& symbols) {
  if (std::all_of(symbols.begin(), symbols.end(),
                  [](const SymbolRange& s) { return (s.hi - s.lo) / s.step >= kFewSteps; }))
    return first_points(symbols);
  SizePoint middle;
  for (const SymbolRange& s : symbols) middle.push_back(s.lo + (s.hi - s.lo) / s.step / 2 * s.step);
  std::vector<SizePoint> points{middle};
  const SizePoint largest = largest_sizes(symbols);
  const auto add = [&](const SizePoint& point) {
    if (point != largest && std::find(points.begin(), points.end(), point) == points.end()) points.push_back(point);
  };
  SizePoint smallest;
  for (size_t i = 0; i < symbols.size(); ++i) {
    const SymbolRange& s = symbols[i];
    smallest.push_back(s.lo);
    const int64_t steps = (s.hi - s.lo) / s.step;
    for (int64_t n = 0; n <= steps; n += std::max<int64_t>(steps / 7, 1)) {
      SizePoint point = middle;
      point[i] = s.lo + n * s.step;
      add(point);
    }
  }
  add(smallest);
  if (middle != largest) points.push_back(largest);
  return points;
}

SizeFormulas::SizeFormulas(std::vector<SymbolRange> symbols, std::vector<SizePoint> points,
                           std::vector<SizePoint> avoided, bool beyond)
    : symbols_(std::move(symbols)), points_(std::move(points)), avoided_(std::move(avoided)), beyond_(beyond) {
  check(!points_.empty(), "no size is known");
}

int64_t SizeFormulas::Form::at(int64_t n) const {
  return divisor == 1 ? offset + scale * n + square * n * n
                      : offset + scale * floor_divide(multiple * n + shift, divisor);
}

Expr SizeFormulas::Form::expr(const Var& n) const {
  if (divisor != 1) return floordiv(n * Expr(multiple) + Expr(shift), Expr(divisor)) * Expr(scale) + Expr(offset);
  Expr e = square == 0 ? Expr(0) : n * n * Expr(square);
  return e + n * Expr(scale) + Expr(offset);
}

size_t SizeFormulas::first_known(const Known& values) {
  return static_cast<size_t>(std::find_if(values.begin(), values.end(), [](const auto& v) { return v.has_value(); }) -
                             values.begin());
}

std::vector<SizeFormulas::Form> SizeFormulas::forms(size_t symbol, const Known& values) const {
  std::vector<std::pair<int64_t, int64_t>> known;
  const size_t first = first_known(values);
  for (size_t i = first; i < points_.size(); ++i) {
    bool alone = true;
    for (size_t s = 0; s < symbols_.size(); ++s) alone &= s == symbol || points_[i][s] == points_[first][s];
    if (alone && values[i]) known.emplace_back(points_[i][symbol], *values[i]);
  }
  return fit(symbol, std::move(known));
}

std::vector<SizeFormulas::Form> SizeFormulas::forms_of_all(size_t symbol, const Known& values) const {
  std::vector<std::pair<int64_t, int64_t>> known;
  for (size_t i = 0; i < points_.size(); ++i)
    if (values[i]) known.emplace_back(points_[i][symbol], *values[i]);
  std::sort(known.begin(), known.end());
  for (size_t i = 1; i < known.size(); ++i)
    if (known[i].first == known[i - 1].first && known[i].second != known[i - 1].second) return {};
  return fit(symbol, std::move(known));
}

std::vector<SizeFormulas::Form> SizeFormulas::fit(size_t symbol, std::vector<std::pair<int64_t, int64_t>> known) const {
  if (known.empty()) return {};
  std::sort(known.begin(), known.end());
  known.erase(std::unique(known.begin(), known.end()), known.end());
  const auto fits = [&](const Form& form) {
    return std::all_of(known.begin(), known.end(), [&](const auto& k) { return form.at(k.first) == k.second; });
  };
  std::vector<Form> found;
  Form form;
  form.offset = known[0].second;
  if (fits(form)) return {form};
  const auto& [x0, y0] = known.front();
  const auto& [x1, y1] = known.back();
  if (x1 == x0) return {};
  if ((y1 - y0) % (x1 - x0) == 0) {
    form.scale = (y1 - y0) / (x1 - x0);
    form.offset = y0 - form.scale * x0;
    if (fits(form)) return {form};
  }
  if (known.size() > 2 && known[known.size() / 2].first != x0) {
    // Newton's divided differences through the first three values; twice the second difference stays whole.
    const auto& [xm, ym] = known[known.size() / 2];
    const int64_t denominator = (xm - x0) * (x1 - x0) * (x1 - xm);
    const int64_t numerator = (y1 - y0) * (xm - x0) - (ym - y0) * (x1 - x0);
    if (denominator != 0 && numerator % denominator == 0) {
      form.square = numerator / denominator;
      const int64_t rest = ym - y0 - form.square * (xm * xm - x0 * x0);
      if (rest % (xm - x0) == 0) {
        form.scale = rest / (xm - x0);
        form.offset = y0 - form.scale * x0 - form.square * x0 * x0;
        if (fits(form)) return {form};
      }
    }
  }
  // So much for every step of the range.
  const SymbolRange& range = symbols_[symbol];
  if (range.step > 1) {
    const auto steps = [&](int64_t n) { return (n - range.lo) / range.step; };
    Form by_step;
    by_step.divisor = range.step;
    by_step.shift = -(range.lo % range.step);
    if (steps(x1) != steps(x0) && (y1 - y0) % (steps(x1) - steps(x0)) == 0) {
      by_step.scale = (y1 - y0) / (steps(x1) - steps(x0));
      by_step.offset = y0 - by_step.scale * floor_divide(x0 + by_step.shift, by_step.divisor);
      if (fits(by_step)) return {by_step};
    }
  }
  // Steps: the scale is that of the smallest rise.
  for (int64_t divisor = 2; divisor <= kMaxDivisor; ++divisor)
    for (int64_t shift = 0; shift < divisor; ++shift) {
      Form step;
      step.divisor = divisor;
      step.shift = shift;
      const int64_t rise = floor_divide(x1 + shift, divisor) - floor_divide(x0 + shift, divisor);
      if (rise == 0 || y1 == y0 || (y1 - y0) % rise != 0) continue;
      step.scale = (y1 - y0) / rise;
      step.offset = y0 - step.scale * floor_divide(x0 + shift, divisor);
      // An offset of whole steps belongs under the division.
      if (step.offset != 0 && step.offset % step.scale == 0) {
        step.shift += step.offset / step.scale * divisor;
        step.offset = 0;
      }
      if (fits(step)) found.push_back(step);
    }
  if (found.empty()) found = parts_of_multiple(known);
  // The simplest first: no offset, then small divisors.
  std::stable_sort(found.begin(), found.end(), [](const Form& a, const Form& b) {
    return std::pair(a.offset != 0, a.divisor) < std::pair(b.offset != 0, b.divisor);
  });
  return found;
}

std::vector<SizeFormulas::Form> SizeFormulas::parts_of_multiple(const std::vector<std::pair<int64_t, int64_t>>& known) {
  const auto& [x0, y0] = known.front();
  const auto& [x1, y1] = known.back();
  int64_t common = 0;
  for (const auto& [x, y] : known) common = std::gcd(common, y);
  std::vector<Form> found;
  if (known.size() < kEnough) return found;
  for (int64_t scale = std::min(common, kMaxDivisor); scale > 0; --scale) {
    if (common % scale != 0) continue;
    for (int64_t divisor = 2; divisor <= kMaxDivisor; ++divisor) {
      Form form;
      form.scale = scale;
      form.divisor = divisor;
      const double slope = static_cast<double>(y1 - y0) / static_cast<double>(scale * (x1 - x0));
      form.multiple = std::llround(slope * static_cast<double>(divisor));
      if (form.multiple < 2 || std::gcd(form.multiple, divisor) > 1) continue;
      // What every value says about the shift: y <= (multiple * x + shift) / divisor < y + 1.
      int64_t least = std::numeric_limits<int64_t>::min(), most = std::numeric_limits<int64_t>::max();
      for (const auto& [x, y] : known) {
        const int64_t low = y / scale * divisor - form.multiple * x;
        least = std::max(least, low);
        most = std::min(most, low + divisor - 1);
      }
      if (least > most) continue;
      for (const int64_t shift : {std::clamp<int64_t>(0, least, most), least, most}) {
        form.shift = shift;
        if (found.empty() || found.back().shift != shift || found.back().divisor != divisor) found.push_back(form);
      }
    }
    if (!found.empty()) break;
  }
  return found;
}

void SizeFormulas::look_for_doubt(size_t symbol, const std::vector<Form>& forms) {
  if (doubt_ || forms.size() < 2) return;
  const SymbolRange& s = symbols_[symbol];
  // The value that parts them best: the middle of those where the first and some other differ.
  std::vector<SizePoint> differ;
  for (int64_t n = s.lo; n <= s.hi; n += s.step) {
    if (std::none_of(forms.begin() + 1, forms.end(), [&](const Form& f) { return f.at(n) != forms[0].at(n); }))
      continue;
    SizePoint point = points_[0];
    point[symbol] = n;
    const auto is_among = [&](const std::vector<SizePoint>& list) {
      return std::find(list.begin(), list.end(), point) != list.end();
    };
    if (!is_among(avoided_) && !is_among(points_)) differ.push_back(std::move(point));
  }
  if (!differ.empty()) doubt_ = differ[differ.size() / 2];
}

// What only few of the sizes know, a condition that the others do not need, is looked for at more sizes like those:
// some multiples of small numbers away, since it is the remainder that decides.
bool SizeFormulas::too_few(const Known& values) {
  std::vector<size_t> known;
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i]) known.push_back(i);
  if (known.size() == values.size()) return false;
  bool few = false;
  for (size_t s = 0; s < symbols_.size(); ++s) {
    std::set<int64_t> different;
    for (const size_t i : known) different.insert(points_[i][s]);
    if (different.size() >= kEnough) continue;
    few = true;
    for (const int64_t steps : {72, -72, 144, -144, 36, -36, 216, -216, 12, -12}) {
      if (doubt_) break;
      SizePoint point = points_[known[0]];
      point[s] += steps * symbols_[s].step;
      const int64_t far = symbols_[s].lo + kFarSteps * symbols_[s].step;
      const int64_t end = beyond_ ? std::max(symbols_[s].hi, far) : symbols_[s].hi;
      const bool inside = point[s] >= symbols_[s].lo && point[s] <= end;
      if (inside && std::find(points_.begin(), points_.end(), point) == points_.end() &&
          std::find(avoided_.begin(), avoided_.end(), point) == avoided_.end())
        doubt_ = std::move(point);
    }
  }
  return few;
}

bool SizeFormulas::gives(const Expr& e, const Known& values) const {
  for (size_t i = 0; i < points_.size(); ++i)
    if (values[i] && value_at(e, symbols_, points_[i]) != *values[i]) return false;
  return true;
}

Expr SizeFormulas::find(const Known& values) {
  check(values.size() == points_.size(), "a value for every point");
  const size_t some = first_known(values);
  if (some == values.size()) return {};
  if (too_few(values)) return {};
  const int64_t first = *values[some];
  if (std::all_of(values.begin(), values.end(), [&](const auto& v) { return !v || *v == first; })) return first;
  for (size_t s = 0; s < symbols_.size(); ++s)
    if (const std::vector<Form> of_all = forms_of_all(s, values); !of_all.empty()) {
      look_for_doubt(s, of_all);
      return simplify(of_all[0].expr(symbols_[s].var));
    }
  std::vector<std::vector<Form>> by_symbol;
  std::vector<size_t> moving;
  for (size_t s = 0; s < symbols_.size(); ++s) {
    by_symbol.push_back(forms(s, values));
    if (by_symbol.back().empty()) return {};
    if (!by_symbol.back()[0].is_constant()) moving.push_back(s);
  }
  for (const size_t s : moving) look_for_doubt(s, by_symbol[s]);
  if (moving.empty()) return {};
  if (moving.size() == 1) {
    for (const Form& form : by_symbol[moving[0]])
      if (const Expr e = simplify(form.expr(symbols_[moving[0]].var)); gives(e, values)) return e;
    return {};
  }
  // A product of the symbols' own parts, each without what divides all of it.
  const auto part = [&](size_t s) {
    Form form = by_symbol[s][0];
    const int64_t common = std::gcd(std::gcd(form.scale, form.offset), form.square);
    form.scale /= common;
    form.offset /= common;
    form.square /= common;
    if (form.scale < 0) form.scale = -form.scale, form.offset = -form.offset, form.square = -form.square;
    return form;
  };
  int64_t divisor = 1;
  Expr product = 1;
  for (const size_t s : moving) {
    const Form form = part(s);
    divisor *= form.at(points_[some][s]);
    product = product * form.expr(symbols_[s].var);
  }
  if (divisor != 0) {
    // Sizes in steps may divide the product.
    const int64_t common = std::gcd(first, divisor);
    const Expr multiple = product * Expr(first / common);
    const Expr e = divisor == common ? multiple : floordiv(multiple, Expr(divisor / common));
    if (gives(e, values)) return e;
  }
  // A sum of them.
  Expr sum = first;
  for (const size_t s : moving) {
    const Form& form = by_symbol[s][0];
    sum = sum + form.expr(symbols_[s].var) - Expr(form.at(points_[some][s]));
  }
  if (const Expr e = simplify(sum); gives(e, values)) return e;
  return {};
}

}  // namespace tessera::inline program
