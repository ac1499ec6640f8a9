#include "import/aten/operator_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "import/aten/aten_import.h"
#include "import/aten/operators/handlers.h"
#include "support/error.h"

namespace tessera::inline aten {
namespace {

// Sorted by name.
const std::vector<AtenOperator>& all_operators() {
  static const std::vector<AtenOperator> table = [] {
    std::vector<AtenOperator> all;
    for (const auto family :
         {attention_operators(), choosing_operators(), contraction_operators(), elementwise_operators(),
          factorisation_operators(), generating_operators(), indexing_operators(), normalization_operators(),
          order_operators(), padding_operators(), pooling_operators(), reduction_operators(), resizing_operators(),
          scattering_operators(), shape_operators(), special_operators(), unary_operators()})
      all.insert(all.end(), family.begin(), family.end());
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    for (size_t i = 1; i < all.size(); ++i) check(all[i - 1].name != all[i].name, "two rows for an operator");
    return all;
  }();
  return table;
}

}  // namespace

const AtenOperator* find_operator(const std::string& target) {
  const OperatorName name = operator_name(target);
  // Of the forms that write into an operand none is read: a program has values, and no places.
  if (name.overload == "out" || name.overload.ends_with("_out")) return nullptr;
  const std::string wanted = name.library == "aten" ? name.name : name.library + "." + name.name;
  const auto& all = all_operators();
  const auto it = std::lower_bound(all.begin(), all.end(), wanted,
                                   [](const AtenOperator& row, std::string_view key) { return row.name < key; });
  return it != all.end() && it->name == wanted ? &*it : nullptr;
}

std::vector<std::string> read_aten_operators() {
  std::vector<std::string> names;
  for (const AtenOperator& row : all_operators())
    names.push_back(row.name.find('.') == row.name.npos ? fmt::format("aten.{}", row.name) : std::string(row.name));
  return names;
}

}  // namespace tessera::inline aten
