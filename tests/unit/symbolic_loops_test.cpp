// Recurrent operators, Scan, Loop and If of models that are read once for all sizes: loops whose number of iterations,
// slices and stacked results are expressions of symbols.
#include <gmock/gmock.h>

#include <algorithm>

#include "graph/bind_symbols.h"
#include "graph/parser.h"
#include "graph/printer.h"
#include "graph/verify.h"
#include "interp/graph_interp.h"
#include "interp/program_interp.h"
#include "lower/lower.h"
#include "ops/op_table.h"
#include "program/memory_plan.h"
#include "program/program.h"
#include "program/verify.h"
#include "support/onnx_model.h"
#include "support/symbolic_import.h"
#include "support/test_data.h"

namespace tessera {
namespace {

size_t count_nodes(const Graph& graph, OpKind kind) {
  size_t count = 0;
  for (const Node& node : graph.nodes()) {
    count += node.op->kind == kind;
    for (const GraphPtr& region : node.regions) count += count_nodes(*region, kind);
  }
  return count;
}

Graph check(const OnnxModel& model, const Ranges& ranges, const std::vector<Sizes>& sizes, size_t loops) {
  const Reader read = [bytes = model.bytes()](const ImportOptions& options) {
    GraphInterpreter evaluator;
    return read_onnx_model_bytes(bytes, options, standard_ops(), evaluator);
  };
  Graph graph = import_once(read, ranges);
  EXPECT_EQ(count_nodes(graph, OpKind::kLoop), loops) << print(graph, {true});
  EXPECT_EQ(print(parse_graph(print(graph), standard_ops())), print(graph));
  for (const Sizes& at : sizes) expect_same(graph, read, at, 1e-5);
  return graph;
}

onnx::GraphProto& subgraph(onnx::NodeProto& node, const std::string& name) {
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::GRAPH);
  return *attribute.mutable_g();
}

onnx::NodeProto& add(onnx::GraphProto& graph, const std::string& op, const std::vector<std::string>& inputs,
                     const std::vector<std::string>& outputs) {
  onnx::NodeProto& node = *graph.add_node();
  node.set_op_type(op);
  for (const std::string& name : inputs) node.add_input(name);
  for (const std::string& name : outputs) node.add_output(name);
  return node;
}

void names(onnx::GraphProto& graph, const std::vector<std::string>& inputs, const std::vector<std::string>& outputs) {
  for (const std::string& name : inputs) graph.add_input()->set_name(name);
  for (const std::string& name : outputs) graph.add_output()->set_name(name);
}

std::vector<float> weights(int64_t count) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(i * 37 % 23) / 23 - 0.5F);
  return values;
}

TEST(SymbolicLoops, RecurrentOperatorsOfOpenLengthAndBatch) {
  for (const std::string direction : {"forward", "reverse", "bidirectional"}) {
    const int64_t directions = direction == "bidirectional" ? 2 : 1;
    OnnxModel model;
    model.open_input("x", {OnnxModel::named("t"), OnnxModel::named("b"), {4, ""}});
    model.open_input("h", {{directions, ""}, OnnxModel::named("b"), {3, ""}});
    model.floats("w", {directions, 12, 4}, weights(48 * directions));
    model.floats("r", {directions, 12, 3}, weights(36 * directions));
    onnx::NodeProto& node = model.node("LSTM", {"x", "w", "r", "", "", "h"}, {"y", "y_h", "y_c"});
    set_attribute(node, "hidden_size", int64_t{3});
    set_attribute(node, "direction", direction);
    model.output("y").output("y_h").output("y_c");
    const Graph graph =
        check(model, {{"t", {1, 9}}, {"b", {1, 4}}}, {{{"t", 2}, {"b", 1}}, {{"t", 9}, {"b", 4}}, {{"t", 5}, {"b", 3}}},
              static_cast<size_t>(directions));
    EXPECT_EQ(graph.type(graph.outputs[0]).to_string(), directions == 2 ? "f32[t,2,b,3]" : "f32[t,1,b,3]");
  }
}

// A Loop that takes as many iterations as a dimension is long: what it collects is as long, and the sizes that the
// graph around it computes are known in its body.
TEST(SymbolicLoops, ALoopOverADimension) {
  OnnxModel model;
  model.open_input("x", {OnnxModel::named("t"), OnnxModel::named("n")});
  model.open_input("s", {OnnxModel::named("n")});
  model.ints("zero", {}, {0}).ints("one", {1}, {1}).ints("first", {1}, {0});
  model.node("Shape", {"x"}, {"sizes"});
  model.node("Gather", {"sizes", "zero"}, {"trips"});
  model.node("Slice", {"sizes", "one", "sizes_end", "first"}, {"width"});
  model.ints("sizes_end", {1}, {2});
  onnx::NodeProto& node = model.node("Loop", {"trips", "", "s"}, {"last", "all"});
  onnx::GraphProto& body = subgraph(node, "body");
  set_attribute(add(body, "Gather", {"x", "i"}, {"row"}), "axis", int64_t{0});
  add(body, "Add", {"a", "row"}, {"sum"});
  add(body, "Reshape", {"sum", "width"}, {"next"});
  add(body, "Identity", {"go"}, {"on"});
  names(body, {"i", "go", "a"}, {"on", "next", "sum"});
  model.output("last").output("all");
  const Graph graph = check(model, {{"t", {1, 6}}, {"n", {1, 5}}},
                            {{{"t", 1}, {"n", 1}}, {{"t", 6}, {"n", 5}}, {{"t", 3}, {"n", 2}}}, 1);
  EXPECT_EQ(graph.type(graph.outputs[1]).to_string(), "f32[t,n]");
}

// The limit of a counted loop is an expression, its count comes with the run: the smaller one counts.
TEST(SymbolicLoops, ACountBesideALimitOfSymbols) {
  const Graph graph = parse_graph(R"(
graph @main[t in 1..8](%x: f32[t], %n: i64[]) -> (%s: f32[], %y: f32[t]) {
  %zero = constant {value = dense<f32[] 0>} : f32[]
  %s, %y = loop(%n, %zero, %x) {counted = true, num_carried = 1, num_scanned = 1, stack_reversed = [1]} ({
    graph @body(%i: i64[], %a: f32[], %e: f32[]) -> (%b: f32[], %b: f32[]) {
      %b = add(%a, %e) : f32[]
    }
  }) : f32[], f32[t]
})",
                                  standard_ops());
  ASSERT_THAT(verify(graph), testing::IsEmpty());
  Program program = lower_graph(graph);
  plan_memory(program);
  ASSERT_THAT(verify(program), testing::IsEmpty());
  const auto limited = std::find_if(program.buffers.begin(), program.buffers.end(),
                                    [](const ProgramBuffer& buffer) { return buffer.name == "n.limited"; });
  EXPECT_NE(limited, program.buffers.end()) << "the index ends with the largest limit, the loop with this one";
  for (int64_t t = 1; t <= 8; t += 3) {
    for (int64_t count = -1; count <= 9; ++count) {
      Tensor x(DType::kF32, {t}), n(DType::kI64, {});
      for (int64_t i = 0; i < t; ++i) x.set_double(i, static_cast<double>(i + 1));
      n.set_int(0, count);
      const std::vector<Tensor> found = GraphInterpreter().evaluate(graph, {x, n});
      const std::vector<Tensor> compiled = interpret(lower_graph(bind_symbols(graph, {{"t", t}})), {x, n});
      const int64_t trips = std::clamp<int64_t>(count, 0, t);
      EXPECT_EQ(found[0].get_double(0), static_cast<double>(trips * (trips + 1) / 2));
      EXPECT_EQ(compiled[0].get_double(0), found[0].get_double(0)) << t << " " << count;
      for (int64_t i = 0; i < t; ++i) {
        EXPECT_EQ(found[1].get_double(t - 1 - i), i < trips ? static_cast<double>((i + 1) * (i + 2) / 2) : 0);
        EXPECT_EQ(compiled[1].get_double(i), found[1].get_double(i)) << t << " " << count;
      }
    }
  }
}

}  // namespace
}  // namespace tessera
