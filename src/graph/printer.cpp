#include "graph/printer.h"

#include <fmt/format.h>

#include "graph/op_def.h"
#include "graph/tensor_text.h"
#include "support/text_reader.h"

namespace tessera::inline graph {
namespace {

std::string value_text(const Graph& graph, ValueId id) { return "%" + name_text(graph.value(id).name); }

void print_graph(const Graph& graph, const PrintOptions& options, int indent, std::string& out);

void print_node_to(const Graph& graph, const Node& node, const PrintOptions& options, int indent, std::string& out) {
  for (size_t i = 0; i < node.outputs.size(); ++i) out += (i ? ", " : "") + value_text(graph, node.outputs[i]);
  out += " = " + node.op->name;
  if (!node.inputs.empty()) {
    out += "(";
    for (size_t i = 0; i < node.inputs.size(); ++i) out += (i ? ", " : "") + value_text(graph, node.inputs[i]);
    out += ")";
  }
  if (!node.attrs.all().empty()) {
    const char* separator = " {";
    for (const auto& [name, attr] : node.attrs.all()) {
      out += separator + name + " = " + attr_text(attr, options.elide_constants);
      separator = ", ";
    }
    out += "}";
  }
  if (!node.regions.empty()) {
    out += " ({\n";
    for (const GraphPtr& region : node.regions) print_graph(*region, options, indent + 2, out);
    out += std::string(static_cast<size_t>(indent), ' ') + "})";
  }
  out += " : ";
  for (size_t i = 0; i < node.outputs.size(); ++i) out += (i ? ", " : "") + graph.type(node.outputs[i]).to_string();
  if (options.locs && !node.loc.empty()) out += " loc(" + quoted_text(node.loc) + ")";
}

template <typename Suffix>
void print_values(const Graph& graph, const std::vector<ValueId>& values, const Suffix& suffix, std::string& out) {
  out += "(";
  for (size_t i = 0; i < values.size(); ++i)
    out += fmt::format("{}{}: {}{}", i ? ", " : "", value_text(graph, values[i]), graph.type(values[i]).to_string(),
                       suffix(i));
  out += ")";
}

std::string state_text(const State& state, const PrintOptions& options) {
  const std::string initial = state.initial ? ", " + tensor_text(*state.initial, options.elide_constants) : "";
  return fmt::format(" state({}{})", quoted_text(state.name), initial);
}

void print_graph(const Graph& graph, const PrintOptions& options, int indent, std::string& out) {
  const std::string margin(static_cast<size_t>(indent), ' ');
  out += margin + "graph @" + name_text(graph.name);
  if (!graph.symbols.empty()) {
    out += "[";
    for (size_t i = 0; i < graph.symbols.size(); ++i) {
      const SymbolRange& symbol = graph.symbols[i];
      if (symbol.is_data()) {
        out += fmt::format("{}{}{} upto {}", i ? ", " : "", symbol_text(symbol.var->name),
                           symbol.lo == 0 ? "" : fmt::format(" from {}", symbol.lo), to_string(symbol.bound));
        continue;
      }
      out += fmt::format("{}{} in {}..", i ? ", " : "", symbol_text(symbol.var->name), symbol.lo);
      if (symbol.hi != INT64_MAX) out += fmt::format("{}", symbol.hi);
      if (symbol.step != 1) out += fmt::format(":{}", symbol.step);
    }
    out += "]";
  }
  const size_t own_inputs = graph.num_own_inputs(), own_outputs = graph.num_own_outputs();
  print_values(
      graph, graph.inputs,
      [&](size_t i) { return i < own_inputs ? "" : state_text(graph.states[i - own_inputs], options); }, out);
  out += " -> ";
  print_values(
      graph, graph.outputs,
      [&](size_t i) -> std::string {
        if (i < own_outputs) return "";
        if (i < graph.first_check()) return fmt::format(" state({})", quoted_text(graph.states[i - own_outputs].name));
        const RuntimeCheck& check = graph.checks[i - graph.first_check()];
        return fmt::format(" check({}, {})", quoted_text(check.what), quoted_text(check.legal));
      },
      out);
  out += " {\n";
  for (const Node& node : graph.nodes()) {
    out += margin + "  ";
    print_node_to(graph, node, options, indent + 2, out);
    out += "\n";
  }
  out += margin + "}\n";
}

template <typename List, typename Text>
std::string list_text(const List& list, const Text& text) {
  std::string result = "[";
  for (size_t i = 0; i < list.size(); ++i) result += (i ? ", " : "") + text(list[i]);
  return result + "]";
}

}  // namespace

std::string attr_text(const Attr& attr, bool elide_constants) {
  struct Visitor {
    bool elide;
    std::string operator()(bool value) const { return value ? "true" : "false"; }
    std::string operator()(int64_t value) const { return fmt::format("{}", value); }
    std::string operator()(double value) const { return double_text(value); }
    std::string operator()(const std::string& value) const { return quoted_text(value); }
    std::string operator()(const std::vector<int64_t>& value) const {
      return list_text(value, [](int64_t v) { return fmt::format("{}", v); });
    }
    // Without elements the brackets would not say what they are a list of.
    std::string operator()(const std::vector<double>& value) const {
      return value.empty() ? "floats[]" : list_text(value, double_text);
    }
    std::string operator()(const Shape& value) const {
      return list_text(value, [](const Expr& size) { return to_string(size); });
    }
    std::string operator()(DType value) const { return std::string(dtype_name(value)); }
    std::string operator()(const Layout& value) const { return value.row_major() ? "{}" : value.to_string(); }
    std::string operator()(const TensorPtr& value) const { return value ? tensor_text(*value, elide) : "null"; }
  };
  return std::visit(Visitor{elide_constants}, attr);
}

std::string print(const Graph& graph, const PrintOptions& options) {
  std::string out;
  print_graph(graph, options, 0, out);
  return out;
}

std::string print_node(const Graph& graph, const Node& node, const PrintOptions& options) {
  std::string out;
  print_node_to(graph, node, options, 0, out);
  return out;
}

}  // namespace tessera::inline graph
