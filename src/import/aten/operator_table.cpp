#include "import/aten/operator_table.h"

#include <fmt/format.h>

#include <vector>

#include "import/aten/aten_import.h"
#include "import/aten/operators/handlers.h"
#include "import/common/operator_rows.h"

namespace tessera::inline aten {
namespace {

// Sorted by name.
const std::vector<AtenOperator>& all_operators() {
  static const std::vector<AtenOperator> table = sorted_rows(
      {attention_operators(), choosing_operators(), contraction_operators(), elementwise_operators(),
       factorisation_operators(), generating_operators(), indexing_operators(), normalization_operators(),
       order_operators(), padding_operators(), pooling_operators(), reduction_operators(), resizing_operators(),
       scattering_operators(), shape_operators(), special_operators(), unary_operators()},
      &AtenOperator::name);
  return table;
}

}  // namespace

const AtenOperator* find_operator(const std::string& target) {
  const OperatorName name = operator_name(target);
  // Of the forms that write into an operand none is read: a program has values, and no places.
  if (name.overload == "out" || name.overload.ends_with("_out")) return nullptr;
  const std::string wanted = name.library == "aten" ? name.name : name.library + "." + name.name;
  return find_row<AtenOperator>(all_operators(), &AtenOperator::name, std::string_view(wanted));
}

std::vector<std::string> read_aten_operators() {
  std::vector<std::string> names;
  for (const AtenOperator& row : all_operators())
    names.push_back(row.name.find('.') == row.name.npos ? fmt::format("aten.{}", row.name) : std::string(row.name));
  return names;
}

}  // namespace tessera::inline aten
