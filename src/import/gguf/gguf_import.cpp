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

std::vector<SequenceNames> sequence_names(const std::function<bool(const std::string& name)>& is_named) {
  std::vector<SequenceNames> names = {{kLength, kPast}};
  for (size_t s = 1; is_named(fmt::format("{}.{}", kLength, s)); ++s)
    names.push_back({fmt::format("{}.{}", kLength, s), fmt::format("{}.{}", kPast, s)});
  return names;
}

DimRange GgufModel::declared(std::string_view name) const {
  const int64_t context = std::min(sizes.context, kUsualContext), length = std::min(context, kUsualLength);
  if (name.starts_with(kPast)) return {0, context - 1};
  return {1, length};
}

Graph gguf_graph(GgufModel& model, const ImportOptions& options, const OpTable& ops, Evaluator& evaluator) {
  const std::vector<SequenceNames> sequences = sequence_names([&](const std::string& name) {
    return options.dims.contains(name) ||
           std::any_of(options.symbols.begin(), options.symbols.end(),
                       [&](const SymbolRange& symbol) { return symbol.var->name == name; });
  });
  std::vector<std::string> names;
  for (const SequenceNames& sequence : sequences) names.insert(names.end(), {sequence.length, sequence.past});
  names.emplace_back(kKept);
  std::vector<SymbolRange> symbols;
  for (const std::string& name : names) {
    const auto given = options.dims.find(name);
    DimRange range = given != options.dims.end() ? given->second : model.declared(name);
    const int64_t least = name.starts_with(kPast) ? 0 : 1;
    const int64_t most = model.sizes.context * (name == kKept ? std::ssize(sequences) : 1);
    if (range.lo < least || range.hi > most)
      throw UserError({.id = "TSR-1022",
                       .message = fmt::format("--dim {}={}..{} contradicts the model, which has {} positions", name,
                                              range.lo, range.hi, model.sizes.context),
                       .node = {},
                       .legal = fmt::format("{} to {}", least, most),
                       .hint = "give fewer"});
    // The reader's own symbols: whoever asked for others replaces them by theirs, by name.
    const auto asked = std::find_if(options.symbols.begin(), options.symbols.end(),
                                    [&](const SymbolRange& symbol) { return symbol.var->name == name; });
    if (asked != options.symbols.end()) symbols.push_back(*asked);
    else symbols.push_back({make_var(name), range.lo, range.hi});
  }
  Lengths lengths{{}, symbols.back().var};
  for (size_t s = 0; s < sequences.size(); ++s) {
    lengths.sequences.push_back({symbols[2 * s].var, symbols[2 * s + 1].var});
    lengths.longest = std::max(lengths.longest, symbols[2 * s].hi + symbols[2 * s + 1].hi);
  }
  return transformer_graph(model.sizes, model.weights, lengths, symbols, ops, evaluator);
}

}  // namespace tessera::inline gguf
