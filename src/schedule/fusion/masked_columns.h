// Columns of attention's scores that a constant mask leaves out: a block of rows need not compute them.
//
// Where a chain of kernels adds a constant matrix to scores, and it is -inf behind some column in all rows of a block,
// the scores there are -inf, their exponentials 0, and sums and products with them add nothing. So all kernels of the
// chain stop at that column. One thing changes: a NaN or infinity in a masked place (a score of +inf, a NaN in a row of
// values that nobody may look at) no longer makes NaN of rows that do not see it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "te/tensor_program.h"
#include "types/tensor.h"

namespace tessera::inline schedule {

// A kernel of the chain, in the order of calls.
struct ColumnKernel {
  const TensorProgram* definition = nullptr;
  size_t row_axis = 0;                // of the output: the axis of which there are blocks; SIZE_MAX: it has none
  std::vector<int> writers;           // by parameter: the number of the kernel before it that wrote it; -1: none
  std::vector<const Tensor*> values;  // by parameter: a row-major constant's; may be null
};

struct MaskedColumns {
  int64_t extent = 0;
  std::vector<int64_t> used;  // by row: the columns from there on are masked
  // By kernel, the axis that is the columns: of its output, or of what it sums or looks for the largest of.
  std::vector<std::optional<size_t>> output_axis, reduced_axis;
};

// Empty when there is no such mask, or some kernel does anything else with masked columns.
std::optional<MaskedColumns> find_masked_columns(const std::vector<ColumnKernel>& kernels);

}  // namespace tessera::inline schedule
