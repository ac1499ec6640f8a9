// If: which branch is imported, what its nodes may read, and what happens when the condition is not constant.
#include <gmock/gmock.h>

#include "graph/op_def.h"
#include "graph/verify.h"
#include "interp/graph_interp.h"
#include "support/onnx_model.h"
#include "support/test_data.h"

namespace tessera {
namespace {

std::vector<std::string> op_names(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes())
    names.push_back(node.op->kind == OpKind::kComposite ? node.attrs.get<std::string>("name") : node.op->name);
  return names;
}

Tensor floats(const std::vector<int64_t>& dims, const std::vector<double>& values) {
  Tensor tensor(DType::kF32, dims);
  for (size_t i = 0; i < values.size(); ++i) tensor.set_double(static_cast<int64_t>(i), values[i]);
  return tensor;
}

Tensor boolean(bool value) {
  Tensor tensor(DType::kBool, {});
  tensor.set_int(0, value);
  return tensor;
}

std::vector<Tensor> run(const Graph& graph, const std::vector<Tensor>& inputs) {
  EXPECT_THAT(verify(graph), testing::IsEmpty());
  GraphInterpreter interpreter;
  return interpreter.evaluate(graph, inputs);
}

onnx::GraphProto& branch(onnx::NodeProto& node, const std::string& name) {
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

// y = If(rank(x) == rank) Exp(Abs(x)) else Neg(Abs(x)): |x| is made outside, both branches call their result 'r'.
OnnxModel model_by_rank(int64_t rank) {
  OnnxModel model;
  model.input("x", {2, 3}).ints("rank", {}, {rank}).output("y");
  model.node("Shape", {"x"}, {"dims"});
  model.node("Size", {"dims"}, {"x_rank"});
  model.node("Equal", {"x_rank", "rank"}, {"condition"});
  model.node("Abs", {"x"}, {"a"});
  onnx::NodeProto& node = model.node("If", {"condition"}, {"y"});
  onnx::GraphProto& yes = branch(node, "then_branch");
  add(yes, "Exp", {"a"}, {"r"});
  yes.add_output()->set_name("r");
  onnx::GraphProto& no = branch(node, "else_branch");
  add(no, "Neg", {"a"}, {"r"});
  no.add_output()->set_name("r");
  return model;
}

TEST(OnnxIf, AConditionOnShapesPicksItsBranchWhileImporting) {
  EXPECT_THAT(op_names(model_by_rank(2).import()), testing::ElementsAre("abs", "exp"));
  EXPECT_THAT(op_names(model_by_rank(3).import()), testing::ElementsAre("abs", "neg"));
}

TEST(OnnxIf, TheBranchNotTakenMayHoldWhatIsNotSupported) {
  OnnxModel model = model_by_rank(2);
  auto& otherwise = *model.graph().mutable_node(4)->mutable_attribute(1)->mutable_g()->mutable_node(0);
  otherwise.set_op_type("StringSplit");
  EXPECT_THAT(op_names(model.import()), testing::ElementsAre("abs", "exp"));
}

TEST(OnnxIf, ABranchMayNestAndHaveInitializersAndHandOnAValueFromOutside) {
  OnnxModel model = model_by_rank(2);
  onnx::GraphProto& yes = *model.graph().mutable_node(4)->mutable_attribute(0)->mutable_g();
  yes.clear_node();
  yes.clear_output();
  onnx::TensorProto& two = *yes.add_initializer();
  two.set_name("two");
  two.set_data_type(onnx::TensorProto::FLOAT);
  two.add_float_data(2);
  add(yes, "Mul", {"a", "two"}, {"doubled"});
  onnx::NodeProto& inner = add(yes, "If", {"condition"}, {"r"});
  branch(inner, "then_branch").add_output()->set_name("doubled");
  branch(inner, "else_branch").add_output()->set_name("a");
  yes.add_output()->set_name("r");
  const Graph graph = model.import();
  EXPECT_TRUE(
      tensors_agree(run(graph, {floats({2, 3}, {1, -2, 3, -4, 5, -6})})[0], floats({2, 3}, {2, 4, 6, 8, 10, 12})));
}

// y, z = If(c) x + 1, x else x * 3, 2
OnnxModel model_by_input() {
  OnnxModel model;
  model.input("c", {}, onnx::TensorProto::BOOL).input("x", {2}).floats("one", {}, {1}).floats("three", {}, {3});
  model.floats("twos", {2}, {2, 2}).output("y").output("z");
  onnx::NodeProto& node = model.node("If", {"c"}, {"y", "z"});
  onnx::GraphProto& yes = branch(node, "then_branch");
  add(yes, "Add", {"x", "one"}, {"r"});
  yes.add_output()->set_name("r");
  yes.add_output()->set_name("x");
  onnx::GraphProto& no = branch(node, "else_branch");
  add(no, "Mul", {"x", "three"}, {"r"});
  no.add_output()->set_name("r");
  no.add_output()->set_name("twos");
  return model;
}

TEST(OnnxIf, AConditionThatIsAnInputSelectsBetweenBothBranches) {
  const Graph graph = model_by_input().import();
  const Tensor x = floats({2}, {-1, 5});
  const auto yes = run(graph, {boolean(true), x}), no = run(graph, {boolean(false), x});
  EXPECT_TRUE(tensors_agree(yes[0], floats({2}, {0, 6})));
  EXPECT_TRUE(tensors_agree(yes[1], x));
  EXPECT_TRUE(tensors_agree(no[0], floats({2}, {-3, 15})));
  EXPECT_TRUE(tensors_agree(no[1], floats({2}, {2, 2})));
}

TEST(OnnxIf, AProducerThatOnlyABranchReadsIsKept) {
  OnnxModel model = model_by_input();
  model.node("Exp", {"x"}, {"e"});
  model.graph().mutable_node(0)->mutable_attribute(1)->mutable_g()->mutable_node(0)->set_input(0, "e");
  EXPECT_TRUE(tensors_agree(run(model.import(), {boolean(false), floats({2}, {0, 0})})[0], floats({2}, {3, 3})));
}

}  // namespace
}  // namespace tessera
