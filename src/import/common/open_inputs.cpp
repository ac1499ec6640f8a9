#include "import/common/open_inputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "arith/simplify.h"
#include "import/common/limits.h"
#include "import/common/refused_model.h"
#include "support/error.h"

namespace tessera::inline import_common {
namespace {

class Resolver {
 public:
  Resolver(const std::vector<OpenInput>& inputs, const ImportOptions& options, std::string_view what)
      : inputs_(inputs), options_(options), what_(what) {
    for (const OpenInput& input : inputs)
      for (size_t d = 0; d < input.sizes.size(); ++d) {
        const DeclaredSize& size = input.sizes[d];
        names_.insert(size.symbols.begin(), size.symbols.end());
        if (const std::string symbol = size.lone_symbol(); !symbol.empty())
          places_.emplace(fmt::format("{}[{}]", input.name, d), symbol);
      }
  }

  std::map<std::string, Expr> run() {
    for (const auto& [name, range] : options_.dims) bind_dim(name, range);
    for (const auto& [name, dims] : options_.shapes) bind_shape(name, dims);
    for (const SymbolRange& symbol : options_.symbols) symbols_.emplace(symbol_called(symbol.var->name), symbol.var);
    for (const auto& [name, size] : options_.equal) symbols_[symbol_called(name)] = size;
    require_all();
    return std::move(symbols_);
  }

 private:
  std::string symbol_called(const std::string& name) const {
    const auto place = places_.find(name);
    return place == places_.end() ? name : place->second;
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
      throw UserError(
          {.id = "TSR-1021",
           .message = fmt::format("--dim names the dimension '{}', which the {} does not have", name, what_),
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
    const auto input = std::find_if(inputs_.begin(), inputs_.end(), [&](const OpenInput& i) { return i.name == name; });
    const std::string option = fmt::format("--shape {}={}", name, fmt::join(dims, "x"));
    if (input == inputs_.end()) {
      std::vector<std::string> names;
      for (const OpenInput& i : inputs_) names.push_back(i.name);
      throw UserError({.id = "TSR-1021",
                       .message = fmt::format("--shape names the input '{}', which the {} does not have", name, what_),
                       .node = {},
                       .legal = fmt::format("inputs: {}", fmt::join(names, ", ")),
                       .hint = "correct the name"});
    }
    const std::string declared = fmt::format("the {}: {}", what_, input->type_text);
    if (dims.size() != input->sizes.size()) contradicts(option, declared);
    for (size_t d = 0; d < dims.size(); ++d) {
      const DeclaredSize& size = input->sizes[d];
      if (const std::string symbol = size.lone_symbol(); !symbol.empty()) give(symbol, dims[d], option);
      else if (size.text.empty() && size.value != dims[d]) contradicts(option, declared);
    }
  }

  void require_all() const {
    std::string found, hint;
    for (const OpenInput& input : inputs_) {
      bool open = false;
      for (const DeclaredSize& size : input.sizes)
        for (const std::string& symbol : size.symbols) {
          if (symbols_.contains(symbol)) continue;
          open = true;
          if (hint.find(symbol + "=") == std::string::npos)
            hint += fmt::format("{}--dim {}=8", hint.empty() ? "" : " ", symbol);
        }
      if (open) found += fmt::format("\n    input '{}': {}", input.name, input.type_text);
    }
    if (!found.empty())
      throw RefusedModel(
          RefusedModel::Reason::kOpenSizes,
          {.id = "TSR-1020",
           .message = fmt::format("the {} leaves dimensions open that have no value yet:{}", what_, found),
           .node = {},
           .legal = "a value for every dimension",
           .hint = fmt::format("add {}, with your sizes or ranges of them (1..8)", hint)});
  }

  const std::vector<OpenInput>& inputs_;
  const ImportOptions& options_;
  const std::string_view what_;
  std::set<std::string> names_;                // of symbols
  std::map<std::string, std::string> places_;  // "x[0]" -> the symbol
  std::map<std::string, Expr> symbols_;
};

}  // namespace

std::map<std::string, Expr> values_of_symbols(const std::vector<OpenInput>& inputs, const ImportOptions& options,
                                              std::string_view what) {
  return Resolver(inputs, options, what).run();
}

void require_size(const std::string& input, const Shape& shape) {
  std::vector<int64_t> known;
  for (const Expr& size : shape)
    if (const auto value = as_int(size)) known.push_back(*value);
  if (!checked_num_elements(known))
    throw UserError({.id = "TSR-1023",
                     .message = fmt::format("input '{}' has the shape {}", input, to_string(shape)),
                     .node = {},
                     .legal = "at most 2^40 elements",
                     .hint = "give sizes that fit in memory"});
}

}  // namespace tessera::inline import_common
