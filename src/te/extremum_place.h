// Reductions of pairs: an extremum together with its place. A kernel may have, beside a minimum or maximum
//   m[i] = max over r of x[i, r]
// the reduction that says where it is,
//   p[i] = min over r of select(x[i, r] == m[i], place(r), none)
// (max, for the last place). Read as it stands, p waits for all of m. But of two parts of the r, what both reductions
// are is known from what they are of each part: m is the larger one's, and p is the smaller place among the parts whose
// extremum is m. So pairs are combined like single values are, in any order and with the same result, since `none` is
// no better than any place.
//
// A NaN among x makes m NaN, which equals nothing: p is `none` then, or, where the condition says `or is_nan(x)`, the
// place of the first (last) NaN.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "te/tensor_program.h"

namespace tessera::inline tensor_programs {

struct ExtremumPlace {
  size_t extremum = 0;  // number of the reduction whose place it is
  bool takes_nan = false;
  Expr place;  // in terms of the reduction's own axes
  Expr none;   // of no axis
};

// What reduction number `which` of a kernel is, if it reads another one of its reductions; empty when it reads none, or
// in another way than that of the place of an extremum.
std::optional<ExtremumPlace> place_of_extremum(const std::vector<const Stage*>& reductions, size_t which);

// Whether an element `x` is one whose place counts, when the extremum is `m`.
Expr is_extremum(bool takes_nan, const Expr& x, const Expr& m);

}  // namespace tessera::inline tensor_programs
