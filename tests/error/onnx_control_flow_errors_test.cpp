// What is said about an If that cannot be imported.
#include "onnx_import_util.h"

namespace tessera {
namespace {

onnx::GraphProto& branch(onnx::NodeProto& node, const std::string& name) {
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::GRAPH);
  return *attribute.mutable_g();
}

void add(onnx::GraphProto& graph, const std::string& op, const std::string& input, const std::string& output) {
  onnx::NodeProto& node = *graph.add_node();
  node.set_op_type(op);
  node.set_name("In" + output);
  node.add_input(input);
  node.add_output(output);
}

// y = If(c) Relu(x) else Abs(x); `yes` and `no` are the branches.
struct IfModel {
  OnnxModel model;
  onnx::NodeProto* node;
  onnx::GraphProto *yes, *no;

  explicit IfModel(const std::vector<int64_t>& dims = {}, int dtype = onnx::TensorProto::BOOL) {
    model.input("c", dims, dtype).input("x", {2}).output("y");
    node = &model.node("If", {"c"}, {"y"});
    yes = &branch(*node, "then_branch");
    add(*yes, "Relu", "x", "r");
    yes->add_output()->set_name("r");
    no = &branch(*node, "else_branch");
    add(*no, "Abs", "x", "s");
    no->add_output()->set_name("s");
  }
};

TEST(OnnxIfErrors, Conditions) {
  expect_import_error(IfModel({2}).model, "TSR-1044", {"the condition is bool[2]", "one bool", "node:  Ny"});
  expect_import_error(IfModel({}, onnx::TensorProto::FLOAT).model, "TSR-1044", {"the condition is f32[]", "one bool"});
}

TEST(OnnxIfErrors, Branches) {
  IfModel missing;
  missing.node->mutable_attribute()->RemoveLast();
  expect_import_error(missing.model, "TSR-1043", {"If has no attribute 'else_branch'", "type GRAPH", "node:  Ny"});
  IfModel inputs;
  inputs.no->add_input()->set_name("in");
  expect_import_error(inputs.model, "TSR-1044", {"else_branch has 1 inputs", "none"});
  IfModel few;
  few.yes->clear_output();
  expect_import_error(few.model, "TSR-1044", {"then_branch gives 0 values for 1 outputs"});
  // Other shapes would be a flow; other types are nothing.
  IfModel shapes;
  shapes.model.ints("w", {3}, {1, 2, 3});
  shapes.no->mutable_output(0)->set_name("w");
  expect_import_error(
      shapes.model, "TSR-1040",
      {"the condition depends on the model's inputs, and output 0 is f32[2] in one branch, i64[3] in the "
       "other",
       "node: Ny"});
}

// One branch that contradicts the shapes is an error of the run that takes it; two are one of the model.
TEST(OnnxIfErrors, BothBranchesContradictTheShapes) {
  IfModel both;
  both.model.ints("five", {1}, {5});
  for (onnx::GraphProto* branch : {both.yes, both.no}) {
    branch->mutable_node(0)->set_op_type("Reshape");
    branch->mutable_node(0)->add_input("five");
  }
  expect_import_error(both.model, "TSR-1044", {"the shape [5] for an operand of type f32[2]", "node:  Ins"});
}

TEST(OnnxIfErrors, NodesInBranchesAreNamed) {
  IfModel unsupported;
  unsupported.yes->mutable_node(0)->set_op_type("ImageDecoder");
  unsupported.model.node("Relu", {"y"}, {"z"});
  unsupported.model.output("z");
  expect_import_error(
      unsupported.model, "TSR-1040",
      {"1 node cannot be imported", "ImageDecoder (ai.onnx:17): the operator is not supported", "node: Inr"});
  IfModel unnamed;
  unnamed.yes->mutable_node(0)->set_op_type("ImageDecoder");
  unnamed.yes->mutable_node(0)->clear_name();
  expect_import_error(unnamed.model, "TSR-1040", {"node: Ny/ImageDecoder#0"});
}

TEST(OnnxIfErrors, Names) {
  IfModel unknown;
  unknown.yes->mutable_node(0)->set_input(0, "nothing");
  expect_import_error(unknown.model, "TSR-1010", {"reads the value 'nothing', which nothing defines"});
  IfModel output;
  output.no->mutable_output(0)->set_name("nothing");
  expect_import_error(output.model, "TSR-1010", {"reads the value 'nothing', which nothing defines"});
  IfModel twice;
  twice.yes->mutable_node(0)->set_output(0, "x");
  twice.yes->mutable_output(0)->set_name("x");
  expect_import_error(twice.model, "TSR-1011", {"the value 'x' is defined twice", "node:  Inr"});
  IfModel initializer;
  onnx::TensorProto& tensor = *initializer.yes->add_initializer();
  tensor.set_name("c");
  tensor.set_data_type(onnx::TensorProto::FLOAT);
  tensor.add_float_data(1);
  expect_import_error(initializer.model, "TSR-1011", {"an initializer of a subgraph is called 'c'", "node:  Ny"});
}

TEST(OnnxIfErrors, SubgraphsThatAreNotRead) {
  IfModel sparse;
  sparse.yes->add_sparse_initializer();
  expect_import_error(sparse.model, "TSR-1040", {"sparse initializers in a subgraph", "node: Ny"});
}

}  // namespace
}  // namespace tessera
