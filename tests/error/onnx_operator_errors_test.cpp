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
  large.input("x", {int64_t{1} << 31}).ints("k", {1}, {4}).output("y").output("i");
  large.node("TopK", {"x", "k"}, {"y", "i"});
  expect_import_error(large, "TSR-2024", {"dimension 1 of operand 1", "fewer than 2^31 elements to put in order"});
}

TEST(OnnxOperatorErrors, Einsum) {
  const auto message = [](const char* equation, const std::vector<std::string>& parts) {
    OnnxModel model;
    model.input("a", {2, 3}).input("b", {3, 4}).output("y");
    set_attribute(model.node("Einsum", {"a", "b"}, {"y"}), "equation", equation);
    expect_import_error(model, "TSR-1044", parts);
  };
  message("ijk,jk->i", {"Einsum: equation ijk,jk->i: operand 1 has 2 dimensions"});
  message("ij->", {"Einsum: equation ij->: 2 operands are given"});
  message("ij,jk->iz", {"Einsum: equation ij,jk->iz: a result's label that no operand has"});
  message("ij,jk,kl->il", {"2 operands are given"});
  message("ij,ik->jk", {"a label of two extents"});
}

// The forms of opsets 1 to 6.
TEST(OnnxOperatorErrors, OldOpsets) {
  const auto node = [](int64_t opset, const char* op, std::vector<std::string> inputs,
                       std::vector<std::pair<std::string, int64_t>> ints = {}) {
    OnnxModel model(opset);
    model.input("x", {2, 3, 4}).input("v", {3}).input("m", {3, 4}).output("y");
    auto& added = model.node(op, inputs, {"y"});
    for (const auto& [name, value] : ints) set_attribute(added, name, value);
    return model;
  };
  const char* const legal = "a second operand whose shape is a part of the first's";
  expect_import_error(node(6, "Add", {"x", "m"}), "TSR-1044",
                      {"Add: operands of type f32[2,3,4] and f32[3,4] with broadcast = 0, axis = 1", legal});
  expect_import_error(node(6, "Add", {"x", "v"}, {{"broadcast", 1}}), "TSR-1044", {"broadcast = 1, axis = 2", legal});
  expect_import_error(node(6, "Add", {"x", "v"}, {{"broadcast", 1}, {"axis", 3}}), "TSR-1044", {"axis = 3", legal});
  expect_import_error(node(6, "Add", {"m", "x"}, {{"broadcast", 1}}), "TSR-1044", {legal});
  expect_import_error(node(7, "Add", {"x", "m"}, {{"broadcast", 1}}), "TSR-1040", {"attribute 'broadcast' is not"});
  expect_import_error(node(6, "Abs", {"x"}, {{"consumed_inputs", 1}}), "TSR-1040", {"attribute 'consumed_inputs' is"});
  expect_import_error(node(6, "Acos", {"x"}), "TSR-1040", {"the operator exists from opset 7 on"});
  expect_import_error(node(6, "PRelu", {"x", "m"}), "TSR-1044",
                      {"PRelu: slopes of type f32[3,4] for an operand of type f32[2,3,4]", "one for each channel"});
  expect_import_error(node(6, "Dropout", {"x"}), "TSR-1040", {"is_test = 0; only inference is supported"});
  expect_import_error(node(6, "BatchNormalization", {"x", "v", "v", "v", "v"}), "TSR-1040", {"is_test = 0"});
  expect_import_error(node(6, "Gemm", {"m", "m", "v"}, {{"transB", 1}}), "TSR-1044",
                      {"Gemm: a third operand of type f32[3] with broadcast = 0", "the shape [3,3], or broadcast = 1"});
  expect_import_error(node(4, "Reshape", {"x"}), "TSR-1043", {"no attribute 'shape'"});
  expect_import_error(node(1, "Upsample", {"x"}), "TSR-1044", {"Upsample: no attribute 'height_scale'"});
  OnnxModel cast(5);
  cast.input("x", {2}).output("y");
  set_attribute(cast.node("Cast", {"x"}, {"y"}), "to", "HALF");
  expect_import_error(cast, "TSR-1044", {"Cast: to is 'HALF'", "the name of a data type"});
  OnnxModel split(1);
  split.input("x", {3}).floats("s", {2}, {1.5f, 1.5f}).output("y").output("z");
  split.node("Split", {"x", "s"}, {"y", "z"});
  expect_import_error(split, "TSR-1044", {"Split: split has the entry 1.5", "integers from 0 to 3"});
  OnnxModel tile(1);
  tile.input("x", {3}).floats("t", {}, {0.5f}).floats("a", {}, {0}).output("y");
  tile.node("Tile", {"x", "t", "a"}, {"y"});
  expect_import_error(tile, "TSR-1044", {"Tile: tiles = 0.5", "an integer"});
}

TEST(OnnxOperatorErrors, BitCastAndSwiGlu) {
  OnnxModel bits(28);
  bits.input("x", {2, 3}).output("y");
  set_attribute(bits.node("BitCast", {"x"}, {"y"}), "to", int64_t{onnx::TensorProto::DOUBLE});
  expect_import_error(bits, "TSR-1044", {"BitCast: an operand of type f32[2,3] as f64", "a type of as many bits"});
  OnnxModel gated(28);
  gated.input("x", {2, 3}).input("v", {3}).output("y");
  gated.node("SwiGLU", {"x", "v"}, {"y"});
  expect_import_error(gated, "TSR-1044", {"SwiGLU: operands of type f32[2,3] and f32[3]", "operands of one shape"});
  OnnxModel pool(12);
  pool.input("x", {1, 1, 4}, onnx::TensorProto::INT8).output("y").output("i");
  auto& node = pool.node("MaxPool", {"x"}, {"y", "i"});
  set_attribute(node, "kernel_shape", std::vector<int64_t>{2});
  set_attribute(node, "pads", std::vector<int64_t>{1, 0});
  expect_import_error(pool, "TSR-1040", {"the indices of maxima of padded integers"});
}

TEST(OnnxOperatorErrors, Sampling) {
  OnnxModel grid;
  grid.input("x", {1, 2, 4, 4}).input("g", {1, 3, 3, 3}).output("y");
  grid.node("GridSample", {"x", "g"}, {"y"});
  expect_import_error(grid, "TSR-1044", {"GridSample: a grid of type f32[1,3,3,3] for an image of type f32[1,2,4,4]"});
  OnnxModel roi;
  roi.input("x", {1, 2, 4, 4}).input("r", {3, 4}).input("b", {3}, kI64).output("y");
  roi.node("RoiAlign", {"x", "r", "b"}, {"y"});
  set_attribute(*roi.proto.mutable_graph()->mutable_node(0), "sampling_ratio", INT64_MAX);
  expect_import_error(roi, "TSR-1044", {"RoiAlign: output 1 by 1, sampling_ratio = 9223372036854775807"});
  set_attribute(*roi.proto.mutable_graph()->mutable_node(0), "output_height", int64_t{0});
  expect_import_error(roi, "TSR-1044", {"RoiAlign: mode = avg, output 0 by 1, sampling_ratio = 9223372036854775807"});
  OnnxModel largest;
  largest.input("x", {1, 2, 4, 4}).input("r", {3, 5}).output("y");
  largest.node("MaxRoiPool", {"x", "r"}, {"y"});
  set_attribute(*largest.proto.mutable_graph()->mutable_node(0), "pooled_shape", std::vector<int64_t>{2, INT64_MAX});
  expect_import_error(largest, "TSR-1044",
                      {"MaxRoiPool: pooled_shape = [2,9223372036854775807]", "at most 2^40 bins in all boxes"});
  OnnxModel boxes;
  boxes.input("x", {1, 2, 4, 4}).input("r", {3, 4}).output("y");
  set_attribute(boxes.node("MaxRoiPool", {"x", "r"}, {"y"}), "pooled_shape", std::vector<int64_t>{2, 2});
  expect_import_error(boxes, "TSR-1044", {"MaxRoiPool: operands of types f32[1,2,4,4] and f32[3,4]", "boxes [R, 5]"});
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
