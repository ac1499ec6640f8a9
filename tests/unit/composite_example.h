// The examples of composites as graphs.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "graph/parser.h"
#include "ops/composites/composites.h"
#include "ops/op_table.h"

namespace tessera {

inline std::string trim(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \n");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \n") + 1 - begin);
}

inline std::vector<std::string> split(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t end; (end = text.find(separator, begin)) != std::string::npos; begin = end + separator.size())
    parts.push_back(trim(text.substr(begin, end - begin)));
  parts.push_back(trim(text.substr(begin)));
  return parts;
}

// `name(x: type, ...) {attributes}`: read with the graph parser, as a composite whose region returns an operand.
inline Graph build_composite_example(const CompositeDef& def, const std::string& text) {
  const size_t open = text.find('(');
  const size_t close = text.find(')');
  EXPECT_EQ(text.substr(0, open), def.name);
  std::string params, region, operands;
  for (const std::string& param : split(text.substr(open + 1, close - open - 1), ", ")) {
    const auto sides = split(param, ":");
    params += fmt::format("{}%{}: {}", params.empty() ? "" : ", ", sides[0], sides[1]);
    operands += fmt::format("{}%{}", operands.empty() ? "" : ", ", sides[0]);
  }
  std::string attrs = trim(text.substr(close + 1));
  attrs = attrs.empty() ? "{name = \"x\"}" : "{name = \"x\", " + attrs.substr(1);
  const std::string first = split(params, ", ")[0];
  const std::string same = fmt::format("graph @same({}) -> ({}) {{ }}", params, first);
  const std::string source = fmt::format("graph @main({}) -> ({}) {{\n  %unused = composite({}) {} ({{ {} }})\n}}",
                                         params, first, operands, attrs, same);
  Graph graph = parse_graph(source, standard_ops(), def.name);
  Attrs parsed;
  for (const auto& [name, value] : graph.node(0).attrs.all())
    if (name != "name") parsed.set(name, value);
  Graph result;
  GraphBuilder builder(result);
  std::vector<ValueId> inputs;
  for (ValueId id : graph.inputs) inputs.push_back(result.add_input(graph.value(id).name, graph.type(id)));
  result.outputs = add_composite(builder, standard_ops(), def.name, inputs, parsed);
  for (size_t i = 0; i < result.outputs.size(); ++i)
    result.rename(result.outputs[i], result.outputs.size() == 1 ? "y" : fmt::format("y{}", i));
  return result;
}

}  // namespace tessera
