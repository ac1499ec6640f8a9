// What the handlers of single operators say to malformed nodes and to what they cannot import.
#include "onnx_import_util.h"

namespace tessera {
namespace {

using Ints = std::vector<int64_t>;
constexpr auto kI64 = onnx::TensorProto::INT64;

TEST(OnnxOperatorErrors, Scatter) {
  OnnxModel reduction;
  reduction.input("x", {3}).input("i", {1}, kI64).input("u", {1}).output("y");
  auto& scatter = reduction.node("ScatterElements", {"x", "i", "u"}, {"y"});
  set_attribute(scatter, "reduction", "mean");
  expect_import_error(reduction, "TSR-1044",
                      {"ScatterElements: reduction = mean", "none, add, mul, min, max", "node:  Ny"});
  OnnxModel range;
  range.input("x", {3, 2}).ints("i", {1, 1}, {3}).input("u", {1, 2}).output("y");
  range.node("ScatterND", {"x", "i", "u"}, {"y"});
  expect_import_error(range, "TSR-1044", {"ScatterND: index 3 for dimension 0 of f32[3,2]", "-3 to 2"});
  OnnxModel type;
  type.input("x", {3}).input("i", {1, 1}).input("u", {1}).output("y");
  type.node("ScatterND", {"x", "i", "u"}, {"y"});
  expect_import_error(type, "TSR-1044", {"ScatterND: indices of type f32[1,1]", "i32 or i64"});
}

OnnxModel recurrent(const char* op, int64_t gates) {
  OnnxModel model;
  model.input("x", {5, 2, 3}).input("w", {1, gates * 4, 3}).input("r", {1, gates * 4, 4}).output("y");
  model.node(op, {"x", "w", "r"}, {"y"});
  return model;
}

TEST(OnnxOperatorErrors, Recurrent) {
  const auto node = [](OnnxModel& model) -> onnx::NodeProto& { return *model.proto.mutable_graph()->mutable_node(0); };
  OnnxModel direction = recurrent("LSTM", 4);
  set_attribute(node(direction), "direction", "sideways");
  expect_import_error(direction, "TSR-1044", {"LSTM: direction = sideways", "forward, reverse, bidirectional"});
  OnnxModel two = recurrent("GRU", 3);
  set_attribute(node(two), "direction", "bidirectional");
  expect_import_error(two, "TSR-1044",
                      {"GRU: operands of types f32[5,2,3], f32[1,12,3] and f32[1,12,4]", "weights for two directions"});
  OnnxModel hidden = recurrent("RNN", 1);
  set_attribute(node(hidden), "hidden_size", int64_t{7});
  expect_import_error(hidden, "TSR-1044", {"RNN: hidden_size = 7 with weights of type f32[1,4,4]"});
  OnnxModel gates = recurrent("LSTM", 3);
  expect_import_error(gates, "TSR-1044",
                      {"LSTM: input weights of type f32[12,3] for each direction", "the shape [16,3]"});
}

TEST(OnnxOperatorErrors, TopK) {
  OnnxModel many;
  many.input("x", {2, 3}).ints("k", {1}, {4}).output("y").output("i");
  many.node("TopK", {"x", "k"}, {"y", "i"});
  expect_import_error(many, "TSR-1044", {"TopK: k = 4 for dimension 1 of f32[2,3]", "0 to 3"});
  OnnxModel large;
  large.input("x", {40000}).ints("k", {1}, {4}).output("y").output("i");
  large.node("TopK", {"x", "k"}, {"y", "i"});
  expect_import_error(large, "TSR-1040", {"TopK (ai.onnx:17): more than 32768 elements to choose from"});
}

TEST(OnnxOperatorErrors, Einsum) {
  const auto message = [](const char* equation, const std::vector<std::string>& parts) {
    OnnxModel model;
    model.input("a", {2, 3}).input("b", {3, 4}).output("y");
    set_attribute(model.node("Einsum", {"a", "b"}, {"y"}), "equation", equation);
    expect_import_error(model, "TSR-1044", parts);
  };
  message("ijk,jk->i", {"Einsum: equation ijk,jk->i: operand 1 has 2 dimensions"});
  message("ij,jk->iz", {"Einsum: equation ij,jk->iz: a result's label that no operand has"});
  message("ij,jk,kl->il", {"2 operands are given"});
  message("ij,ik->jk", {"a label of two extents"});
}

TEST(OnnxOperatorErrors, Sampling) {
  OnnxModel grid;
  grid.input("x", {1, 2, 4, 4}).input("g", {1, 3, 3, 3}).output("y");
  grid.node("GridSample", {"x", "g"}, {"y"});
  expect_import_error(grid, "TSR-1044", {"GridSample: a grid of type f32[1,3,3,3] for an image of type f32[1,2,4,4]"});
  OnnxModel roi;
  roi.input("x", {1, 2, 4, 4}).input("r", {3, 4}).input("b", {3}, kI64).output("y");
  roi.node("RoiAlign", {"x", "r", "b"}, {"y"});
  expect_import_error(roi, "TSR-1040", {"RoiAlign (ai.onnx:17): sampling_ratio = 0"});
}

TEST(OnnxOperatorErrors, Quantized) {
  OnnxModel model;
  model.input("x", {2, 3}).floats("s", {2}, {1, 2}).output("y");
  model.node("QuantizeLinear", {"x", "s"}, {"y"});
  expect_import_error(model, "TSR-1044",
                      {"QuantizeLinear: a scale or zero point of type f32[2] for an operand of type f32[2,3]",
                       "3 elements, one for each entry of dimension 1"});
}

}  // namespace
}  // namespace tessera
