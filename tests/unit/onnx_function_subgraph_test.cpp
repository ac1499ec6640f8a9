// Subgraphs in model-local functions, and calls of functions in subgraphs: names, attributes and opsets.
#include <gmock/gmock.h>

#include "graph/verify.h"
#include "interp/graph_interp.h"
#include "support/error.h"
#include "support/onnx_model.h"
#include "support/test_data.h"

namespace tessera {
namespace {

using testing::HasSubstr;

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

template <typename NodeList>
onnx::NodeProto& add(NodeList& list, const std::string& op, const std::vector<std::string>& inputs,
                     const std::vector<std::string>& outputs, const std::string& domain = "") {
  onnx::NodeProto& node = *list.add_node();
  node.set_op_type(op);
  node.set_domain(domain);
  for (const std::string& name : inputs) node.add_input(name);
  for (const std::string& name : outputs) node.add_output(name);
  return node;
}

onnx::GraphProto& subgraph(onnx::NodeProto& node, const std::string& name) {
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::GRAPH);
  return *attribute.mutable_g();
}

onnx::FunctionProto& add_function(OnnxModel& model, const std::string& name, const std::vector<std::string>& inputs,
                                  const std::vector<std::string>& outputs, int64_t opset = 17) {
  onnx::FunctionProto& function = *model.proto.add_functions();
  function.set_name(name);
  function.set_domain("local");
  for (const std::string& input : inputs) function.add_input(input);
  for (const std::string& output : outputs) function.add_output(output);
  function.add_opset_import()->set_version(opset);
  onnx::OperatorSetIdProto& own = *function.add_opset_import();
  own.set_domain("local");
  own.set_version(1);
  return function;
}

OnnxModel with_local_domain() {
  OnnxModel model;
  onnx::OperatorSetIdProto& domain = *model.proto.add_opset_import();
  domain.set_domain("local");
  domain.set_version(1);
  return model;
}

void refer(onnx::NodeProto& node, const std::string& name, const std::string& of_function) {
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::FLOAT);
  attribute.set_ref_attr_name(of_function);
}

void set_float(onnx::NodeProto& node, const std::string& name, float value) {
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::FLOAT);
  attribute.set_f(value);
}

// choose(c, a) = c ? LeakyRelu(t, slope) : w + t with t = a * 2, where the branches take t from the function around
// them; both call their result like the output of the If, as exporters do.
void add_choose(OnnxModel& model) {
  onnx::FunctionProto& choose = add_function(model, "choose", {"c", "a"}, {"r"});
  choose.add_attribute("slope");
  add(choose, "Add", {"a", "a"}, {"t"});
  onnx::NodeProto& node = add(choose, "If", {"c"}, {"r"});
  onnx::GraphProto& yes = subgraph(node, "then_branch");
  refer(add(yes, "LeakyRelu", {"t"}, {"r"}), "alpha", "slope");
  yes.add_output()->set_name("r");
  onnx::GraphProto& no = subgraph(node, "else_branch");
  onnx::TensorProto& w = *no.add_initializer();
  w.set_name("w");
  w.set_data_type(onnx::TensorProto::FLOAT);
  w.add_dims(1);
  w.add_float_data(100);
  add(no, "Add", {"w", "t"}, {"inner"});
  add(no, "Identity", {"inner"}, {"r"});
  no.add_output()->set_name("r");
}

TEST(OnnxFunctionSubgraphs, BranchesSeeTheFunctionAroundThem) {
  OnnxModel model = with_local_domain();
  add_choose(model);
  // The caller uses the function's names for other things, and calls it twice.
  model.input("c", {}, onnx::TensorProto::BOOL).input("t", {2}).output("y").output("z");
  model.node("Neg", {"t"}, {"w"});
  for (const auto& [from, to, slope] : {std::tuple("t", "y", 0.5f), std::tuple("w", "z", 0.25f)}) {
    onnx::NodeProto& call = model.node("choose", {"c", from}, {to});
    call.set_domain("local");
    set_float(call, "slope", slope);
  }
  const Graph graph = model.import();
  const auto yes = run(graph, {boolean(true), floats({2}, {1, -2})});
  EXPECT_TRUE(tensors_agree(yes[0], floats({2}, {2, -2})));
  EXPECT_TRUE(tensors_agree(yes[1], floats({2}, {-0.5, 4})));
  const auto no = run(graph, {boolean(false), floats({2}, {1, -2})});
  EXPECT_TRUE(tensors_agree(no[0], floats({2}, {102, 96})));
  EXPECT_TRUE(tensors_agree(no[1], floats({2}, {98, 104})));
}

TEST(OnnxFunctionSubgraphs, CallsInSubgraphsAreOpened) {
  OnnxModel model = with_local_domain();
  add_choose(model);
  onnx::FunctionProto& twice = add_function(model, "twice", {"c", "a"}, {"b"});
  for (const auto& [from, to] : {std::pair("a", "t"), std::pair("t", "b")})
    set_float(add(twice, "choose", {"c", from}, {to}, "local"), "slope", 0.5f);
  // A branch of the main graph calls a function that calls another, which has branches of its own.
  model.input("c", {}, onnx::TensorProto::BOOL).input("x", {2}).output("y");
  onnx::NodeProto& node = model.node("If", {"c"}, {"y"});
  onnx::GraphProto& yes = subgraph(node, "then_branch");
  add(yes, "twice", {"c", "x"}, {"t"}, "local");
  add(yes, "Neg", {"t"}, {"r"});
  yes.add_output()->set_name("r");
  onnx::GraphProto& no = subgraph(node, "else_branch");
  add(no, "twice", {"c", "x"}, {"r"}, "local");
  no.add_output()->set_name("r");
  const Graph graph = model.import();
  EXPECT_TRUE(tensors_agree(run(graph, {boolean(true), floats({2}, {1, -2})})[0], floats({2}, {-4, 2})));
  EXPECT_TRUE(tensors_agree(run(graph, {boolean(false), floats({2}, {1, -2})})[0], floats({2}, {304, 292})));
}

TEST(OnnxFunctionSubgraphs, LoopBodiesInFunctions) {
  OnnxModel model = with_local_domain();
  // powers(a, n) = a * 3^4: the body multiplies by a value of the function.
  onnx::FunctionProto& powers = add_function(model, "powers", {"a", "n"}, {"b"});
  add(powers, "Add", {"one", "one"}, {"two"});
  onnx::NodeProto& constant = *powers.mutable_node()->Add();
  constant.set_op_type("Constant");
  constant.add_output("one");
  set_float(constant, "value_float", 1);
  add(powers, "Add", {"two", "one"}, {"three"});
  onnx::NodeProto& loop = add(powers, "Loop", {"n", "", "a"}, {"b"});
  onnx::GraphProto& body = subgraph(loop, "body");
  for (const char* name : {"i", "go", "v"}) body.add_input()->set_name(name);
  add(body, "Identity", {"go"}, {"still"});
  add(body, "Mul", {"v", "three"}, {"next"});
  for (const char* name : {"still", "next"}) body.add_output()->set_name(name);
  model.input("x", {2}).ints("n", {}, {4}).output("y");
  model.node("powers", {"x", "n"}, {"y"}).set_domain("local");
  EXPECT_TRUE(tensors_agree(run(model.import(), {floats({2}, {1, -2})})[0], floats({2}, {81, -162})));
}

TEST(OnnxFunctionSubgraphs, FaultsAreNamed) {
  // A call in a subgraph of a function that was written for another opset, of an operator that differs there.
  OnnxModel model = with_local_domain();
  onnx::FunctionProto& old = add_function(model, "old", {"a"}, {"b"}, 13);
  add(old, "Relu", {"a"}, {"b"});
  model.input("c", {}, onnx::TensorProto::BOOL).input("x", {2}).output("y");
  onnx::NodeProto& node = model.node("If", {"c"}, {"y"});
  for (const char* name : {"then_branch", "else_branch"}) {
    onnx::GraphProto& graph = subgraph(node, name);
    add(graph, "old", {"x"}, {"r"}, "local");
    graph.add_output()->set_name("r");
  }
  try {
    model.import();
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_EQ(error.diagnostic().id, "TSR-1052");
    EXPECT_THAT(error.what(), HasSubstr("Relu of opset 13"));
  }
}

}  // namespace
}  // namespace tessera
