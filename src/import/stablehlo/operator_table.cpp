#include "import/stablehlo/operator_table.h"

#include <algorithm>

#include "import/stablehlo/operators/handlers.h"
#include "support/error.h"

namespace tessera::inline stablehlo {
namespace {

// Sorted by name.
const std::vector<HloOperator>& all_operators() {
  static const std::vector<HloOperator> table = [] {
    std::vector<HloOperator> all;
    for (const auto family :
         {contraction_operators(), control_operators(), elementwise_operators(), indexing_operators(),
          order_operators(), reduction_operators(), shape_operators(), window_operators()})
      all.insert(all.end(), family.begin(), family.end());
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    for (size_t i = 1; i < all.size(); ++i) check(all[i - 1].name != all[i].name, "two rows for an operator");
    return all;
  }();
  return table;
}

}  // namespace

const HloOperator* find_hlo_operator(std::string_view name) {
  const auto& all = all_operators();
  const auto it = std::lower_bound(all.begin(), all.end(), name,
                                   [](const HloOperator& row, std::string_view key) { return row.name < key; });
  return it != all.end() && it->name == name ? &*it : nullptr;
}

std::vector<std::string> read_hlo_operators() {
  std::vector<std::string> names;
  for (const HloOperator& row : all_operators()) names.emplace_back(row.name);
  return names;
}

}  // namespace tessera::inline stablehlo
