// What is said about operators of the domain com.microsoft that contradict themselves or ask for what is not there.
#include "onnx_import_util.h"

namespace tessera {
namespace {

onnx::NodeProto& contrib(OnnxModel& model, const std::string& op, const std::vector<std::string>& inputs) {
  onnx::OperatorSetIdProto& domain = *model.proto.add_opset_import();
  domain.set_domain("com.microsoft");
  domain.set_version(1);
  onnx::NodeProto& node = model.node(op, inputs, {"y"});
  node.set_domain("com.microsoft");
  model.output("y");
  return node;
}

void set(onnx::NodeProto& node, const std::string& name, int64_t value) {
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::INT);
  attribute.set_i(value);
}

TEST(OnnxContribErrors, MatMulNBits) {
  const auto model = [](int64_t k, int64_t block, int64_t bits, std::vector<int64_t> weights) {
    OnnxModel result;
    result.input("a", {2, 32}).input("w", std::move(weights), onnx::TensorProto::UINT8).input("s", {4, 2});
    onnx::NodeProto& node = contrib(result, "MatMulNBits", {"a", "w", "s"});
    set(node, "K", k);
    set(node, "N", 4);
    set(node, "bits", bits);
    set(node, "block_size", block);
    return result;
  };
  expect_import_error(model(32, 16, 4, {4, 2, 7}), "TSR-1044", {"weights of type u8[4,2,7]", "u8[4,2,8]"});
  expect_import_error(model(32, 12, 4, {4, 2, 8}), "TSR-1044", {"K = 32, N = 4, block_size = 12", "a power of two"});
  expect_import_error(model(-1, 16, 4, {4, 2, 8}), "TSR-1044", {"K = -1"});
  expect_import_error(model(32, 16, 3, {4, 2, 8}), "TSR-1040", {"bits = 3"});
  expect_import_error(model(16, 16, 4, {4, 1, 8}), "TSR-1044", {});
}

TEST(OnnxContribErrors, EmbedLayerNormalization) {
  const auto model = [](const std::vector<int64_t>& ids, const std::vector<int64_t>& words) {
    OnnxModel result;
    result.input("ids", ids, onnx::TensorProto::INT32).input("words", words).input("places", {9, 4});
    result.input("scale", {4}).input("bias", {4});
    contrib(result, "EmbedLayerNormalization", {"ids", "", "words", "places", "", "scale", "bias"});
    return result;
  };
  expect_import_error(model({5}, {7, 4}), "TSR-1044",
                      {"EmbedLayerNormalization: words of type i32[5]", "[batch, words]"});
  expect_import_error(model({2, 5}, {7}), "TSR-1044", {"EmbedLayerNormalization: a table of type f32[7]", "rank 2"});
}

TEST(OnnxContribErrors, Attention) {
  OnnxModel heads;
  heads.input("q", {1, 3, 8}).input("k", {1, 3, 8}).input("v", {1, 3, 8});
  set(contrib(heads, "MultiHeadAttention", {"q", "k", "v"}), "num_heads", 3);
  expect_import_error(heads, "TSR-1044", {"3 heads for an operand of type f32[1,3,8]", "node:  Ny"});
  OnnxModel mask;
  mask.input("q", {1, 3, 8}).input("m", {7}, onnx::TensorProto::INT32);
  set(contrib(mask, "MultiHeadAttention", {"q", "q", "q", "", "m"}), "num_heads", 2);
  expect_import_error(mask, "TSR-1040", {"a mask of type i32[7] for 3 queries and 3 keys"});
  OnnxModel lengths;
  lengths.input("q", {1, 1, 8});
  onnx::NodeProto& grouped = contrib(lengths, "GroupQueryAttention", {"q", "q", "q"});
  set(grouped, "num_heads", 2);
  set(grouped, "kv_num_heads", 2);
  expect_import_error(lengths, "TSR-1044", {"no lengths of the keys", "seqlens_k and total_sequence_length"});
  OnnxModel positions;
  positions.input("x", {2, 3, 8}).input("p", {5}, onnx::TensorProto::INT64).input("c", {9, 4}).input("s", {9, 4});
  contrib(positions, "RotaryEmbedding", {"x", "p", "c", "s"});
  expect_import_error(positions, "TSR-1044", {"positions of type i64[5]", "one, or [2,3]"});
}

}  // namespace
}  // namespace tessera
