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
#include "unit/composite_example.h"

namespace tessera {
namespace {

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
