// Every operator's and composite's `example` is parsed, run and checked (the format: src/ops/README.md).
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <sstream>

#include "graph/parser.h"
#include "interp/graph_interp.h"
#include "ops/composites/composites.h"
#include "ops/op_table.h"
#include "reference_util.h"

namespace tessera {
namespace {

std::string trim(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \n");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \n") + 1 - begin);
}

std::vector<std::string> split(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t end; (end = text.find(separator, begin)) != std::string::npos; begin = end + separator.size())
    parts.push_back(trim(text.substr(begin, end - begin)));
  parts.push_back(trim(text.substr(begin)));
  return parts;
}

std::vector<double> parse_values(const std::string& text) {
  std::vector<double> values;
  std::istringstream stream(text);
  for (std::string word; stream >> word;) {
    char* end = nullptr;
    values.push_back(std::strtod(word.c_str(), &end));
    EXPECT_EQ(*end, '\0') << "no number: " << word;
  }
  return values;
}

// "a = 1 2 ; b = 3" by name.
std::map<std::string, std::vector<double>> parse_bindings(const std::string& text) {
  std::map<std::string, std::vector<double>> bindings;
  if (trim(text).empty()) return bindings;
  for (const std::string& part : split(text, ";")) {
    const auto sides = split(part, "=");
    EXPECT_EQ(sides.size(), 2u) << "not `name = values`: " << part;
    bindings[sides[0]] = parse_values(sides[1]);
  }
  return bindings;
}

struct Example {
  std::string text;               // before the run lines
  std::vector<std::string> runs;  // without the word run
};

Example parse_example(const std::string& text) {
  Example example;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (line.rfind("run ", 0) == 0) {
      example.runs.push_back(line.substr(4));
    } else {
      example.text += line + "\n";
    }
  }
  return example;
}

void run_and_check(const Graph& graph, const std::string& run) {
  const auto sides = split(run, "->");
  ASSERT_EQ(sides.size(), 2u) << "not `inputs -> outputs`: " << run;
  const auto given = parse_bindings(sides[0]);
  const auto wanted = parse_bindings(sides[1]);
  ASSERT_EQ(given.size(), graph.inputs.size());
  ASSERT_EQ(wanted.size(), graph.outputs.size());
  std::vector<Tensor> inputs;
  for (ValueId id : graph.inputs) {
    ASSERT_TRUE(given.count(graph.value(id).name)) << graph.value(id).name;
    inputs.push_back(tensor_of(graph.type(id).dtype, graph.type(id).dims(), given.at(graph.value(id).name)));
  }
  const std::vector<Tensor> outputs = GraphInterpreter().evaluate(graph, inputs);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Value& value = graph.value(graph.outputs[i]);
    ASSERT_TRUE(wanted.count(value.name)) << value.name;
    expect_close(outputs[i], value.type.dims(), wanted.at(value.name), value.name);
  }
}

TEST(Examples, EveryPrimitive) {
  for (const OpDef* op : standard_ops().all()) {
    SCOPED_TRACE(op->name);
    EXPECT_FALSE(op->doc.empty());
    const Example example = parse_example(op->example);
    ASSERT_FALSE(example.runs.empty());
    const Graph graph = parse_graph(example.text, standard_ops(), op->name);
    bool shown = false;
    for (const Node& node : graph.nodes()) shown |= node.op == op;
    EXPECT_TRUE(shown) << "the example does not use its operator";
    for (const std::string& run : example.runs) run_and_check(graph, run);
  }
}

// `name(x: type, ...) {attributes}`: read with the graph parser, as a composite whose region returns an operand.
Graph build_composite_example(const CompositeDef& def, const std::string& text) {
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

TEST(Examples, EveryComposite) {
  for (const CompositeDef* def : all_composites()) {
    SCOPED_TRACE(def->name);
    EXPECT_FALSE(def->doc.empty());
    const Example example = parse_example(def->example);
    ASSERT_FALSE(example.runs.empty());
    const Graph graph = build_composite_example(*def, example.text);
    for (const std::string& run : example.runs) run_and_check(graph, run);
  }
}

}  // namespace
}  // namespace tessera
