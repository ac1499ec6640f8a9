#include "driver/graph_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "graph/bind_symbols.h"
#include "graph/hash.h"
#include "graph/op_def.h"
#include "graph/parser.h"
#include "import/common/refused_model.h"
#include "ops/composites/composites.h"
#include "ops/op_table.h"
#include "support/error.h"

namespace tessera::inline driver {
namespace {

constexpr size_t kMaxPreamble = 1 << 16;  // of comments

// The body that the operator of this name has for these operands; null when there is no such operator.
GraphPtr body_of_operator(const Graph& graph, const Node& node, const std::string& name) {
  if (!find_composite(name)) return nullptr;
  Graph sample;
  std::vector<ValueId> operands;
  for (const ValueId input : node.inputs) operands.push_back(sample.add_input("", graph.type(input)));
  GraphBuilder builder(sample);
  builder.set_loc(node.loc);
  Attrs attrs;
  for (const auto& [key, value] : node.attrs.all())
    if (key != "name") attrs.set(key, value);
  const std::vector<ValueId> results = add_composite(builder, standard_ops(), name, operands, attrs);
  return sample.producer(results[0])->regions[0];
}

void require_own_name(const Graph& graph, const Node& node) {
  const std::string name = node.attrs.get_or<std::string>("name", "");
  const GraphPtr body = body_of_operator(graph, node, name);
  if (!body || structural_hash(*body) == structural_hash(*node.regions[0])) return;
  throw UserError(
      {.id = "TSR-2066",
       .message = fmt::format("the composite '{}' computes something else than the operator of that name", name),
       .node = node.loc,
       .legal = "the operator's own body, or a name that no operator has",
       .hint = "give the composite another name"});
}

void require_data(const Node& node) {
  for (const auto& [name, attr] : node.attrs.all()) {
    const auto* tensor = std::get_if<TensorPtr>(&attr);
    if (!tensor || !*tensor || (*tensor)->has_data() || (*tensor)->num_elements() == 0) continue;
    throw UserError({.id = "TSR-2067",
                     .message = "a constant was left out of the text: it stands there as elided<...>",
                     .node = node.loc,
                     .legal = "dense<...>, splat<...> or hex<...>",
                     .hint = "print the graph with its constants"});
  }
}

std::string option_of(const std::string& name, const DimRange& range) {
  return range.lo == range.hi ? fmt::format("--dim {}={}", name, range.lo)
                              : fmt::format("--dim {}={}..{}", name, range.lo, range.hi);
}

std::string range_text(const SymbolRange& symbol) {
  std::string text = fmt::format("{}..", symbol.lo);
  if (symbol.hi != INT64_MAX) text += std::to_string(symbol.hi);
  if (symbol.step != 1) text += fmt::format(":{}", symbol.step);
  return text;
}

const SymbolRange* find_range(const std::vector<SymbolRange>& symbols, const std::string& name) {
  for (const SymbolRange& symbol : symbols)
    if (symbol.var->name == name) return &symbol;
  return nullptr;
}

const SymbolRange* find_symbol(const Graph& graph, const std::string& name) { return find_range(graph.symbols, name); }

bool is_value_of(const SymbolRange& symbol, int64_t value) {
  return value >= symbol.lo && value <= symbol.hi && (value - symbol.lo) % symbol.step == 0;
}

void require_value_of(const SymbolRange& symbol, int64_t value, const std::string& option) {
  if (is_value_of(symbol, value)) return;
  throw UserError(
      {.id = "TSR-1022",
       .message = fmt::format("{} contradicts the model: '{}' is never {}", option, symbol.var->name, value),
       .node = {},
       .legal = fmt::format("{} in {}", symbol.var->name, range_text(symbol)),
       .hint = "leave the option out, or make it agree"});
}

std::string names_of(const Graph& graph, bool symbols) {
  std::vector<std::string> names;
  if (symbols) {
    for (const SymbolRange& symbol : graph.symbols) names.push_back(fmt::format("'{}'", symbol.var->name));
  } else {
    for (const ValueId input : graph.inputs) names.push_back(fmt::format("'{}'", graph.value(input).name));
  }
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

// The values that --shape gives to symbols that are whole dimensions; the rest is checked once everything has a value.
void take_shape(const Graph& graph, const std::string& name, const std::vector<int64_t>& dims,
                std::map<std::string, int64_t>& values) {
  const std::string option = fmt::format("--shape {}={}", name, fmt::join(dims, "x"));
  const auto input =
      std::find_if(graph.inputs.begin(), graph.inputs.end(), [&](ValueId id) { return graph.value(id).name == name; });
  if (input == graph.inputs.end())
    throw UserError({.id = "TSR-1021",
                     .message = fmt::format("--shape names the input '{}', which the model does not have", name),
                     .node = {},
                     .legal = "inputs: " + names_of(graph, false),
                     .hint = "correct the name"});
  const TensorType& type = graph.type(*input);
  const auto contradict = [&](const std::string& why) {
    throw UserError({.id = "TSR-1022",
                     .message = fmt::format("{} contradicts {}", option, why),
                     .node = {},
                     .legal = fmt::format("input '{}' is {}", name, type.to_string()),
                     .hint = "leave the option out, or make it agree"});
  };
  if (dims.size() != type.shape.size())
    contradict(fmt::format("the model: {} dimensions instead of {}", dims.size(), type.shape.size()));
  for (size_t i = 0; i < dims.size(); ++i) {
    if (const auto number = as_int(type.shape[i])) {
      if (*number != dims[i]) contradict(fmt::format("the model: dimension {} is {}", i, *number));
    } else if (type.shape[i]->kind == ExprKind::kVar) {
      const std::string& symbol = type.shape[i]->name;
      if (const SymbolRange* range = find_symbol(graph, symbol)) require_value_of(*range, dims[i], option);
      const auto [it, inserted] = values.emplace(symbol, dims[i]);
      if (!inserted && it->second != dims[i])
        contradict(fmt::format("another option: dimension '{}' is {} there", symbol, it->second));
    }
  }
}

void require_shapes(const Graph& bound, const ImportOptions& options) {
  for (const ValueId input : bound.inputs) {
    const auto it = options.shapes.find(bound.value(input).name);
    if (it == options.shapes.end() || bound.type(input).dims() == it->second) continue;
    throw UserError({.id = "TSR-1022",
                     .message = fmt::format("--shape {}={} contradicts the sizes that its dimensions are made of",
                                            it->first, fmt::join(it->second, "x")),
                     .node = {},
                     .legal = fmt::format("{}", bound.type(input).to_string()),
                     .hint = "leave the option out, or make it agree"});
  }
}

}  // namespace

bool looks_like_graph(std::string_view text) {
  text = text.substr(0, kMaxPreamble);
  while (true) {
    const size_t begin = text.find_first_not_of(" \t\r\n");
    if (begin == std::string_view::npos) return false;
    text.remove_prefix(begin);
    if (!text.starts_with("//")) break;
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) return false;
    text.remove_prefix(end);
  }
  if (!text.starts_with("graph")) return false;
  text.remove_prefix(5);
  const size_t name = text.find_first_not_of(" \t\r\n");
  return name != std::string_view::npos && name > 0 && text[name] == '@';
}

void require_model_graph(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    bool has_layout = node.op->kind == OpKind::kGroup || node.op->name == "relayout";
    for (const ValueId output : node.outputs) has_layout |= !graph.type(output).layout.row_major();
    if (has_layout)
      throw UserError({.id = "TSR-2068",
                       .message = fmt::format("a {} with a layout or group of the compiler's own", node.op->name),
                       .node = node.loc,
                       .legal = "operators on row-major values: passes choose groups and layouts",
                       .hint = "give the graph as it was before the passes"});
    require_data(node);
    for (const GraphPtr& region : node.regions) require_model_graph(*region);
    if (node.op->kind == OpKind::kComposite) require_own_name(graph, node);
  }
}

Graph read_graph_text(std::string_view text, const std::string& file) {
  Graph graph = parse_graph(text, standard_ops(), file);
  require_model_graph(graph);
  return graph;
}

CompileOptions with_declared_sizes(const Graph& graph, const CompileOptions& options) {
  CompileOptions result = options;
  std::map<std::string, int64_t> fixed;
  for (const auto& [name, dims] : options.shapes) take_shape(graph, name, dims, fixed);
  for (const SymbolRange& symbol : graph.symbols) {
    const std::string& name = symbol.var->name;
    if (const auto given = options.dims.find(name); given != options.dims.end()) {
      const std::string option = option_of(name, {given->second.lo, given->second.hi});
      require_value_of(symbol, given->second.lo, option);
      require_value_of(symbol, given->second.hi, option);
    } else if (!fixed.count(name) && symbol.hi != INT64_MAX) {
      result.dims[name] = {symbol.lo, symbol.hi, symbol.step};
    }
  }
  return result;
}

Graph bind_options(const Graph& graph, const ImportOptions& options) {
  std::map<std::string, int64_t> values;
  for (const auto& [name, range] : options.dims) {
    if (!find_symbol(graph, name))
      throw UserError({.id = "TSR-1021",
                       .message = fmt::format("--dim names the dimension '{}', which the model does not have", name),
                       .node = {},
                       .legal = "named dimensions: " + names_of(graph, true),
                       .hint = "correct the name"});
    if (find_range(options.symbols, name)) continue;
    if (range.lo != range.hi)
      throw UserError({.id = "TSR-1025",
                       .message = option_of(name, range) + " is a range",
                       .node = {},
                       .legal = "one value: shapes are fixed when a model is compiled",
                       .hint = fmt::format("give --dim {}={}", name, range.hi)});
    values[name] = range.lo;
  }
  for (const auto& [name, dims] : options.shapes) take_shape(graph, name, dims, values);
  std::string open, hint;
  for (const SymbolRange& symbol : graph.symbols) {
    if (values.count(symbol.var->name) || find_range(options.symbols, symbol.var->name)) continue;
    open += fmt::format("\n    '{}' in {}", symbol.var->name, range_text(symbol));
    hint += fmt::format(" --dim {}=VALUE", symbol.var->name);
  }
  if (!open.empty())
    throw RefusedModel(RefusedModel::Reason::kOpenSizes,
                       {.id = "TSR-1020",
                        .message = "the model leaves dimensions open that have no value yet:" + open,
                        .node = {},
                        .legal = "a value for every dimension",
                        .hint = "add" + hint});
  Graph bound = bind_symbols(graph, values);
  for (SymbolRange& symbol : bound.symbols) {
    const SymbolRange& asked = *find_range(options.symbols, symbol.var->name);
    symbol.lo = asked.lo, symbol.hi = asked.hi, symbol.step = asked.step;
  }
  require_shapes(bound, options);
  return bound;
}

ModelReader reader_of_graph(std::shared_ptr<const Graph> graph) {
  ModelReader reader;
  reader.read = [graph](const ImportOptions& options) -> ReadOutcome {
    ImportedModel model;
    model.graph = bind_options(*graph, options);
    return model;
  };
  reader.with_declared_sizes = [graph](const CompileOptions& options) { return with_declared_sizes(*graph, options); };
  reader.reads_symbols = true;
  reader.reads_open = false;
  return reader;
}

}  // namespace tessera::inline driver
