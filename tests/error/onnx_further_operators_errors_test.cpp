// What is said about operators that go step by step, choose, transform signals, draw numbers, or are of ai.onnx.ml.
#include "onnx_import_util.h"

namespace tessera {
namespace {

using Ints = std::vector<int64_t>;

OnnxModel with_domain(const std::string& domain) {
  OnnxModel model;
  onnx::OperatorSetIdProto& import = *model.proto.add_opset_import();
  import.set_domain(domain);
  import.set_version(3);
  return model;
}

// Without a declared number they are values that only a run knows, which a graph alone cannot have.
TEST(OnnxFurtherErrors, ChoicesNeedANumber) {
  OnnxModel compress;
  compress.input("x", {4}).input("c", {4}, onnx::TensorProto::BOOL).output("y");
  compress.node("Compress", {"x", "c"}, {"y"});
  expect_import_error(compress, "TSR-1046", {"shapes that only a run knows"});
  OnnxModel unique;
  unique.input("x", {4}).output("y");
  unique.node("Unique", {"x"}, {"y"});
  expect_import_error(unique, "TSR-1046", {"shapes that only a run knows"});
}

TEST(OnnxFurtherErrors, Signals) {
  OnnxModel dft;
  dft.input("x", {2, 8, 3}).output("y");
  dft.node("DFT", {"x"}, {"y"});
  expect_import_error(dft, "TSR-1044", {"an operand of type f32[2,8,3]", "[..., 1] or [..., 2]"});
  OnnxModel last;
  last.input("x", {2, 8, 1}).output("y");
  set_attribute(last.node("DFT", {"x"}, {"y"}), "axis", int64_t{2});
  expect_import_error(last, "TSR-1044", {"axis is 2 for a tensor of rank 3", "not the last one"});
}

TEST(OnnxFurtherErrors, MatricesAndDraws) {
  OnnxModel det;
  det.input("x", {2, 3}).output("y");
  det.node("Det", {"x"}, {"y"});
  expect_import_error(det, "TSR-1044", {"an operand of type f32[2,3]", "square matrices"});
  OnnxModel large;
  large.input("x", {65, 65}).output("y");
  large.node("Det", {"x"}, {"y"});
  expect_import_error(large, "TSR-1040", {"matrices of more than 64 rows"});
  OnnxModel draw;
  draw.output("y");
  set_attribute(draw.node("RandomUniform", {}, {"y"}), "shape", Ints{-1});
  expect_import_error(draw, "TSR-1044", {"an extent -1", "0 to 2^40"});
}

TEST(OnnxFurtherErrors, LabelsAndNorms) {
  OnnxModel zip = with_domain("ai.onnx.ml");
  zip.input("x", {2, 3}).output("y");
  zip.node("ZipMap", {"x"}, {"y"}).set_domain("ai.onnx.ml");
  expect_import_error(zip, "TSR-1044",
                      {"scores f32[2,3] with 0 strings and 0 integers as labels", "labels of one kind"});
  OnnxModel norm = with_domain("ai.onnx.ml");
  norm.input("x", {2, 3}).output("y");
  auto& node = norm.node("Normalizer", {"x"}, {"y"});
  node.set_domain("ai.onnx.ml");
  set_attribute(node, "norm", std::string("L3"));
  expect_import_error(norm, "TSR-1044", {"norm = L3", "MAX, L1, L2"});
}

}  // namespace
}  // namespace tessera
