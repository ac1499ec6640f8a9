#include "import/stablehlo/operator_table.h"

#include <algorithm>

#include "import/common/operator_rows.h"
#include "import/stablehlo/operators/handlers.h"

namespace tessera::inline stablehlo {
namespace {

// Sorted by name.
const std::vector<HloOperator>& all_operators() {
  static const std::vector<HloOperator> table =
      sorted_rows({contraction_operators(), control_operators(), elementwise_operators(), indexing_operators(),
                   order_operators(), reduction_operators(), shape_operators(), window_operators()},
                  &HloOperator::name);
  return table;
}

const std::vector<HloOperator>& all_complex_operators() {
  static const std::vector<HloOperator> table = sorted_rows({complex_operators()}, &HloOperator::name);
  return table;
}

}  // namespace

const HloOperator* find_complex_hlo_operator(std::string_view name) {
  return find_row<HloOperator>(all_complex_operators(), &HloOperator::name, name);
}

const HloOperator* find_hlo_operator(std::string_view name) {
  return find_row<HloOperator>(all_operators(), &HloOperator::name, name);
}

std::vector<std::string> read_hlo_operators() {
  std::vector<std::string> names;
  for (const HloOperator& row : all_operators()) names.emplace_back(row.name);
  for (const HloOperator& row : all_complex_operators())
    if (!find_hlo_operator(row.name)) names.emplace_back(row.name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace tessera::inline stablehlo
