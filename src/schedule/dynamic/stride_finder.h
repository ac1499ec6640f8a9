// What LoopGeneralizer asks where one kernel is scheduled for several sizes: integers in loops and addresses as
// formulas of strides and extents.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "program/generalize_exprs.h"
#include "program/symbolic_sizes.h"
#include "te/tensor_program.h"

namespace tessera::inline schedule {

// Sizes that a kernel is scheduled for: beyond what any window needs, and every remainder by 2, 3 and 4 several times,
// since windows that stride over an axis end differently for each. Each symbol has its sizes in an order of its own
// that follows no rule: where one symbol's sizes are a linear function of another's at the few points that know a
// number, a formula of the wrong symbol fits it. `stretch` times as large as they need be.
// REQUIRES: `count` is a multiple of kSamplePoints. Each group of so many has every remainder.
constexpr size_t kSamplePoints = 16;
std::vector<SizePoint> sample_points(const std::vector<SymbolRange>& symbols, size_t count = kSamplePoints,
                                     int64_t stretch = 1);

// Integers as sums of multiples of strides and extents.
class StrideFinder : public SizeFinder {
 public:
  StrideFinder(const TensorProgram& kernel, const std::vector<SymbolRange>& symbols,
               const std::vector<SizePoint>& points);

  Expr find(const Known& values) override;

 private:
  struct Term {
    Expr expr;
    std::vector<int64_t> values;
  };

  void add(const Expr& e, const std::vector<SymbolRange>& symbols, const std::vector<SizePoint>& points);

  std::vector<Term> terms_;
};

}  // namespace tessera::inline schedule
