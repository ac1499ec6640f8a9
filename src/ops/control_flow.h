// What the nodes with several regions check.
#pragma once

#include "graph/op_def.h"

namespace tessera::inline ops {

// Types of a region's results, row-major.
std::vector<TensorType> region_results(const Graph& region);
// Equal element types and extents that are equal for every value of the symbols; layouts do not matter.
bool same_types(const TensorType& a, const TensorType& b);

}  // namespace tessera::inline ops
