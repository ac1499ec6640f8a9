#include "import/gguf/gguf_import.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "import/gguf/transformer.h"

namespace tessera::inline gguf {
namespace {

constexpr int64_t kUsualLength = 512, kUsualContext = 4096;

nlohmann::json json_of(const GgufValue& value) {
  return std::visit(
      [](const auto& v) -> nlohmann::json {
        if constexpr (std::is_same_v<std::decay_t<decltype(v)>, GgufArray>) {
          if (v.kind == GgufKind::kString) return strings_of(v);
          return numbers_of(v);
        } else {
          return v;
        }
      },
      value);
}

}  // namespace

std::string metadata_json(const GgufFile& file) {
  nlohmann::json json = nlohmann::json::object();
  for (const auto& [key, value] : file.metadata()) json[key] = json_of(value);
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

GgufModel::GgufModel(std::string_view bytes, const std::string& place, std::shared_ptr<const void> owner)
    : file(bytes, place), sizes(hyperparameters_of(file)), weights(file, std::move(owner)) {}

DimRange GgufModel::declared(std::string_view name) const {
  const int64_t context = std::min(sizes.context, kUsualContext), length = std::min(context, kUsualLength);
  if (name == kPast) return {0, context - 1};
  return {1, length};
}

Graph gguf_graph(GgufModel& model, const ImportOptions& options, const OpTable& ops, Evaluator& evaluator) {
  std::vector<SymbolRange> symbols;
  for (const char* name : {kLength, kPast, kKept}) {
    const auto given = options.dims.find(name);
    DimRange range = given != options.dims.end() ? given->second : model.declared(name);
    const int64_t least = std::string_view(name) == kPast ? 0 : 1;
    if (range.lo < least || range.hi > model.sizes.context)
      throw UserError({.id = "TSR-1022",
                       .message = fmt::format("--dim {}={}..{} contradicts the model, which has {} positions", name,
                                              range.lo, range.hi, model.sizes.context),
                       .node = {},
                       .legal = fmt::format("{} to {}", least, model.sizes.context),
                       .hint = "give fewer"});
    // The reader's own symbols: whoever asked for others replaces them by theirs, by name.
    const auto asked = std::find_if(options.symbols.begin(), options.symbols.end(),
                                    [&](const SymbolRange& symbol) { return symbol.var->name == name; });
    if (asked != options.symbols.end()) symbols.push_back(*asked);
    else symbols.push_back({make_var(name), range.lo, range.hi});
  }
  Lengths lengths{symbols[0].var, symbols[1].var, symbols[2].var, symbols[0].hi + symbols[1].hi};
  return transformer_graph(model.sizes, model.weights, lengths, symbols, ops, evaluator);
}

}  // namespace tessera::inline gguf
