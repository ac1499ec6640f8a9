// Parts of random graphs compute what the whole graph computes there; edits give graphs that verify.
#include "diagnose/graph_edit.h"

#include <map>
#include <random>

#include <gtest/gtest.h>

#include "graph/op_def.h"
#include "graph/parser.h"
#include "graph/printer.h"
#include "graph/subgraph.h"
#include "graph/verify.h"
#include "interp/graph_interp.h"
#include "ops/op_table.h"
#include "random_control_flow.h"
#include "random_graph.h"

namespace tessera {
namespace {

// The graph's values in one evaluation, those of regions left out.
std::map<ValueId, Tensor> values_of(const Graph& graph, const std::vector<Tensor>& inputs) {
  std::map<ValueId, Tensor> values;
  for (size_t i = 0; i < inputs.size(); ++i) values[graph.inputs[i]] = inputs[i];
  GraphInterpreter interpreter([&](const Graph& of, ValueId id, const Tensor& value) {
    if (&of == &graph) values[id] = value;
  });
  interpreter.evaluate(graph, inputs);
  return values;
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.dims() == b.dims() && std::equal(a.bytes(), a.bytes() + a.num_bytes(), b.bytes());
}

void expect_parts_compute_the_same(const Graph& graph, const std::vector<Tensor>& inputs, uint64_t seed) {
  const std::map<ValueId, Tensor> values = values_of(graph, inputs);
  std::mt19937_64 random(seed);
  for (int trial = 0; trial < 4; ++trial) {
    std::set<NodeId> nodes;
    for (NodeId id = 0; id < std::ssize(graph.nodes()); ++id)
      if (graph.node(id).op->kind != OpKind::kConstant && random() % 2) nodes.insert(id);
    if (nodes.empty()) continue;
    const Subgraph part = subgraph_of(graph, nodes);
    const Graph cut = extract(graph, part);
    EXPECT_EQ(verify(cut), std::vector<std::string>());
    EXPECT_EQ(print(parse_graph(print(cut), standard_ops(), "cut")), print(cut));
    std::vector<Tensor> given;
    for (const ValueId id : part.inputs) given.push_back(values.at(id));
    const std::vector<Tensor> results = GraphInterpreter().evaluate(cut, given);
    ASSERT_EQ(results.size(), part.outputs.size());
    for (size_t i = 0; i < results.size(); ++i)
      EXPECT_TRUE(same_bytes(results[i], values.at(part.outputs[i]))) << graph.value(part.outputs[i]).name;
  }
}

TEST(Subgraph, PartsOfRandomGraphsComputeTheSame) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Graph graph = random_graph(seed, 12);
    expect_parts_compute_the_same(graph, random_inputs(graph, seed), seed);
  }
}

TEST(Subgraph, PartsOfControlFlowComputeTheSame) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Graph graph = random_control_flow(seed);
    expect_parts_compute_the_same(graph, control_flow_inputs(graph, seed), seed);
  }
}

// Every edit of the graph that changes something; each verifies and can be read back.
std::vector<EditableGraph> edits_of(const EditableGraph& graph) {
  std::vector<std::optional<EditableGraph>> all;
  for (int node = 0; node < graph.num_nodes(); ++node) {
    all.push_back(graph.with_nodes({node}));
    for (int operand = 0; operand < 3; ++operand) all.push_back(graph.without_node(node, operand));
  }
  for (int output = 0; output < graph.num_outputs(); ++output) all.push_back(graph.with_output(output));
  for (const int64_t dim : graph.dims()) all.push_back(graph.with_dimension(dim, 1));
  for (int detail = 0; detail < graph.num_details(); ++detail) all.push_back(graph.with_plain_detail(detail));
  all.push_back(graph.tidied());
  std::vector<EditableGraph> edits;
  for (const auto& edit : all) {
    if (!edit) continue;
    EXPECT_EQ(verify(edit->graph()), std::vector<std::string>());
    const std::string text = print(edit->graph());
    EXPECT_EQ(print(parse_graph(text, standard_ops(), "edit")), text);
    edits.push_back(*edit);
  }
  return edits;
}

TEST(EditableGraph, EditsOfRandomGraphsVerify) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    EXPECT_FALSE(edits_of(EditableGraph(random_graph(seed, 8))).empty());
    EXPECT_FALSE(edits_of(EditableGraph(random_control_flow(seed))).empty());
  }
}

// Whether some edit of the graph has this text behind its head.
testing::AssertionResult has_edit(const char* text, const std::string& wanted) {
  std::string seen;
  for (const EditableGraph& edit : edits_of(EditableGraph(parse_graph(text, standard_ops(), "test")))) {
    const std::string found = print(edit.graph());
    if (found == wanted) return testing::AssertionSuccess();
    seen += found;
  }
  return testing::AssertionFailure() << "none of\n" << seen;
}

TEST(EditableGraph, ABranchTakesThePlaceOfItsNode) {
  EXPECT_TRUE(has_edit(R"(graph @main(%c: bool[], %x: f32[4]) -> (%y: f32[4]) {
  %y = if(%c, %x) ({
    graph @then(%a: f32[4]) -> (%b: f32[4]) {
      %b = exp(%a) : f32[4]
    }
    graph @else(%a: f32[4]) -> (%b: f32[4]) {
      %b = neg(%a) : f32[4]
    }
  }) : f32[4]
}
)",
                       "graph @main(%x: f32[4]) -> (%y: f32[4]) {\n  %y = neg(%x) : f32[4]\n}\n"));
}

TEST(EditableGraph, TheBodyOfALoopBecomesTheGraph) {
  EXPECT_TRUE(has_edit(R"(graph @main(%n: i64[], %x: f32[4]) -> (%y: f32[4]) {
  %y = loop(%n, %x) {counted = true, max_trip = [3], num_carried = 1} ({
    graph @body(%i: i64[], %c: f32[4]) -> (%d: f32[4]) {
      %d = exp(%c) : f32[4]
    }
  }) : f32[4]
}
)",
                       "graph @main(%c: f32[4]) -> (%d: f32[4]) {\n  %d = exp(%c) : f32[4]\n}\n"));
}

constexpr const char* kCounter =
    R"(graph @main[k in 1..8](%x: f32[k], %n: f32[k] state("count")) -> (%y: f32[k], %m: f32[k] state("count")) {
  %y = exp(%x) : f32[k]
  %m = add(%n, %x) : f32[k]
}
)";

TEST(EditableGraph, AStateBecomesAnInputAndAnOutput) {
  EXPECT_TRUE(has_edit(kCounter, R"(graph @main[k in 1..8](%x: f32[k], %n: f32[k]) -> (%y: f32[k], %m: f32[k]) {
  %y = exp(%x) : f32[k]
  %m = add(%n, %x) : f32[k]
}
)"));
}

TEST(EditableGraph, AStateGoesWithTheNodeThatGivesIt) {
  EXPECT_TRUE(has_edit(kCounter, "graph @main[k in 1..8](%x: f32[k]) -> (%y: f32[k]) {\n  %y = exp(%x) : f32[k]\n}\n"));
  EXPECT_TRUE(has_edit(kCounter,
                       R"(graph @main[k in 1..8](%x: f32[k], %n: f32[k] state("count")) -> (%m: f32[k] state("count")) {
  %m = add(%n, %x) : f32[k]
}
)"));
}

TEST(EditableGraph, ANumberTakesThePlaceOfASymbol) {
  EXPECT_TRUE(has_edit(
      kCounter, R"(graph @main(%x: f32[1], %n: f32[1] state("count")) -> (%y: f32[1], %m: f32[1] state("count")) {
  %y = exp(%x) : f32[1]
  %m = add(%n, %x) : f32[1]
}
)"));
}

}  // namespace
}  // namespace tessera
