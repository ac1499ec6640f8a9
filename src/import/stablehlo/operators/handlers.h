// The handlers, by family, and what several families use.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "import/common/functions.h"
#include "import/stablehlo/operator_context.h"
#include "import/stablehlo/operator_table.h"

namespace tessera::inline stablehlo {

std::span<const HloOperator> complex_operators();  // those with complex operands or results
std::span<const HloOperator> contraction_operators();
std::span<const HloOperator> control_operators();
std::span<const HloOperator> elementwise_operators();
std::span<const HloOperator> indexing_operators();
std::span<const HloOperator> order_operators();
std::span<const HloOperator> reduction_operators();
std::span<const HloOperator> shape_operators();
std::span<const HloOperator> window_operators();

// Two values joined by what combiner_of found.
ValueId combined(HloContext& c, const std::string& combiner, ValueId a, ValueId b);
// The largest or the smallest value of a type, as a scalar.
Tensor extreme(DType dtype, bool is_largest);
// Whether a scalar is known, and changes nothing that it is combined with.
bool is_identity(HloContext& c, const std::string& combiner, ValueId value);
// x with `low` values before it, `high` behind it (negative: cut off) and `between` its elements, in each dimension.
ValueId padded(HloContext& c, ValueId x, ValueId value, const Ints& low, const Ints& high, const Ints& between);
// x with dimensions that are turned round.
ValueId reversed(HloContext& c, ValueId x, const Ints& dims);

}  // namespace tessera::inline stablehlo
