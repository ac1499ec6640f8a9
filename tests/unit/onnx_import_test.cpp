// How models become graphs: names, locations, constants, functions, order.
#include "import/onnx/onnx_import.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>

#include "graph/op_def.h"
#include "import/onnx/operator_table.h"
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

std::vector<Tensor> run(const Graph& graph, const std::vector<Tensor>& inputs) {
  GraphInterpreter interpreter;
  return interpreter.evaluate(graph, inputs);
}

TEST(OnnxImport, NodesInAnyOrder) {
  OnnxModel model;
  model.input("x", {2}).output("y");
  model.node("Neg", {"b"}, {"y"});
  model.node("Exp", {"a"}, {"b"});
  model.node("Abs", {"x"}, {"a"});
  const Graph graph = model.import();
  EXPECT_THAT(op_names(graph), testing::ElementsAre("abs", "exp", "neg"));
  EXPECT_EQ(graph.nodes()[1].loc, "Nb");
}

TEST(OnnxImport, InitializersThatAreAlsoInputsAreConstants) {
  OnnxModel model(8);
  model.proto.set_ir_version(3);
  model.input("x", {2}).input("w", {2}).floats("w", {2}, {3, 4}).output("y");
  model.node("Mul", {"x", "w"}, {"y"});
  const Graph graph = model.import();
  EXPECT_EQ(graph.inputs.size(), 1u);
  EXPECT_TRUE(tensors_agree(run(graph, {floats({2}, {1, 2})})[0], floats({2}, {3, 8})));
}

TEST(OnnxImport, OutputNamesStayEvenWhenValuesAreShared) {
  OnnxModel model;
  model.input("x", {2}).output("same").output("again").output("x2").output("relu");
  model.node("Relu", {"x"}, {"relu"});
  model.node("Identity", {"relu"}, {"same"});
  model.node("Identity", {"relu"}, {"again"});
  model.node("Identity", {"x"}, {"x2"});
  const Graph graph = model.import();
  std::vector<std::string> names;
  for (const ValueId output : graph.outputs) names.push_back(graph.value(output).name);
  EXPECT_THAT(names, testing::ElementsAre("same", "again", "x2", "relu"));
  const auto results = run(graph, {floats({2}, {-1, 2})});
  for (const size_t i : {0u, 1u, 3u}) EXPECT_TRUE(tensors_agree(results[i], floats({2}, {0, 2})));
  EXPECT_TRUE(tensors_agree(results[2], floats({2}, {-1, 2})));
}

TEST(OnnxImport, ConstantOutputs) {
  OnnxModel model;
  model.floats("w", {1}, {5}).output("w");
  const Graph graph = model.import();
  EXPECT_EQ(graph.value(graph.outputs[0]).name, "w");
  EXPECT_TRUE(tensors_agree(run(graph, {})[0], floats({1}, {5})));
}

// A temporary value may not take the name of a model's output that comes later.
TEST(OnnxImport, OutputsNamedLikeOurOperators) {
  OnnxModel model;
  model.input("x", {1, 1, 2, 2}).floats("w", {1, 1, 1, 1}, {1}).floats("b", {1}, {1}).output("conv").output("add");
  model.node("Conv", {"x", "w", "b"}, {"first"});
  model.node("Conv", {"first", "w", "b"}, {"conv"});
  model.node("Exp", {"conv"}, {"add"});
  const Graph graph = model.import();
  EXPECT_EQ(graph.value(graph.outputs[0]).name, "conv");
  EXPECT_EQ(graph.value(graph.outputs[1]).name, "add");
}

// Reshape(x, Concat(Gather(Shape(x)) * 2, [-1])): nothing of the arithmetic stays.
TEST(OnnxImport, ShapeArithmeticBecomesAttributes) {
  OnnxModel model(11);
  model.input("x", {3, 8}).ints("zero", {1}, {0}).ints("two", {1}, {2}).ints("rest", {1}, {-1}).output("y");
  model.node("Shape", {"x"}, {"shape"});
  model.node("Gather", {"shape", "zero"}, {"rows"});
  model.node("Mul", {"rows", "two"}, {"twice"});
  set_attribute(model.node("Concat", {"twice", "rest"}, {"target"}), "axis", int64_t{0});
  model.node("Reshape", {"x", "target"}, {"y"});
  const Graph graph = model.import();
  EXPECT_THAT(op_names(graph), testing::ElementsAre("reshape"));
  EXPECT_EQ(graph.type(graph.outputs[0]).to_string(), "f32[6,4]");
}

TEST(OnnxImport, WeightsAreNotCopied) {
  OnnxModel model;
  model.input("x", {256}).output("y");
  auto& tensor = *model.graph().add_initializer();
  tensor.set_name("w");
  tensor.set_data_type(onnx::TensorProto::FLOAT);
  tensor.add_dims(256);
  tensor.set_raw_data(std::string(1024, '\0'));
  model.node("Add", {"x", "w"}, {"y"});
  const Graph graph = model.import();
  // Borrowed bytes cannot be written to.
  const auto& value = graph.nodes()[0].attrs.get<TensorPtr>("value");
  EXPECT_EQ(const_cast<Tensor&>(*value).mutable_bytes(), nullptr);
}

onnx::FunctionProto& add_function(OnnxModel& model, const std::string& name, const std::vector<std::string>& inputs,
                                  const std::vector<std::string>& outputs) {
  auto& function = *model.proto.add_functions();
  function.set_name(name);
  function.set_domain("local");
  for (const auto& input : inputs) function.add_input(input);
  for (const auto& output : outputs) function.add_output(output);
  function.add_opset_import()->set_version(17);
  auto& own = *function.add_opset_import();
  own.set_domain("local");
  own.set_version(1);
  return function;
}

onnx::NodeProto& add_node(onnx::FunctionProto& function, const std::string& op, const std::vector<std::string>& inputs,
                          const std::vector<std::string>& outputs) {
  auto& node = *function.add_node();
  node.set_op_type(op);
  for (const auto& input : inputs) node.add_input(input);
  for (const auto& output : outputs) node.add_output(output);
  return node;
}

TEST(OnnxImport, FunctionsAreOpened) {
  OnnxModel model;
  auto& domain = *model.proto.add_opset_import();
  domain.set_domain("local");
  domain.set_version(1);
  // scaled(a, b) = LeakyRelu(a * b) with the attribute `slope`, 0.5 unless given; inner values have names of their own.
  auto& function = add_function(model, "scaled", {"a", "b"}, {"c"});
  add_node(function, "Mul", {"a", "b"}, {"t"});
  auto& leaky = add_node(function, "LeakyRelu", {"t"}, {"c"});
  auto& alpha = *leaky.add_attribute();
  alpha.set_name("alpha");
  alpha.set_type(onnx::AttributeProto::FLOAT);
  alpha.set_ref_attr_name("slope");
  auto& fallback = *function.add_attribute_proto();
  fallback.set_name("slope");
  fallback.set_type(onnx::AttributeProto::FLOAT);
  fallback.set_f(0.5f);
  auto& twice = add_function(model, "twice", {"a"}, {"c"});
  for (const auto& [from, to] : {std::pair("a", "t"), std::pair("t", "c")})
    add_node(twice, "scaled", {from, from}, {to}).set_domain("local");

  model.input("x", {2}).input("w", {2}).output("y").output("z");
  model.node("scaled", {"x", "w"}, {"t"}).set_domain("local");
  auto& call = model.node("scaled", {"t", "w"}, {"y"});
  call.set_domain("local");
  set_attribute(call, "slope", 0.25f);
  model.node("twice", {"x"}, {"z"}).set_domain("local");
  const Graph graph = model.import();
  EXPECT_EQ(graph.nodes()[0].loc, "Nt/Mul#0");
  const auto results = run(graph, {floats({2}, {-2, 3}), floats({2}, {1, 2})});
  EXPECT_TRUE(tensors_agree(results[0], floats({2}, {-0.25, 12})));  // -2 -> -1 -> -0.25
  EXPECT_TRUE(tensors_agree(results[1], floats({2}, {16, 81})));
}

TEST(OnnxImport, OptionalOperandsAndResults) {
  OnnxModel model;
  model.input("x", {3}).floats("hi", {}, {1}).output("y");
  model.node("Clip", {"x", "", "hi"}, {"a"});
  model.node("Dropout", {"a", "", ""}, {"y", ""});
  EXPECT_TRUE(tensors_agree(run(model.import(), {floats({3}, {-5, 0.5, 2})})[0], floats({3}, {-5, 0.5, 1})));
}

// docs/operators.md has a row "| name | since to until |" for every operator, and no others.
TEST(OnnxImport, TheDocumentListsTheOperators) {
  std::ifstream file(source_path("docs/operators.md"));
  ASSERT_TRUE(file);
  std::vector<std::string> documented, known;
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("| ") && line.find(" to ") != std::string::npos) {
      const size_t second = line.find(" |", 2);
      documented.push_back(line.substr(2, line.find(" |", second + 2) - 2));
    }
  for (const OperatorImporter& row : operator_importers())
    known.push_back(fmt::format("{} | {} to {}", row.op_type, row.since, row.until));
  EXPECT_THAT(documented, testing::ElementsAreArray(known));
}

}  // namespace
}  // namespace tessera
