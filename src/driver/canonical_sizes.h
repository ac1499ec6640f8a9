// Whether the program of all sizes, with its symbols bound to one size, and the model's own program for that size
// compute the same: shown by their canonical forms, without running either, whatever the model's size.
//
// A program's canonical form is a list of values, each a text of the values that it is made of. What leaves no trace
// in a result leaves none in the form: axes of extent 1, conditions that always hold, sums over one element, views,
// copies, the axes' grouping, layouts, and which operators share a kernel, because everything but sums is written into
// its readers. Arithmetic on floats is compared as it stands: nothing is reassociated.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "program/program.h"
#include "program/symbolic_sizes.h"

namespace tessera::inline driver {

// Holds the hashes of weights that it has seen, and keeps those alive. Not thread-safe.
class SizeProver {
 public:
  // Empty when the forms are equal; else what is not, for people: the programs may compute the same nevertheless.
  // `general` has symbols, with these values; `own` has none; neither is scheduled or planned.
  std::string difference(const Program& general, const SizePoint& point, const Program& own);

  // Of dtype, number and bytes of the elements, not of the dimensions.
  uint64_t hash_of(const TensorPtr& weight);
  void forget(const TensorPtr& weight) { hashes_.erase(weight.get()); }

 private:
  std::string difference(const Program& general, const SizePoint& point, const Program& own, size_t most_nodes);

  std::unordered_map<const Tensor*, std::pair<TensorPtr, uint64_t>> hashes_;
};

}  // namespace tessera::inline driver
