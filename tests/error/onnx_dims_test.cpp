// Dimensions that a model leaves open, and the options that close them.
#include "onnx_import_util.h"

namespace tessera {
namespace {

OnnxModel open_model(const std::vector<OnnxModel::Dim>& x, const std::vector<OnnxModel::Dim>& z = {}) {
  OnnxModel model;
  model.open_input("x", x).output("y");
  model.node("Relu", {"x"}, {"y"});
  if (!z.empty()) {
    model.open_input("z", z).output("w");
    model.node("Relu", {"z"}, {"w"});
  }
  return model;
}

const OnnxModel::Dim kUnnamed = OnnxModel::named("?");

std::string shape_of(const OnnxModel& model, const ImportOptions& options, size_t input = 0) {
  const Graph graph = model.import(options);
  return to_string(graph.type(graph.inputs[input]).shape);
}

TEST(OnnxDims, OpenDimsAreAllListedWithTheOptionToGive) {
  expect_import_error(open_model({{-1, ""}, {3, ""}, kUnnamed, {-7, ""}}), "TSR-1020",
                      {"input 'x': f32[?,3,?,?]", "add --shape x=1x3x224x224"});
  expect_import_error(
      open_model({OnnxModel::named("batch"), {3, ""}}, {OnnxModel::named("batch"), OnnxModel::named("time")}),
      "TSR-1020", {"input 'x': f32[batch,3]", "input 'z': f32[batch,time]", "add --shape x=1x3 --shape z=1x128"});
  expect_import_error(open_model({OnnxModel::named("batch"), kUnnamed, {4, ""}}), "TSR-1020",
                      {"add --shape x=1x128x4"});
}

TEST(OnnxDims, UnknownRank) {
  OnnxModel model = open_model({});
  model.graph().mutable_input(0)->mutable_type()->mutable_tensor_type()->clear_shape();
  expect_import_error(model, "TSR-1020", {"input 'x': of unknown rank", "add --shape x=1x3x224x224"});
  EXPECT_EQ(shape_of(model, {{}, {{"x", {2, 5}}}}), "[2,5]");
}

TEST(OnnxDims, AnEmptyDimensionIsOpenToo) {
  OnnxModel model = open_model({{2, ""}});
  model.graph().mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(0)->Clear();
  expect_import_error(model, "TSR-1020", {"f32[?]", "--shape x=1"});
}

TEST(OnnxDims, OptionsCloseThem) {
  const OnnxModel model = open_model({OnnxModel::named("n"), {3, ""}, {-1, ""}}, {OnnxModel::named("n")});
  ImportOptions options;
  options.shapes["x"] = {2, 3, 8};
  EXPECT_EQ(shape_of(model, options, 0), "[2,3,8]");
  EXPECT_EQ(shape_of(model, options, 1), "[2]");  // the name is one dimension everywhere
  options.dims["n"] = {2, 2};
  EXPECT_EQ(shape_of(model, options, 1), "[2]");
  // Unnamed dimensions are each their own.
  EXPECT_EQ(shape_of(open_model({kUnnamed, kUnnamed}), {{}, {{"x", {4, 5}}}}), "[4,5]");
}

TEST(OnnxDims, OptionsThatNameNothing) {
  const OnnxModel model = open_model({OnnxModel::named("n")});
  expect_import_error(model, "TSR-1021", {"--shape names the input 'picture'", "inputs: 'x'"},
                      {{}, {{"picture", {1}}}});
  expect_import_error(model, "TSR-1021", {"--dim names the dimension 'm'", "named dimensions: 'n'"},
                      {{{"m", {1, 1}}}, {}});
  expect_import_error(open_model({{2, ""}}), "TSR-1021", {"named dimensions: none"}, {{{"m", {1, 1}}}, {}});
}

TEST(OnnxDims, Contradictions) {
  const OnnxModel model = open_model({OnnxModel::named("n"), {3, ""}});
  expect_import_error(model, "TSR-1022", {"--shape x=1x4 contradicts the model: dimension 1 is 3", "f32[n,3]"},
                      {{}, {{"x", {1, 4}}}});
  expect_import_error(model, "TSR-1022", {"3 dimensions instead of 2"}, {{}, {{"x", {1, 3, 1}}}});
  expect_import_error(model, "TSR-1022", {"contradicts --dim n=2: dimension 'n' is 2 there"},
                      {{{"n", {2, 2}}}, {{"x", {1, 3}}}});
  expect_import_error(open_model({OnnxModel::named("n"), OnnxModel::named("n")}), "TSR-1022", {"contradicts itself"},
                      {{}, {{"x", {1, 3}}}});
}

TEST(OnnxDims, Sizes) {
  const OnnxModel model = open_model({OnnxModel::named("n"), {1 << 20, ""}});
  expect_import_error(model, "TSR-1023", {"--dim n=-1: -1 is not a dimension"}, {{{"n", {-1, -1}}}, {}});
  expect_import_error(model, "TSR-1023", {"input 'x' has the shape [1073741824,1048576]", "at most 2^40 elements"},
                      {{{"n", {1 << 30, 1 << 30}}}, {}});
  expect_import_error(model, "TSR-1025", {"--dim n=1..8 is a range", "give --dim n=8"}, {{{"n", {1, 8}}}, {}});
  OnnxModel fixed;
  fixed.input("x", {int64_t{1} << 32, int64_t{1} << 32}).output("y");
  fixed.node("Relu", {"x"}, {"y"});
  expect_import_error(fixed, "TSR-1023", {"input 'x' has the shape [4294967296,4294967296]"});
}

TEST(OnnxDims, AnEmptyInputIsLegal) {
  OnnxModel model;
  model.input("x", {0, 3}).output("y");
  model.node("Relu", {"x"}, {"y"});
  EXPECT_EQ(shape_of(model, {}), "[0,3]");
}

TEST(OnnxDims, UnsupportedOperatorsAreReportedBeforeOpenDims) {
  OnnxModel model = open_model({kUnnamed});
  model.node("ImageDecoder", {"y"}, {"kept"});
  model.output("kept");
  expect_import_error(model, "TSR-1040", {"1 node cannot be imported", "Nkept"});
}

}  // namespace
}  // namespace tessera
