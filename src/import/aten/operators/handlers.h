// The handlers of operators, by family, and what they share.
#pragma once

#include <span>
#include <vector>

#include "import/aten/operator_context.h"
#include "import/aten/operator_table.h"
#include "import/common/functions.h"

namespace tessera::inline aten {

std::span<const AtenOperator> attention_operators();
std::span<const AtenOperator> choosing_operators();
std::span<const AtenOperator> contraction_operators();
std::span<const AtenOperator> elementwise_operators();
std::span<const AtenOperator> factorisation_operators();
std::span<const AtenOperator> generating_operators();
std::span<const AtenOperator> indexing_operators();
std::span<const AtenOperator> normalization_operators();
std::span<const AtenOperator> order_operators();
std::span<const AtenOperator> padding_operators();
std::span<const AtenOperator> pooling_operators();
std::span<const AtenOperator> reduction_operators();
std::span<const AtenOperator> resizing_operators();
std::span<const AtenOperator> scattering_operators();
std::span<const AtenOperator> shape_operators();
std::span<const AtenOperator> special_operators();
std::span<const AtenOperator> unary_operators();

// min(max(x, low), high).
ValueId clamped(AtenContext& c, ValueId x, double low, double high);
// x in f32 where it is a 16-bit float: sums and squares of many need the range, and quotients the digits.
ValueId in_wide_float(AtenContext& c, ValueId x);
// x times a number; x itself for 1.
ValueId scaled(AtenContext& c, ValueId x, double factor);
void require_indices(AtenContext& c, ValueId indices);
// Indices along a dimension as i64 from 0 on; negative ones count from the end.
ValueId counted_from_front(AtenContext& c, ValueId indices, const Expr& extent);
// a / b rounded down, of integers or floats.
ValueId floor_quotient(AtenContext& c, ValueId a, ValueId b);
ValueId mean(AtenContext& c, ValueId x, const std::vector<int64_t>& axes, bool keepdims = true);
// The extent of a slice's place: counted from the end when negative, and held within 0 .. extent.
Expr place_within(AtenContext& c, const Expr& place, const Expr& extent);

}  // namespace tessera::inline aten
