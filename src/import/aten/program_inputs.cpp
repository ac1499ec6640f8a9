#include "import/aten/program_inputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "arith/simplify.h"
#include "import/aten/read/size_expr.h"
#include "import/common/limits.h"
#include "import/common/refused_model.h"
#include "support/error.h"

namespace tessera::inline aten {
namespace {

class Resolver {
 public:
  Resolver(const AtenProgram& program, const ImportOptions& options) : program_(program), options_(options) {
    for (const AtenInput& input : program.inputs)
      if (input.kind == AtenInput::Kind::kUser) add(input.argument);
  }

  ProgramInputs run() {
    for (const auto& [name, range] : options_.dims) bind_dim(name, range);
    for (const auto& [name, dims] : options_.shapes) bind_shape(name, dims);
    for (const SymbolRange& symbol : options_.symbols) symbols_.emplace(symbol_called(symbol.var->name), symbol.var);
    for (const auto& [name, size] : options_.equal) symbols_[symbol_called(name)] = size;
    require_all();
    ProgramInputs result;
    for (const Input& input : inputs_) {
      const auto type = type_of(*input.type, symbols_);
      if (!type)
        throw UserError(
            {.id = "TSR-1024",
             .message = fmt::format("input '{}' has a size that cannot be read: {}", input.name, shape_text(input)),
             .node = {},
             .legal = "sums, products and quotients of symbols",
             .hint = "export with other dynamic shapes"});
      std::vector<int64_t> known;
      for (const Expr& size : type->shape)
        if (const auto value = as_int(size)) known.push_back(*value);
      if (!checked_num_elements(known))
        throw UserError({.id = "TSR-1023",
                         .message = fmt::format("input '{}' has the shape {}", input.name, to_string(type->shape)),
                         .node = {},
                         .legal = "at most 2^40 elements",
                         .hint = "give sizes that fit in memory"});
      result.tensors.push_back({input.name, *type});
    }
    result.symbols = symbols_;
    return result;
  }

 private:
  struct Input {
    std::string name;
    const AtenType* type;
  };

  void add(const AtenArgument& argument) {
    if (argument.kind != ArgumentKind::kTensor) {
      // A size that is an argument as well is known from the tensors that have it.
      if (argument.kind == ArgumentKind::kInt && !argument.items[0].name.empty()) return;
      if (argument.kind == ArgumentKind::kNone) return;
      throw UserError({.id = "TSR-1024",
                       .message = "the program has an input that is no tensor",
                       .node = {},
                       .legal = "tensors",
                       .hint = "export the module with that argument fixed"});
    }
    const std::string& name = argument.items[0].name;
    const auto type = program_.types.find(name);
    const std::string problem = type == program_.types.end() ? "no type" : type->second.no_dtype;
    if (!problem.empty())
      throw RefusedModel(RefusedModel::Reason::kUnsupported,
                         {.id = "TSR-1024",
                          .message = fmt::format("input '{}' has {}", name, problem),
                          .node = {},
                          .legal = "dense tensors of floats, integers or bools",
                          .hint = "prepare this input outside of the program"});
    inputs_.push_back({name, &type->second});
    for (size_t d = 0; d < type->second.sizes.size(); ++d) {
      const std::string& expr = type->second.sizes[d].expr;
      if (expr.empty()) continue;
      for (const std::string& symbol : symbols_of(expr)) names_.insert(symbol);
      if (const std::string symbol = lone_symbol(expr); !symbol.empty())
        places_.emplace(fmt::format("{}[{}]", name, d), symbol);
    }
  }

  std::string symbol_called(const std::string& name) const {
    const auto place = places_.find(name);
    return place == places_.end() ? name : place->second;
  }

  static std::string shape_text(const Input& input) {
    std::vector<std::string> parts;
    for (const AtenSize& size : input.type->sizes) {
      const std::string symbol = lone_symbol(size.expr);
      parts.push_back(size.expr.empty() ? fmt::format("{}", size.value) : symbol.empty() ? size.expr : symbol);
    }
    return fmt::format("{}[{}]", dtype_name(input.type->dtype), fmt::join(parts, ","));
  }

  void give(const std::string& symbol, int64_t value, const std::string& option) {
    if (value < 0 || value > kMaxTensorElements)
      throw UserError({.id = "TSR-1023",
                       .message = fmt::format("{}: {} is not a dimension", option, value),
                       .node = {},
                       .legal = "0 to 2^40",
                       .hint = "give a size that fits in memory"});
    const auto [known, is_new] = symbols_.emplace(symbol, Expr(value));
    if (!is_new && as_int(known->second) != value)
      contradicts(option, fmt::format("another option: '{}' is {} there", symbol, to_string(known->second)));
  }

  [[noreturn]] static void contradicts(const std::string& option, const std::string& what) {
    throw UserError({.id = "TSR-1022",
                     .message = fmt::format("{} contradicts {}", option, what),
                     .node = {},
                     .legal = "sizes that agree",
                     .hint = "leave the option out, or make it agree"});
  }

  void bind_dim(const std::string& name, DimRange range) {
    const std::string symbol = symbol_called(name);
    if (!names_.contains(symbol))
      throw UserError({.id = "TSR-1021",
                       .message = fmt::format("--dim names the dimension '{}', which the program does not have", name),
                       .node = {},
                       .legal = names_.empty() ? "no dimension is open" : fmt::format("{}", fmt::join(names_, ", ")),
                       .hint = "correct the name"});
    const std::string option = range.lo == range.hi ? fmt::format("--dim {}={}", name, range.lo)
                                                    : fmt::format("--dim {}={}..{}", name, range.lo, range.hi);
    if (range.lo == range.hi) return give(symbol, range.lo, option);
    if (options_.symbols.empty())
      throw UserError({.id = "TSR-1025",
                       .message = fmt::format("{} is a range", option),
                       .node = {},
                       .legal = "one value",
                       .hint = fmt::format("give --dim {}={}", name, range.hi)});
  }

  void bind_shape(const std::string& name, const std::vector<int64_t>& dims) {
    const auto input = std::find_if(inputs_.begin(), inputs_.end(), [&](const Input& i) { return i.name == name; });
    const std::string option = fmt::format("--shape {}={}", name, fmt::join(dims, "x"));
    if (input == inputs_.end()) {
      std::vector<std::string> names;
      for (const Input& i : inputs_) names.push_back(i.name);
      throw UserError({.id = "TSR-1021",
                       .message = fmt::format("--shape names the input '{}', which the program does not have", name),
                       .node = {},
                       .legal = fmt::format("inputs: {}", fmt::join(names, ", ")),
                       .hint = "correct the name"});
    }
    const std::vector<AtenSize>& sizes = input->type->sizes;
    if (dims.size() != sizes.size()) contradicts(option, fmt::format("the program: {}", shape_text(*input)));
    for (size_t d = 0; d < dims.size(); ++d) {
      if (const std::string symbol = lone_symbol(sizes[d].expr); !symbol.empty()) give(symbol, dims[d], option);
      else if (sizes[d].expr.empty() && sizes[d].value != dims[d])
        contradicts(option, fmt::format("the program: {}", shape_text(*input)));
    }
  }

  void require_all() const {
    std::string found, hint;
    for (const Input& input : inputs_) {
      bool open = false;
      for (const AtenSize& size : input.type->sizes)
        for (const std::string& symbol : symbols_of(size.expr)) {
          if (symbols_.contains(symbol)) continue;
          open = true;
          if (hint.find(symbol + "=") == std::string::npos)
            hint += fmt::format("{}--dim {}=8", hint.empty() ? "" : " ", symbol);
        }
      if (open) found += fmt::format("\n    input '{}': {}", input.name, shape_text(input));
    }
    if (!found.empty())
      throw RefusedModel(RefusedModel::Reason::kOpenSizes,
                         {.id = "TSR-1020",
                          .message = "the program leaves dimensions open that have no value yet:" + found,
                          .node = {},
                          .legal = "a value for every dimension",
                          .hint = fmt::format("add {}, with your sizes or ranges of them (1..8)", hint)});
  }

  const AtenProgram& program_;
  const ImportOptions& options_;
  std::vector<Input> inputs_;
  std::set<std::string> names_;                // of symbols
  std::map<std::string, std::string> places_;  // "x[0]" -> the symbol
  std::map<std::string, Expr> symbols_;
};

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
  return Resolver(program, options).run();
}

}  // namespace tessera::inline aten
