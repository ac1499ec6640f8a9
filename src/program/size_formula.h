// Integers that are known for a few values of the named dimensions, as expressions of those dimensions.
//
// A shape, a stride or an offset of a network is a polynomial of the input's dimensions, or what windows make of one: a
// multiple of floor((n + b) / p), or of floor((m * n + b) / p) where rows are dealt out in parts. The forms are fitted
// to the known values and must give every one of them; where two forms fit and differ somewhere in the range, the
// finder says where, so that the model can be looked at there, too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "program/generalize_exprs.h"
#include "program/symbolic_sizes.h"

namespace tessera::inline program {

class SizeFormulas : public SizeFinder {
 public:
  // REQUIRES: the first point, and for every symbol two more that differ from it in that symbol alone; others are free.
  // `avoided` are no doubts; without `beyond`, neither are sizes behind the range.
  SizeFormulas(std::vector<SymbolRange> symbols, std::vector<SizePoint> points, std::vector<SizePoint> avoided = {},
               bool beyond = true);

  const std::vector<SymbolRange>& symbols() const { return symbols_; }
  const std::vector<SizePoint>& points() const { return points_; }

  // The expression with values[i] at points()[i], where it is known; null when no form fits.
  Expr find(const Known& values) override;
  // A point of the range where two forms differ that fit equally well, of what was asked so far.
  const std::optional<SizePoint>& doubt() const { return doubt_; }

 private:
  // scale * floordiv(multiple * n + shift, divisor) + offset, or the polynomial offset + scale * n + square * n^2.
  struct Form {
    int64_t scale = 0, offset = 0, square = 0, multiple = 1, shift = 0, divisor = 1;
    int64_t at(int64_t n) const;
    bool is_constant() const { return scale == 0 && square == 0; }
    Expr expr(const Var& n) const;
  };
  static size_t first_known(const Known& values);
  // Those that fit the values at the points that differ from the first that is known in this symbol alone.
  std::vector<Form> forms(size_t symbol, const Known& values) const;
  // Those that fit all values, whatever the other symbols are.
  std::vector<Form> forms_of_all(size_t symbol, const Known& values) const;
  std::vector<Form> fit(size_t symbol, std::vector<std::pair<int64_t, int64_t>> known) const;
  // Parts of a multiple: those with a multiple above 1.
  static std::vector<Form> parts_of_multiple(const std::vector<std::pair<int64_t, int64_t>>& known);
  bool too_few(const Known& values);
  bool gives(const Expr& e, const Known& values) const;
  void look_for_doubt(size_t symbol, const std::vector<Form>& forms);

  std::vector<SymbolRange> symbols_;
  std::vector<SizePoint> points_, avoided_;
  bool beyond_ = true;
  std::optional<SizePoint> doubt_;
};

// Where a model is looked at first: generic values of the range or, when it is short, beyond; no two of them equal. The
// last is that of the largest sizes.
std::vector<SizePoint> first_points(const std::vector<SymbolRange>& symbols);
// The same within the ranges: of a short one all values, not all of them generic.
std::vector<SizePoint> inner_points(const std::vector<SymbolRange>& symbols);

}  // namespace tessera::inline program
