// If, Loop, Scan and recurrent operators imported as nodes with regions: what they compute is what the import that
// writes the steps out computes, in the interpreter, behind all passes, and lowered.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <random>

#include "graph/control_flow.h"
#include "graph/parser.h"
#include "graph/printer.h"
#include "graph/verify.h"
#include "graph_passes/pass.h"
#include "interp/graph_interp.h"
#include "interp/program_interp.h"
#include "lower/lower.h"
#include "ops/op_table.h"
#include "program/memory_plan.h"
#include "program/verify.h"
#include "support/onnx_model.h"
#include "support/test_data.h"

namespace tessera {
namespace {

using Dims = std::vector<int64_t>;

std::vector<float> random_floats(std::mt19937& random, int64_t count) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(random() % 257) / 128 - 1);
  return values;
}

Tensor random_input(const TensorType& type, std::mt19937& random) {
  Tensor tensor(type.dtype, type.dims());
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    if (is_float(tensor.dtype())) tensor.set_double(i, static_cast<double>(random() % 257) / 128 - 1);
    else tensor.set_int(i, static_cast<int64_t>(random() % (tensor.dtype() == DType::kBool ? 2 : 5)));
  }
  return tensor;
}

size_t count_nodes(const Graph& graph, OpKind kind) {
  size_t count = 0;
  for (const Node& node : graph.nodes()) {
    count += node.op->kind == kind;
    for (const GraphPtr& region : node.regions) count += count_nodes(*region, kind);
  }
  return count;
}

ImportOptions steps_written_out() {
  ImportOptions options;
  options.loop_nodes = false;
  return options;
}

// `loops`, `ifs`: how many there must be, in regions as well.
void expect_same(const OnnxModel& model, size_t loops, size_t ifs, const std::string& what, int rounds = 3) {
  const Graph written_out = model.import(steps_written_out()), graph = model.import();
  ASSERT_THAT(verify(graph), testing::IsEmpty()) << what;
  EXPECT_EQ(count_nodes(graph, OpKind::kLoop), loops) << what << "\n" << print(graph, {true});
  EXPECT_EQ(count_nodes(graph, OpKind::kIf), ifs) << what << "\n" << print(graph, {true});
  EXPECT_EQ(print(parse_graph(print(graph), standard_ops())), print(graph)) << what;
  GraphInterpreter interpreter;
  Target target;
  target.triple = "x86_64-unknown-linux-gnu";
  target.features = {"avx", "avx2", "fma"};
  const auto compiled = [&](bool unrolled) {
    Graph optimised = graph;
    for (const GraphPass& pass : graph_pipeline())
      if (unrolled || pass.name != "unroll_loops")
        optimised = pass.run(optimised, {standard_ops(), interpreter, target, 3});
    EXPECT_THAT(verify(optimised), testing::IsEmpty()) << what;
    Program program = lower_graph(optimised);
    plan_memory(program);
    EXPECT_THAT(verify(program), testing::IsEmpty()) << what;
    return program;
  };
  const Program looping = compiled(false), unrolled = compiled(true);
  std::mt19937 random(7);
  for (int round = 0; round < rounds; ++round) {
    std::vector<Tensor> inputs;
    for (const ValueId input : graph.inputs) inputs.push_back(random_input(graph.type(input), random));
    const std::vector<Tensor> want = interpreter.evaluate(written_out, inputs),
                              found = interpreter.evaluate(graph, inputs), in_loops = interpret(looping, inputs),
                              in_line = interpret(unrolled, inputs);
    ASSERT_EQ(found.size(), graph.outputs.size());
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_TRUE(tensors_agree(found[i], want[i])) << what << ", output " << i;
      EXPECT_TRUE(tensors_agree(in_loops[i], want[i])) << what << ", output " << i << " of the program";
      EXPECT_TRUE(tensors_agree(in_line[i], want[i])) << what << ", output " << i << " with short loops written out";
    }
  }
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

// ---- LSTM, GRU, RNN ----

struct Recurrent {
  std::string op, direction;
  int64_t gates = 1, time = 5, batch = 3, width = 4, hidden = 3;
  bool bias = true, lengths = false, states = false, peepholes = false, weights_are_inputs = false, batch_first = false;
  bool flag = false;  // linear_before_reset, input_forget
  float clip = 0;
  std::vector<std::string> activations = {};
};

OnnxModel model_of(const Recurrent& r) {
  std::mt19937 random(3);
  OnnxModel model;
  const int64_t directions = r.direction == "bidirectional" ? 2 : 1, rows = r.gates * r.hidden;
  model.input("x", r.batch_first ? Dims{r.batch, r.time, r.width} : Dims{r.time, r.batch, r.width});
  const auto weight = [&](const std::string& name, const Dims& dims) {
    int64_t count = 1;
    for (const int64_t dim : dims) count *= dim;
    if (r.weights_are_inputs) model.input(name, dims);
    else model.floats(name, dims, random_floats(random, count));
    return name;
  };
  std::vector<std::string> inputs = {"x", weight("w", {directions, rows, r.width}),
                                     weight("r", {directions, rows, r.hidden})};
  inputs.push_back(r.bias ? weight("b", {directions, 2 * rows}) : "");
  if (r.lengths) model.input("lengths", {r.batch}, onnx::TensorProto::INT32);
  inputs.emplace_back(r.lengths ? "lengths" : "");
  const Dims state = r.batch_first ? Dims{r.batch, directions, r.hidden} : Dims{directions, r.batch, r.hidden};
  if (r.states) model.input("h", state);
  inputs.emplace_back(r.states ? "h" : "");
  std::vector<std::string> outputs = {"y", "y_h"};
  if (r.op == "LSTM") {
    if (r.states) model.input("c", state);
    inputs.emplace_back(r.states ? "c" : "");
    inputs.push_back(r.peepholes ? weight("p", {directions, 3 * r.hidden}) : "");
    outputs.emplace_back("y_c");
  }
  onnx::NodeProto& node = model.node(r.op, inputs, outputs);
  set_attribute(node, "hidden_size", r.hidden);
  set_attribute(node, "direction", r.direction);
  if (r.batch_first) set_attribute(node, "layout", int64_t{1});
  if (r.clip > 0) set_attribute(node, "clip", r.clip);
  if (r.flag) set_attribute(node, r.op == "GRU" ? "linear_before_reset" : "input_forget", int64_t{1});
  if (!r.activations.empty()) {
    onnx::AttributeProto& attribute = *node.add_attribute();
    attribute.set_name("activations");
    attribute.set_type(onnx::AttributeProto::STRINGS);
    for (int64_t d = 0; d < directions; ++d)
      for (const std::string& name : r.activations) attribute.add_strings(name);
  }
  for (const std::string& name : outputs) model.output(name);
  return model;
}

TEST(OnnxRegions, RecurrentOperators) {
  const std::vector<std::string> directions = {"forward", "reverse", "bidirectional"};
  for (const auto& [op, gates] : {std::pair("LSTM", 4), std::pair("GRU", 3), std::pair("RNN", 1)}) {
    for (unsigned bits = 0; bits < 24; ++bits) {
      Recurrent r{op, directions[bits % 3], gates};
      r.lengths = (bits & 1) != 0;
      r.states = (bits & 2) != 0;
      r.batch_first = (bits & 4) != 0;
      r.weights_are_inputs = bits % 5 == 4;
      r.peepholes = bits % 4 == 2;
      r.flag = gates > 1 && bits % 7 > 3;
      r.bias = bits % 6 != 5;
      r.clip = bits % 8 == 3 ? 0.25F : 0;
      r.batch = 1 + bits % 3;
      r.time = 2 + bits % 5;
      if (bits % 9 == 8)
        r.activations = gates == 4   ? std::vector<std::string>{"HardSigmoid", "Relu", "Tanh"}
                        : gates == 3 ? std::vector<std::string>{"HardSigmoid", "Softsign"}
                                     : std::vector<std::string>{"Relu"};
      expect_same(model_of(r), r.direction == "bidirectional" ? 2 : 1, 0, fmt::format("{} {}", op, bits), 2);
    }
  }
}

TEST(OnnxRegions, OneStepNeedsNoLoopAndManyHaveNoLimit) {
  Recurrent r{"LSTM", "forward", 4};
  r.time = 1;
  expect_same(model_of(r), 0, 0, "one step");
  r.time = 3000;
  r.batch = 1;
  const Graph graph = model_of(r).import();
  EXPECT_LT(graph.nodes().size(), 40U);
  EXPECT_THROW(model_of(r).import(steps_written_out()), UserError);
}

// ---- Scan ----

TEST(OnnxRegions, ScanAlongAnyAxisInBothDirections) {
  for (unsigned bits = 0; bits < 16; ++bits) {
    // s' = tanh(s + a + k), y = s' * b, z = reduce(a)
    OnnxModel model;
    const bool last = (bits & 1) != 0;
    model.input("s", {3}).input("a", {4, 3}).input("b", last ? Dims{3, 4} : Dims{4, 3}).input("k", {3});
    onnx::NodeProto& node = model.node("Scan", {"s", "a", "b"}, {"t", "y", "z"});
    set_attribute(node, "num_scan_inputs", int64_t{2});
    set_attribute(node, "scan_input_axes", Dims{0, last ? 1 : 0});
    set_attribute(node, "scan_input_directions", Dims{(bits & 2) != 0, (bits & 4) != 0});
    set_attribute(node, "scan_output_directions", Dims{(bits & 8) != 0, 0});
    set_attribute(node, "scan_output_axes", Dims{last ? -1 : 0, 0});
    onnx::GraphProto& body = subgraph(node, "body");
    add(body, "Add", {"old", "row"}, {"sum"});
    add(body, "Add", {"sum", "k"}, {"more"});
    add(body, "Tanh", {"more"}, {"new"});
    add(body, "Mul", {"new", "column"}, {"part"});
    add(body, "ReduceMax", {"row"}, {"most"});
    names(body, {"old", "row", "column"}, {"new", "part", "most"});
    model.output("t").output("y").output("z");
    expect_same(model, 1, 0, fmt::format("scan {}", bits));
  }
}

// ---- Loop ----

// x is multiplied by `by` and y takes x's old value, `trips` times; p collects the products.
OnnxModel counted_loop(bool trips_known, bool collects) {
  OnnxModel model;
  model.input("x", {2}).input("y", {2}).floats("by", {2}, {0.5, -2});
  if (trips_known) model.ints("trips", {}, {4});
  else model.input("trips", {}, onnx::TensorProto::INT64);
  std::vector<std::string> outputs = {"u", "v"};
  if (collects) outputs.emplace_back("p");
  onnx::NodeProto& node = model.node("Loop", {"trips", "", "x", "y"}, outputs);
  onnx::GraphProto& body = subgraph(node, "body");
  add(body, "Mul", {"a", "by"}, {"product"});
  add(body, "Cast", {"i"}, {"number"});
  set_attribute(*body.mutable_node(1), "to", static_cast<int64_t>(onnx::TensorProto::FLOAT));
  add(body, "Add", {"product", "number"}, {"next"});
  add(body, "Identity", {"go"}, {"still"});
  names(body, {"i", "go", "a", "b"}, {"still", "next", "a"});
  if (collects) body.add_output()->set_name("product");
  for (const std::string& name : outputs) model.output(name);
  return model;
}

TEST(OnnxRegions, CountedLoops) {
  expect_same(counted_loop(true, false), 1, 0, "known");
  expect_same(counted_loop(true, true), 1, 0, "known, collecting");
}

TEST(OnnxRegions, ALoopWhoseCountARunDecides) {
  const Graph graph = counted_loop(false, false).import();
  ASSERT_EQ(count_nodes(graph, OpKind::kLoop), 1U);
  for (int64_t trips = -1; trips < 5; ++trips) {
    Tensor count(DType::kI64, {}), x(DType::kF32, {2}), y(DType::kF32, {2});
    count.set_int(0, trips);
    x.set_double(0, 3);
    double want = 3;
    for (int64_t i = 0; i < trips; ++i) want = want * 0.5 + static_cast<double>(i);
    EXPECT_EQ(GraphInterpreter().evaluate(graph, {x, y, count})[0].get_double(0), want) << trips;
    EXPECT_EQ(interpret(lower_graph(graph), {x, y, count})[0].get_double(0), want) << trips;
  }
}

// While sum(x) < limit: x + step, in a loop that an outer loop runs three times; an If chooses the step.
TEST(OnnxRegions, LoopsAndIfsInOneAnother) {
  OnnxModel model;
  model.input("x", {3}).input("c", {}, onnx::TensorProto::BOOL).ints("three", {}, {3}).floats("limit", {}, {9});
  model.floats("tenth", {3}, {0.5, 0.25, 0.75}).floats("half", {3}, {1, 2, 1});
  onnx::NodeProto& node = model.node("Loop", {"three", "", "x"}, {"y", "all"});
  onnx::GraphProto& outer = subgraph(node, "body");
  add(outer, "ReduceSum", {"a"}, {"total"});
  set_attribute(*outer.mutable_node(0), "keepdims", int64_t{0});
  add(outer, "Less", {"total", "limit"}, {"below"});
  onnx::NodeProto& inner_node = add(outer, "Loop", {"", "below", "a"}, {"grown"});
  onnx::GraphProto& inner = subgraph(inner_node, "body");
  onnx::NodeProto& choose = add(inner, "If", {"c"}, {"step"});
  names(subgraph(choose, "then_branch"), {}, {"half"});
  onnx::GraphProto& otherwise = subgraph(choose, "else_branch");
  add(otherwise, "Add", {"tenth", "half"}, {"both"});
  names(otherwise, {}, {"both"});
  add(inner, "Add", {"e", "step"}, {"more"});
  add(inner, "ReduceSum", {"more"}, {"inner_total"});
  set_attribute(*inner.mutable_node(2), "keepdims", int64_t{0});
  add(inner, "Less", {"inner_total", "limit"}, {"on"});
  names(inner, {"j", "inner_go", "e"}, {"on", "more"});
  add(outer, "Neg", {"grown"}, {"turned"});
  add(outer, "Identity", {"go"}, {"still"});
  names(outer, {"i", "go", "a"}, {"still", "turned", "grown"});
  model.output("y").output("all");
  const Graph graph = model.import();
  ASSERT_EQ(count_nodes(graph, OpKind::kLoop), 2U);
  ASSERT_EQ(count_nodes(graph, OpKind::kIf), 1U);
  for (const bool chosen : {false, true}) {
    std::vector<double> x = {1, 0, -2}, all;
    for (int round = 0; round < 3; ++round) {
      while (x[0] + x[1] + x[2] < 9) {
        const std::vector<double> step = chosen ? std::vector<double>{1, 2, 1} : std::vector<double>{1.5, 2.25, 1.75};
        for (size_t k = 0; k < 3; ++k) x[k] += step[k];
      }
      all.insert(all.end(), x.begin(), x.end());
      for (double& value : x) value = -value;
    }
    Tensor input(DType::kF32, {3}), c(DType::kBool, {});
    for (int64_t k = 0; k < 3; ++k) input.set_double(k, std::vector<double>{1, 0, -2}[static_cast<size_t>(k)]);
    c.set_int(0, chosen);
    Program program = lower_graph(graph);
    ASSERT_THAT(verify(program), testing::IsEmpty());
    plan_memory(program);
    for (const auto& found : {GraphInterpreter().evaluate(graph, {input, c}), interpret(program, {input, c})}) {
      for (int64_t k = 0; k < 3; ++k) EXPECT_EQ(found[0].get_double(k), x[static_cast<size_t>(k)]);
      for (int64_t k = 0; k < 9; ++k) EXPECT_EQ(found[1].get_double(k), all[static_cast<size_t>(k)]);
    }
  }
}

TEST(OnnxRegions, WhatRegionsCannotSayIsImportedAsBefore) {
  // A carried value that grows: its steps are written out.
  OnnxModel model;
  model.input("x", {2}).ints("trips", {}, {3});
  onnx::NodeProto& node = model.node("Loop", {"trips", "", "x"}, {"y"});
  onnx::GraphProto& body = subgraph(node, "body");
  onnx::NodeProto& concat = add(body, "Concat", {"a", "a"}, {"twice"});
  set_attribute(concat, "axis", int64_t{0});
  add(body, "Identity", {"go"}, {"still"});
  names(body, {"i", "go", "a"}, {"still", "twice"});
  model.output("y");
  expect_same(model, 0, 0, "a value that grows");
}

// ---- If ----

TEST(OnnxRegions, IfPassesWhatItsBranchesReadAsOperands) {
  OnnxModel model;
  model.input("c", {1}, onnx::TensorProto::BOOL).input("x", {2, 3}).input("k", {3}).floats("two", {}, {2});
  model.node("Exp", {"x"}, {"e"});
  onnx::NodeProto& node = model.node("If", {"c"}, {"y", "z"});
  onnx::GraphProto& yes = subgraph(node, "then_branch");
  add(yes, "Mul", {"e", "two"}, {"r"});
  names(yes, {}, {"r", "x"});
  onnx::GraphProto& no = subgraph(node, "else_branch");
  add(no, "Add", {"x", "k"}, {"r"});
  add(no, "Sub", {"e", "r"}, {"s"});
  names(no, {}, {"r", "s"});
  model.output("y").output("z");
  expect_same(model, 0, 1, "if", 6);
}

// A sum over axis 0 or 1 of `x`, whichever `p` says, whose declared shape [3] admits axis 1 alone.
void add_checked_sum(onnx::GraphProto& graph, const std::string& x, const std::string& axis, const std::string& sum) {
  onnx::NodeProto& node = add(graph, "ReduceSum", {x, axis}, {sum});
  set_attribute(node, "keepdims", int64_t{0});
  onnx::ValueInfoProto& info = *graph.add_value_info();
  info.set_name(sum);
  onnx::TypeProto_Tensor& type = *info.mutable_type()->mutable_tensor_type();
  type.set_elem_type(onnx::TensorProto::FLOAT);
  type.mutable_shape()->add_dim()->set_dim_value(3);
}

OnnxModel checked_model() {
  OnnxModel model(18);
  model.input("x", {3, 4}).input("s", {3}).input("p", {1}, onnx::TensorProto::INT64);
  return model;
}

// What the graph, and the program of it, make of an axis: whether all checks hold.
void expect_checks(const Graph& graph, bool hold, const std::vector<Tensor>& inputs, const std::string& what) {
  ASSERT_THAT(verify(graph), testing::IsEmpty()) << what;
  ASSERT_EQ(graph.checks.size(), 1U) << what;
  EXPECT_THAT(graph.checks[0].what, testing::HasSubstr("'axes'")) << what;
  Program program = lower_graph(graph);
  plan_memory(program);
  for (const auto& found : {GraphInterpreter().evaluate(graph, inputs), interpret(program, inputs)}) {
    EXPECT_EQ(found.back().get_int(0) != 0, hold) << what;
    if (!hold) EXPECT_EQ(found.back().get_int(1), 0) << what;
  }
}

std::vector<Tensor> checked_inputs(int64_t axis) {
  Tensor x(DType::kF32, {3, 4}), s(DType::kF32, {3}), p(DType::kI64, {1});
  p.set_int(0, axis);
  return {x, s, p};
}

TEST(OnnxRegions, ChecksOfABranchCountWhenItIsTaken) {
  OnnxModel model = checked_model();
  model.input("c", {}, onnx::TensorProto::BOOL).output("y");
  onnx::NodeProto& node = model.node("If", {"c"}, {"y"});
  onnx::GraphProto& yes = subgraph(node, "then_branch");
  add_checked_sum(yes, "x", "p", "sum");
  names(yes, {}, {"sum"});
  onnx::GraphProto& no = subgraph(node, "else_branch");
  add(no, "Neg", {"s"}, {"turned"});
  names(no, {}, {"turned"});
  const Graph graph = model.import();
  EXPECT_EQ(count_nodes(graph, OpKind::kIf), 1U);
  for (const bool taken : {false, true})
    for (const int64_t axis : {0, 1}) {
      std::vector<Tensor> inputs = checked_inputs(axis);
      inputs.emplace_back(DType::kBool, Dims{}).set_int(0, taken);
      expect_checks(graph, !taken || axis == 1, inputs, fmt::format("{} {}", taken, axis));
    }
}

// The axis is p - 1 for a while, then p: a loop says what was wrong first.
TEST(OnnxRegions, ChecksInALoopHoldInEveryIteration) {
  for (const bool scan : {false, true}) {
    OnnxModel model = checked_model();
    model.floats("first", {3}, {0, 0, 0}).ints("trips", {}, {3}).ints("one", {1}, {1}).ints("late", {3, 1}, {1, 1, 0});
    onnx::NodeProto& node = scan ? model.node("Scan", {"s", "late"}, {"y", "all"})
                                 : model.node("Loop", {"trips", "", "s", "one"}, {"y", "last"});
    onnx::GraphProto& body = subgraph(node, "body");
    if (scan) {
      set_attribute(node, "num_scan_inputs", int64_t{1});
      add(body, "Mul", {"p", "l"}, {"axis"});
      add_checked_sum(body, "x", "axis", "sum");
      add(body, "Add", {"a", "sum"}, {"more"});
      names(body, {"a", "l"}, {"more", "sum"});
      model.output("y").output("all");
    } else {
      // one, then p, then p
      add_checked_sum(body, "x", "axis", "sum");
      add(body, "Add", {"a", "sum"}, {"more"});
      add(body, "Identity", {"go"}, {"still"});
      names(body, {"i", "go", "a", "axis"}, {"still", "more", "p"});
      model.output("y").output("last");
    }
    const Graph graph = model.import();
    EXPECT_EQ(count_nodes(graph, OpKind::kLoop), 1U);
    for (const int64_t axis : {0, 1})
      expect_checks(graph, !scan && axis == 1, checked_inputs(axis), fmt::format("scan {} axis {}", scan, axis));
  }
}

TEST(OnnxRegions, AnIfGivesSequencesOfTensorsThatAreKnown) {
  OnnxModel model;
  model.input("c", {}, onnx::TensorProto::BOOL).input("x", {3}).input("k", {3}).ints("one", {}, {1});
  onnx::NodeProto& node = model.node("If", {"c"}, {"list"});
  onnx::GraphProto& yes = subgraph(node, "then_branch");
  add(yes, "Exp", {"x"}, {"e"});
  add(yes, "SequenceConstruct", {"e", "k"}, {"pair"});
  names(yes, {}, {"pair"});
  onnx::GraphProto& no = subgraph(node, "else_branch");
  add(no, "Mul", {"x", "k"}, {"product"});
  add(no, "SequenceConstruct", {"k", "product"}, {"pair"});
  names(no, {}, {"pair"});
  model.node("SequenceAt", {"list", "one"}, {"y"});
  model.output("y");
  expect_same(model, 0, 1, "sequences", 6);
  for (const bool taken : {false, true}) {
    Tensor c(DType::kBool, {}), x(DType::kF32, {3}), k(DType::kF32, {3});
    c.set_int(0, taken);
    x.set_double(2, 5), k.set_double(2, 3);
    EXPECT_EQ(GraphInterpreter().evaluate(model.import(), {c, x, k})[0].get_double(2), taken ? 3 : 15);
  }
}

}  // namespace
}  // namespace tessera
