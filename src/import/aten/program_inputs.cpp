#include "import/aten/program_inputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "import/aten/read/size_expr.h"
#include "import/common/open_inputs.h"
#include "import/common/refused_model.h"
#include "support/error.h"

namespace tessera::inline aten {
namespace {

std::string text_of(const AtenType& type) {
  std::vector<std::string> parts;
  for (const AtenSize& size : type.sizes) {
    const std::string symbol = lone_symbol(size.expr);
    parts.push_back(size.expr.empty() ? fmt::format("{}", size.value) : symbol.empty() ? size.expr : symbol);
  }
  return fmt::format("{}[{}]", dtype_name(type.dtype), fmt::join(parts, ","));
}

DeclaredSize declared(const AtenSize& size) {
  if (size.expr.empty()) return {.value = size.value};
  const auto names = symbols_of(size.expr);
  const std::string symbol = lone_symbol(size.expr);
  return {.text = symbol.empty() ? size.expr : symbol, .symbols = {names.begin(), names.end()}};
}

// Null for a size that is an argument as well, which is known from the tensors that have it, and for none at all.
const AtenType* type_of_input(const AtenProgram& program, const AtenArgument& argument) {
  if (argument.kind != ArgumentKind::kTensor) {
    if (argument.kind == ArgumentKind::kInt && !argument.items[0].name.empty()) return nullptr;
    if (argument.kind == ArgumentKind::kNone) return nullptr;
    throw UserError({.id = "TSR-1024",
                     .message = "the program has an input that is no tensor",
                     .node = {},
                     .legal = "tensors",
                     .hint = "export the module with that argument fixed"});
  }
  const std::string& name = argument.items[0].name;
  const auto type = program.types.find(name);
  const std::string problem = type == program.types.end() ? "no type" : type->second.no_dtype;
  if (!problem.empty())
    throw RefusedModel(RefusedModel::Reason::kUnsupported, {.id = "TSR-1024",
                                                            .message = fmt::format("input '{}' has {}", name, problem),
                                                            .node = {},
                                                            .legal = "dense tensors of floats, integers or bools",
                                                            .hint = "prepare this input outside of the program"});
  return &type->second;
}

}  // namespace

std::optional<TensorType> type_of(const AtenType& type, const std::map<std::string, Expr>& symbols) {
  if (!type.no_dtype.empty()) return std::nullopt;
  TensorType result{type.dtype, {}, {}};
  for (const AtenSize& size : type.sizes) {
    const auto known = size.expr.empty() ? std::make_optional(Expr(size.value))
                                         : parse_size(size.expr, [&](const std::string& name) -> std::optional<Expr> {
                                             const auto found = symbols.find(name);
                                             if (found == symbols.end()) return std::nullopt;
                                             return found->second;
                                           });
    if (!known) return std::nullopt;
    result.shape.push_back(*known);
  }
  return result;
}

ProgramInputs resolve_inputs(const AtenProgram& program, const ImportOptions& options) {
  std::vector<OpenInput> inputs;
  std::vector<const AtenType*> types;
  for (const AtenInput& input : program.inputs) {
    if (input.kind != AtenInput::Kind::kUser) continue;
    const AtenType* type = type_of_input(program, input.argument);
    if (!type) continue;
    types.push_back(type);
    inputs.push_back({input.argument.items[0].name, text_of(*type), {}});
    for (const AtenSize& size : type->sizes) inputs.back().sizes.push_back(declared(size));
  }
  ProgramInputs result;
  result.symbols = values_of_symbols(inputs, options, "program");
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto type = type_of(*types[i], result.symbols);
    if (!type)
      throw UserError(
          {.id = "TSR-1024",
           .message = fmt::format("input '{}' has a size that cannot be read: {}", inputs[i].name, inputs[i].type_text),
           .node = {},
           .legal = "sums, products and quotients of symbols",
           .hint = "export with other dynamic shapes"});
    require_size(inputs[i].name, type->shape);
    result.tensors.push_back({inputs[i].name, *type});
  }
  return result;
}

}  // namespace tessera::inline aten
