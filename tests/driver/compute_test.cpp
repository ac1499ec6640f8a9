// The operator `compute`: every primitive's body as text gives what the primitive gives, interpreted and compiled.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/engine/compiled_evaluator.h"
#include "graph/bind_symbols.h"
#include "graph/hash.h"
#include "graph/parser.h"
#include "graph/printer.h"
#include "graph/verify.h"
#include "interp/graph_interp.h"
#include "ops/body_text.h"
#include "ops/op_table.h"
#include "support/error.h"
#include "support/test_data.h"
#include "unit/random_graph.h"

namespace tessera {
namespace {

Graph parse(const std::string& text) { return parse_graph(text, standard_ops()); }

// The graph with a `compute` node for each of its nodes that has a body.
Graph as_compute(const Graph& graph, size_t& replaced) {
  Graph result;
  result.copy_header(graph);
  std::vector<ValueId> map(graph.values().size(), -1);
  for (const ValueId input : graph.inputs)
    map[static_cast<size_t>(input)] = result.add_input(graph.value(input).name, graph.type(input));
  GraphBuilder b(result);
  for (const Node& node : graph.nodes()) {
    std::vector<ValueId> operands;
    for (const ValueId input : node.inputs) operands.push_back(map[static_cast<size_t>(input)]);
    const bool has_body = node.op->kind == OpKind::kExpression && node.op->name != "relayout";
    replaced += has_body ? 1 : 0;
    std::vector<std::string> names;
    for (const ValueId output : node.outputs) names.push_back(graph.value(output).name);
    const std::vector<ValueId> results = has_body ? b.add_multi(standard_ops().get("compute"), operands,
                                                                compute_attrs(node_body(graph, node)), {}, names)
                                                  : b.add_multi(*node.op, operands, node.attrs, node.regions, names);
    for (size_t i = 0; i < results.size(); ++i) map[static_cast<size_t>(node.outputs[i])] = results[i];
  }
  for (const ValueId output : graph.outputs) result.outputs.push_back(map[static_cast<size_t>(output)]);
  return result;
}

std::vector<Tensor> some_inputs(const Graph& graph, uint64_t seed) {
  std::vector<Tensor> inputs;
  for (const ValueId id : graph.inputs) {
    const TensorType& type = graph.type(id);
    Tensor tensor(type.dtype, type.dims());
    for (int64_t i = 0; i < tensor.num_elements(); ++i) {
      const uint64_t mixed = (seed + static_cast<uint64_t>(i) + 1) * 0x9E3779B97F4A7C15u >> 40;
      if (is_float(type.dtype)) tensor.set_double(i, static_cast<double>(mixed % 7 + 1) / 8);
      else tensor.set_int(i, static_cast<int64_t>(mixed % (type.dtype == DType::kBool ? 2 : 3)));
    }
    inputs.push_back(std::move(tensor));
  }
  return inputs;
}

void expect_same(Evaluator& got, const Graph& as_text, const Graph& graph, const std::vector<Tensor>& inputs,
                 const std::string& what) {
  const std::vector<Tensor> want = GraphInterpreter().evaluate(graph, inputs), found = got.evaluate(as_text, inputs);
  ASSERT_EQ(found.size(), want.size()) << what;
  for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(tensors_agree(found[i], want[i])) << what << ", output " << i;
}

TEST(Compute, EveryPrimitiveIsOne) {
  CompiledEvaluator compiled({}, 1);
  GraphInterpreter interpreter;
  size_t replaced = 0;
  for (const OpDef* op : standard_ops().all()) {
    if (op->kind != OpKind::kExpression || op->name == "relayout") continue;
    const size_t end = op->example.find("\nrun ");
    const Graph graph = parse(op->example.substr(0, end));
    const Graph as_text = as_compute(graph, replaced);
    EXPECT_THAT(verify(as_text), testing::IsEmpty()) << op->name;
    EXPECT_EQ(structural_hash(parse(print(as_text))), structural_hash(as_text)) << op->name;
    const std::vector<Tensor> inputs = some_inputs(graph, 3);
    expect_same(interpreter, as_text, graph, inputs, op->name + ", interpreted");
    expect_same(compiled, as_text, graph, inputs, op->name + ", compiled");
  }
  EXPECT_GT(replaced, 60u);
}

TEST(Compute, RandomGraphsAreTheSame) {
  CompiledEvaluator compiled({}, 1);
  GraphInterpreter interpreter;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    const Graph graph = random_graph(seed, 8);
    size_t replaced = 0;
    const Graph as_text = as_compute(graph, replaced);
    const std::vector<Tensor> inputs = random_inputs(graph, seed);
    expect_same(interpreter, as_text, graph, inputs, "seed " + std::to_string(seed) + ", interpreted");
    expect_same(compiled, as_text, graph, inputs, "seed " + std::to_string(seed) + ", compiled");
  }
}

// Sizes beside the text follow the symbols wherever they go.
TEST(Compute, HasSymbolicSizes) {
  const Graph graph = parse(R"text(
graph @main[n in 1..64](%x: f32[n,5], %w: f32[5,n]) -> (%y: f32[n,n], %z: f32[n]) {
  %y = compute(%x, %w) {body = "out[i<s0, j<s0] = sum[k<5] (x0[i, k] * x1[k, j])", sizes = [n]}
  %z = compute(%x) {body = "out[i<s0] = select((i + 1) < s0, x0[i + 1, 0], x0[min(max(s0 - 2, 0), s0 - 1), 4])", sizes = [n]}
})text");
  EXPECT_EQ(structural_hash(parse(print(graph))), structural_hash(graph));
  for (const int64_t n : {1, 2, 7, 64}) {
    const Graph bound = bind_symbols(graph, {{"n", n}});
    ASSERT_TRUE(bound.type(bound.outputs[0]).is_static());
    const std::vector<Tensor> inputs = some_inputs(bound, 5);
    const std::vector<Tensor> results = GraphInterpreter().evaluate(bound, inputs);
    for (int64_t i = 0; i < n; ++i) {
      const double want = inputs[0].get_double(i + 1 < n ? (i + 1) * 5 : std::max<int64_t>(n - 2, 0) * 5 + 4);
      EXPECT_EQ(results[1].get_double(i), want) << n << ", " << i;
    }
  }
}

std::string error_of(const std::string& body, const std::string& sizes = "") {
  try {
    parse(
        "graph @main[n in 1..8](%x: f32[4], %i: i64[4], %v: f32[n]) -> (%y: f32[4]) { %y = compute(%x, %i, %v) {body = "
        "\"" +
        body + "\"" + sizes + "} }");
  } catch (const UserError& error) {
    return error.diagnostic().id + ": " + error.diagnostic().message;
  }
  return "ok";
}

TEST(Compute, RefusesWhatIsNoBodyAndWhatMayReadOutside) {
  EXPECT_EQ(error_of("out[i<4] = x0[i]"), "ok");
  EXPECT_EQ(error_of("out[i<4] = x0[min(max(x1[i], 0), 3)]"), "ok");
  EXPECT_EQ(error_of("out[i<4] = select(((0 <= (i - 1)) & ((i - 1) < 4)), x0[i - 1], 0:f32)"), "ok");
  EXPECT_EQ(error_of("out[i<4] = select(x1[i] < 0, 0:f32, select(3 < x1[i], 1:f32, x0[x1[i]]))"), "ok");
  EXPECT_EQ(error_of("out[i<4] = sum[k<s0] x2[k]", ", sizes = [n]"), "ok");
  EXPECT_EQ(error_of("out[i<4] = sum[k<s0] select((k + i) < s0, x2[k + i], 0:f32)", ", sizes = [n]"), "ok");
  EXPECT_EQ(error_of("out[i<4] = x0[i + 1]"), "TSR-2035: operator compute: x0[(i + 1)] may lie outside of its operand");
  EXPECT_EQ(error_of("out[i<4] = x0[x1[i]]"), "TSR-2035: operator compute: x0[x1[i]] may lie outside of its operand");
  EXPECT_EQ(error_of("out[i<4] = select(x1[i] < 4, x0[x1[i]], 0:f32)"),
            "TSR-2035: operator compute: x0[x1[i]] may lie outside of its operand");
  EXPECT_EQ(error_of("out[i<4] = x2[i]"), "TSR-2035: operator compute: x2[i] may lie outside of its operand");
  EXPECT_EQ(error_of("out[i<4] = sum[k<s0] x2[k + 1]", ", sizes = [n]"),
            "TSR-2035: operator compute: x2[(k + 1)] may lie outside of its operand");
  EXPECT_EQ(error_of("out[s1<4] = x0[0]"), "TSR-3140: an axis 's1'");
  EXPECT_EQ(error_of("out[i<4, i<4] = x0[0]"), "TSR-3140: an axis 'i'");
  EXPECT_EQ(error_of("out[i<-1] = x0[0]"), "TSR-3140: the extent -1");
  EXPECT_EQ(error_of("out[i<4] = sum[] x0[i]"), "TSR-3140: a reduction over no axes");
  EXPECT_EQ(error_of("out[i<4] = max[k<2] (x0[k] < 0:f32)"), "TSR-3140: a reduction of bool");
  EXPECT_EQ(error_of("out[i<4] = x0[i] +"), "TSR-3001: expected an expression, found the end of the text");
  EXPECT_EQ(error_of("out[i<4] = x3[i]").substr(0, 8), "TSR-3102");
  EXPECT_EQ(error_of("out[i<4] = x0[i, 0]").substr(0, 8), "TSR-3103");
  EXPECT_EQ(error_of("out[i<4] = x0[i] + x1[i]").substr(0, 8), "TSR-3105");
  EXPECT_EQ(error_of("y[i<4] = x0[i]").substr(0, 8), "TSR-3001");
}

}  // namespace
}  // namespace tessera
