// Nodes that cannot be imported: all of them in one message, each with its name and reason; and malformed nodes.
#include "onnx_import_util.h"

namespace tessera {
namespace {

TEST(OnnxNodeErrors, AllUnsupportedNodesAtOnce) {
  OnnxModel model;
  auto& domain = *model.proto.add_opset_import();
  domain.set_domain("com.example");
  domain.set_version(3);
  model.input("x", {1, 1, 40, 40}).output("y").output("z").output("m").output("v");
  model.node("ImageDecoder", {"x"}, {"a"});
  model.node("Relu", {"a"}, {"b"});  // cannot be judged: its operand could not be imported
  model.node("ImageDecoder", {"b"}, {"y"}).clear_name();
  model.node("Twist", {"x"}, {"z"}).set_domain("com.example");
  auto& pool = model.node("MaxPool", {"x"}, {"m", "indices"});
  set_attribute(pool, "kernel_shape", std::vector<int64_t>{34, 34});
  model.output("indices");
  set_attribute(model.node("Relu", {"x"}, {"v"}), "slope", 0.5f);
  expect_import_error(model, "TSR-1040",
                      {"5 nodes cannot be imported:",
                       "ImageDecoder (ai.onnx:17): the operator is not supported\n      2 nodes: Na, ImageDecoder#2",
                       "Twist (com.example:3): the operator is not supported\n      node: Nz",
                       "MaxPool (ai.onnx:17): the indices of maxima among 1156 elements, more than 256\n      node: Nm",
                       "Relu (ai.onnx:17): attribute 'slope' is not supported\n      node: Nv", "'tessera operators'"});
}

TEST(OnnxNodeErrors, MalformedNodesJoinTheList) {
  OnnxModel model;
  model.input("x", {2, 3}).output("y").output("z");
  set_attribute(model.node("Concat", {"x", "x"}, {"y"}), "axis", int64_t{7});
  model.node("ImageDecoder", {"x"}, {"z"});
  expect_import_error(model, "TSR-1040",
                      {"2 nodes cannot be imported", "Concat: axis is 7 for a tensor of rank 2; legal: -2 to 1",
                       "ImageDecoder (ai.onnx:17)"});
}

TEST(OnnxNodeErrors, NodesThatNoOutputNeedsDoNotMatter) {
  OnnxModel model;
  model.input("x", {2}).output("y");
  model.node("Relu", {"x"}, {"y"});
  model.node("ImageDecoder", {"x"}, {"unused"});
  EXPECT_EQ(model.import().outputs.size(), 1u);
}

TEST(OnnxNodeErrors, OpsetsOfOperators) {
  OnnxModel model(8);
  model.input("x", {2}).output("y");
  model.node("Erf", {"x"}, {"y"});
  expect_import_error(model, "TSR-1040", {"Erf (ai.onnx:8): the operator exists from opset 9 on"});
  OnnxModel late(11);
  late.input("x", {1, 1, 2, 2}).output("y");
  late.node("Upsample", {"x"}, {"y"});
  expect_import_error(late, "TSR-1040", {"Upsample (ai.onnx:11): the operator exists up to opset 9"});
  OnnxModel domain;
  domain.input("x", {2}).output("y");
  domain.node("Relu", {"x"}, {"y"}).set_domain("com.example");
  expect_import_error(domain, "TSR-1040", {"does not import an opset of the domain 'com.example'"});
}

TEST(OnnxNodeErrors, OperandsThatMustBeConstant) {
  OnnxModel model;
  model.input("x", {2, 3}).input("shape", {2}, onnx::TensorProto::INT64).output("y");
  model.node("Tile", {"x", "shape"}, {"y"});
  expect_import_error(model, "TSR-1040",
                      {"Tile (ai.onnx:17): 'repeats' (input 1, value 'shape') must be known while compiling, but it "
                       "depends on the model's inputs, and the model declares no fixed shape for output 0 'y', which "
                       "would do"});
}

OnnxModel with_parameter(const char* op, const std::vector<int64_t>& x, int64_t count, const std::vector<int64_t>& y) {
  OnnxModel model(18);
  model.input("x", x).input("p", {count}, onnx::TensorProto::INT64).output("y");
  auto& type = *model.graph().mutable_output(0)->mutable_type()->mutable_tensor_type();
  type.set_elem_type(onnx::TensorProto::FLOAT);
  for (const int64_t dim : y) type.mutable_shape()->add_dim()->set_dim_value(dim);
  model.node(op, {"x", "p"}, {"y"});
  return model;
}

// Declared shapes that no value of the parameter leads to.
TEST(OnnxNodeErrors, DeclaredShapesOfRunTimeParameters) {
  expect_import_error(
      with_parameter("ReduceSum", {3, 4}, 1, {3, 2}), "TSR-1040",
      {"'axes' (input 1, value 'p') has 1 element, and no such axes of the operand lead to the declared "
       "shape [3,2] of 'y'"});
  OnnxModel cube = with_parameter("ReduceSum", std::vector<int64_t>(10, 2), 5, std::vector<int64_t>(5, 2));
  set_attribute(*cube.graph().mutable_node(0), "keepdims", int64_t{0});
  expect_import_error(
      cube, "TSR-1040",
      {"'axes' (input 1, value 'p') must be known while compiling, but it depends on the model's inputs, "
       "and 252 lists of axes lead to the declared shape [2,2,2,2,2] of 'y'"});
  expect_import_error(with_parameter("Expand", {3, 4}, 2, {3, 5}), "TSR-1040",
                      {"no value of 'shape' (input 1, value 'p') expands [3,4] to [3,5], the declared shape of 'y'"});
  expect_import_error(
      with_parameter("Tile", {3, 4}, 2, {3, 6}), "TSR-1040",
      {"'repeats' (input 1, value 'p') depends on the model's inputs, and [3,6] is no multiple of [3,4], "
       "the operand's shape"});
  expect_import_error(with_parameter("Reshape", {3, 4}, 1, {2, 6}), "TSR-1040",
                      {"'shape' (input 1, value 'p') has 1 elements, and the declared shape of 'y' is [2,6]"});
  expect_import_error(with_parameter("Reshape", {3, 4}, 2, {2, 5}), "TSR-1044",
                      {"Reshape: the shape [2,5] for an operand of type f32[3,4]", "a shape of 12 elements"});
  expect_import_error(with_parameter("Pad", {3, 4}, 3, {2, 5}), "TSR-1044",
                      {"Pad: 3 pads for 2 axes of f32[3,4] and the declared shape [2,5]", "two for each axis"});
  OnnxModel unnamed(18);
  unnamed.input("x", {3, 4}).open_input("s", {{1, ""}}).output("y");
  unnamed.graph().mutable_input(1)->mutable_type()->mutable_tensor_type()->set_elem_type(onnx::TensorProto::INT64);
  unnamed.node("Tile", {"x", "s"}, {"y"});
  expect_import_error(unnamed, "TSR-1040",
                      {"'repeats' (input 1, value 's')", "declares no fixed shape for output 0 'y'"});
}

TEST(OnnxNodeErrors, InputCounts) {
  OnnxModel few;
  few.input("x", {1, 1, 4, 4}).output("y");
  few.node("Conv", {"x"}, {"y"});
  expect_import_error(few, "TSR-1041", {"Conv has 1 input", "2 to 3 inputs", "node:  Ny"});
  OnnxModel left_out;
  left_out.input("x", {4}).output("y");
  left_out.node("Add", {"", "x"}, {"y"});
  expect_import_error(left_out, "TSR-1041", {"Add has no input 0"});
}

TEST(OnnxNodeErrors, Attributes) {
  OnnxModel type;
  type.input("x", {2, 3}).output("y");
  set_attribute(type.node("Concat", {"x", "x"}, {"y"}), "axis", "one");
  expect_import_error(type, "TSR-1042", {"attribute 'axis' of Concat is of type STRING", "type INT", "node:  Ny"});
  OnnxModel missing;
  missing.input("x", {2, 3}).output("y");
  missing.node("Concat", {"x", "x"}, {"y"});
  expect_import_error(missing, "TSR-1043", {"Concat has no attribute 'axis'"});
  OnnxModel twice;
  twice.input("x", {2, 3}).output("y");
  set_attribute(twice.node("Transpose", {"x"}, {"y"}), "perm", std::vector<int64_t>{0, 0});
  expect_import_error(twice, "TSR-1044", {"axis 0 is named twice"});
}

TEST(OnnxNodeErrors, Outputs) {
  OnnxModel model;
  model.input("x", {2}).output("y");
  model.node("Relu", {"x"}, {"y", "more"});
  expect_import_error(model, "TSR-1045", {"Relu has no output 'more'", "node:  Ny"});
}

TEST(OnnxNodeErrors, ShapesAndTypes) {
  OnnxModel shapes;
  shapes.input("x", {2, 3}).floats("w", {4, 5}, std::vector<float>(20)).output("y");
  shapes.node("MatMul", {"x", "w"}, {"y"});
  expect_import_error(shapes, "TSR-2024", {"f32[2,3]", "f32[4,5]", "found 3 and 4", "node:  Ny"});
  OnnxModel types;
  types.input("x", {2}).input("k", {2}, onnx::TensorProto::INT64).output("y");
  types.node("Add", {"x", "k"}, {"y"});
  expect_import_error(types, "TSR-2021", {"f32[2]", "i64[2]", "node:  Ny"});
  OnnxModel rank;
  rank.input("x", {2, 3}).floats("w", {1, 1, 1, 1}, {1}).output("y");
  rank.node("Conv", {"x", "w"}, {"y"});
  expect_import_error(rank, "TSR-1044", {"Conv: an operand of type f32[2,3]", "node:  Ny"});
}

TEST(OnnxNodeErrors, SizesThatOverflow) {
  OnnxModel outer;
  outer.input("x", {1 << 30, 1}).input("z", {1, 1 << 30}).output("y");
  outer.node("Add", {"x", "z"}, {"y"});
  expect_import_error(outer, "TSR-1023", {"a result of Add has the shape [1073741824,1073741824]", "node:  Ny"});
  OnnxModel bomb;
  bomb.ints("s", {2}, {int64_t{1} << 32, int64_t{1} << 32}).output("y");
  bomb.node("ConstantOfShape", {"s"}, {"y"});
  expect_import_error(bomb, "TSR-1044", {"ConstantOfShape: the shape [4294967296,4294967296]"});
  OnnxModel range;
  for (const auto& [name, value] : {std::pair("a", INT64_MIN), std::pair("b", INT64_MAX), std::pair("c", int64_t{1})})
    range.ints(name, {}, {value});
  range.output("y");
  range.node("Range", {"a", "b", "c"}, {"y"});
  expect_import_error(range, "TSR-1044", {"more than 2^40 elements"});
}

// Each node doubles its operand: the shape that Reshape asks for would take 2^40 elements to compute.
TEST(OnnxNodeErrors, ConstantsThatGrowAreNotComputed) {
  OnnxModel model;
  model.input("x", {4}).ints("v0", {2}, {2, 2}).output("y");
  for (int i = 0; i < 38; ++i) {
    const std::string from = "v" + std::to_string(i), to = "v" + std::to_string(i + 1);
    set_attribute(model.node("Concat", {from, from}, {to}), "axis", int64_t{0});
  }
  model.node("Reshape", {"x", "v38"}, {"y"});
  expect_import_error(model, "TSR-1040", {"Reshape", "549755813888"});
}

TEST(OnnxNodeErrors, ConstantIndexOutOfRange) {
  OnnxModel model;
  model.input("x", {2, 3}).ints("i", {1}, {5}).output("y");
  model.node("Gather", {"x", "i"}, {"y"});
  expect_import_error(model, "TSR-1044", {"Gather: index 5 for dimension 0 of f32[2,3]", "-2 to 1"});
}

}  // namespace
}  // namespace tessera
