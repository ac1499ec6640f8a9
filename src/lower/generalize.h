// One program for a range of sizes, from programs of a few of them.
//
// A model is read, simplified and lowered for some values of its named dimensions, each time with plain integers. The
// programs are alike but for integers (and constants made of those); where they differ, the integers become expressions
// of the dimensions: the least general generalisation of the programs (anti-unification, Plotkin, "A note on inductive
// generalization", Machine Intelligence 5, 1970), with the differences restricted to sizes. So no operator and no pass
// needs to know of dimensions that are not fixed; what they decide by a size must be the same for all sizes, or the
// programs are not alike and the model is refused.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "program/program.h"
#include "program/size_formula.h"

namespace tessera::inline lower {

// Why there is no such program.
struct Unlike {
  std::string where;          // the model's nodes or the buffer
  std::string what;           // how the programs differ
  bool no_formula = false;    // they are alike, but no formula gives their sizes
  bool in_constants = false;  // the elements of a constant are no formula of the sizes
};

// `programs[i]` is that of `formulas.points()[i]`, lowered and not scheduled. If the last is that of the largest sizes,
// constants may be what a table of that size begins with. Weights that equal those of the first program may be
// Tensor::without_data in the others.
std::variant<Program, Unlike> generalize(const std::vector<const Program*>& programs, SizeFormulas& formulas);

}  // namespace tessera::inline lower
