#include "import/aten/size_nodes.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "arith/simplify.h"

namespace tessera::inline aten {
namespace {

// What the exporter says about sizes; the symbols' ranges say the same, and inputs are held against their shapes.
constexpr std::array<std::string_view, 7> kStatements = {
    "aten._assert_scalar.default",          "aten._assert_async.msg",
    "aten.sym_constrain_range.default",     "aten.sym_constrain_range_for_size.default",
    "aten._assert_tensor_metadata.default", "aten._assert_async.default",
    "aten._assert_tensor_metadata",
};

}  // namespace

bool import_size_node(AtenContext& c, const std::string& target) {
  for (const std::string_view statement : kStatements)
    if (target == statement) return true;
  if (target == "aten.sym_size.int") {
    const ValueId x = c.tensor("self");
    c.out_size(c.shape(x)[static_cast<size_t>(c.dimension("dim", c.rank(x)))]);
    return true;
  }
  if (target == "aten.sym_numel.default") {
    c.out_size(c.count(c.tensor("self")));
    return true;
  }
  // Functions of Python: "_operator.add", "torch.sym_max".
  const size_t dot = target.rfind('.');
  const std::string name = target.substr(dot == std::string::npos ? 0 : dot + 1);
  const bool is_python = target.starts_with("_operator.") || target.starts_with("operator.") ||
                         target.starts_with("math.") || target.starts_with("torch.sym_") ||
                         target.starts_with("torch.");
  if (!is_python) return false;
  for (const std::string_view comparison : {"eq", "ne", "lt", "le", "gt", "ge", "and_", "or_", "not_", "sym_not"})
    if (name == comparison) return true;  // read by statements only; whoever else asks for it finds no size
  const auto operand = [&](size_t i) {
    const AtenArgument& argument = c.argument(i);
    if (argument.kind != ArgumentKind::kInt || argument.items.size() != 1) c.unsupported("numbers that are no sizes");
    return c.size_of(argument.items[0]);
  };
  if (name == "neg") c.out_size(normalize_size(Expr(0) - operand(0)));
  else if (name == "add") c.out_size(normalize_size(operand(0) + operand(1)));
  else if (name == "sub") c.out_size(normalize_size(operand(0) - operand(1)));
  else if (name == "mul") c.out_size(normalize_size(operand(0) * operand(1)));
  else if (name == "floordiv") c.out_size(normalize_size(floordiv(operand(0), operand(1))));
  else if (name == "mod") c.out_size(normalize_size(floormod(operand(0), operand(1))));
  else if (name == "max" || name == "sym_max") c.out_size(normalize_size(max(operand(0), operand(1))));
  else if (name == "min" || name == "sym_min") c.out_size(normalize_size(min(operand(0), operand(1))));
  else return false;
  return true;
}

}  // namespace tessera::inline aten
