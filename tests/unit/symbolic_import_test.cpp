// A model is read once for all sizes: what the graph with symbols computes for some sizes is what the model read at
// just these sizes computes.
#include <gmock/gmock.h>

#include "import/onnx/onnx_import.h"
#include "interp/graph_interp.h"
#include "ops/op_table.h"
#include "support/onnx_model.h"
#include "support/symbolic_import.h"

namespace tessera {
namespace {

Reader reader_of(const OnnxModel& model) {
  return [bytes = model.bytes()](const ImportOptions& options) {
    GraphInterpreter evaluator;
    return read_onnx_model_bytes(bytes, options, standard_ops(), evaluator);
  };
}

// Reads the model with symbols and compares at each of `sizes`.
Graph check(const OnnxModel& model, const Ranges& ranges, const std::vector<Sizes>& sizes) {
  const Reader read = reader_of(model);
  Graph graph = import_once(read, ranges);
  for (const Sizes& at : sizes) expect_same(graph, read, at, 1e-5);
  return graph;
}

const Ranges kBatch = {{"n", {1, 64}}};
const std::vector<Sizes> kBatches = {{{"n", 1}}, {{"n", 2}}, {{"n", 7}}, {{"n", 64}}};

TEST(SymbolicImport, ReshapesWithWhatIsComputedFromTheShape) {
  OnnxModel model;
  model.open_input("x", {OnnxModel::named("n"), {6, ""}, {4, ""}}).output("y").output("z");
  model.node("Shape", {"x"}, {"s"});
  model.ints("zero", {}, {0}).ints("minus", {1}, {-1}).ints("eight", {1}, {8}).ints("axes", {1}, {0});
  model.node("Gather", {"s", "zero"}, {"n"});
  model.node("Unsqueeze", {"n", "axes"}, {"n1"});
  set_attribute(model.node("Concat", {"n1", "minus", "eight"}, {"to"}), "axis", int64_t{0});
  model.node("Reshape", {"x", "to"}, {"y"});
  model.node("Flatten", {"y"}, {"z"});
  const Graph graph = check(model, kBatch, kBatches);
  EXPECT_EQ(graph.type(graph.outputs[0]).to_string(), "f32[n,3,8]");
  EXPECT_EQ(graph.type(graph.outputs[1]).to_string(), "f32[n,24]");
}

TEST(SymbolicImport, MergesAndSplitsBatchAndLength) {
  OnnxModel model;
  model.open_input("x", {OnnxModel::named("b"), OnnxModel::named("l"), {12, ""}}).output("y");
  model.ints("flat", {2}, {-1, 12}).floats("w", {12, 4}, std::vector<float>(48, 0.25f));
  model.node("Shape", {"x"}, {"s"});
  model.ints("first", {2}, {0, 1}).ints("last", {1}, {4});
  model.node("Gather", {"s", "first"}, {"bl"});
  set_attribute(model.node("Concat", {"bl", "last"}, {"back"}), "axis", int64_t{0});
  model.node("Reshape", {"x", "flat"}, {"rows"});
  model.node("MatMul", {"rows", "w"}, {"p"});
  model.node("Reshape", {"p", "back"}, {"y"});
  const Graph graph = check(model, {{"b", {1, 8}}, {"l", {1, 128}}},
                            {{{"b", 1}, {"l", 1}}, {{"b", 3}, {"l", 5}}, {{"b", 8}, {"l", 128}}});
  EXPECT_EQ(graph.type(graph.outputs[0]).to_string(), "f32[b,l,4]");
}

TEST(SymbolicImport, ExpandsWhereTheShapeIsChosenByASize) {
  // As exporters write expand(-1, n): Where(shape == -1, ones, shape).
  OnnxModel model;
  model.open_input("x", {OnnxModel::named("n"), {3, ""}}).floats("c", {1, 3}, {1, 2, 3}).output("y");
  model.node("Shape", {"x"}, {"s"});
  model.ints("minus", {}, {-1});
  model.node("Equal", {"s", "minus"}, {"open"});
  model.ints("ones", {2}, {1, 1});
  model.node("Where", {"open", "ones", "s"}, {"to"});
  model.node("Expand", {"c", "to"}, {"e"});
  model.node("Add", {"e", "x"}, {"y"});
  check(model, kBatch, kBatches);
}

TEST(SymbolicImport, ComputesWithSizesAsData) {
  // x / sqrt(n), the mean over n, and Where(n == 1, 3, 5): values, not shapes.
  OnnxModel model;
  model.open_input("x", {OnnxModel::named("n"), {2, ""}}).output("y");
  model.node("Shape", {"x"}, {"s"});
  model.ints("zero", {}, {0}).ints("one", {}, {1});
  model.node("Gather", {"s", "zero"}, {"n"});
  set_attribute(model.node("Cast", {"n"}, {"f"}), "to", int64_t{onnx::TensorProto::FLOAT});
  model.node("Sqrt", {"f"}, {"r"});
  model.node("Div", {"x", "r"}, {"d"});
  model.node("ReduceMean", {"d"}, {"m"});
  model.node("Equal", {"n", "one"}, {"single"});
  model.floats("three", {}, {3}).floats("five", {}, {5});
  model.node("Where", {"single", "three", "five"}, {"c"});
  model.node("Add", {"m", "c"}, {"y"});
  check(model, kBatch, kBatches);
}

TEST(SymbolicImport, SlicesFromBothEnds) {
  OnnxModel model;
  model.open_input("x", {{2, ""}, OnnxModel::named("n")}).floats("table", {1, 64}, std::vector<float>(64, 2));
  for (const char* name : {"last", "rest", "back", "every", "head"}) model.output(name);
  model.ints("axis", {1}, {1}).ints("m1", {1}, {-1}).ints("end", {1}, {INT64_MAX}).ints("one", {1}, {1});
  model.ints("two", {1}, {2}).ints("zero", {1}, {0}).ints("least", {1}, {INT64_MIN});
  model.node("Slice", {"x", "m1", "end", "axis"}, {"last"});
  model.node("Slice", {"x", "one", "end", "axis"}, {"rest"});
  model.node("Slice", {"x", "m1", "least", "axis", "m1"}, {"back"});
  model.node("Slice", {"x", "zero", "end", "axis", "two"}, {"every"});
  model.node("Shape", {"x"}, {"s"});
  model.node("Gather", {"s", "one"}, {"n"});
  model.node("Slice", {"table", "zero", "n", "axis"}, {"head"});
  const Graph graph = check(model, kBatch, kBatches);
  EXPECT_EQ(graph.type(graph.outputs[1]).to_string(), "f32[2,(n - 1)]");
  EXPECT_EQ(graph.type(graph.outputs[4]).to_string(), "f32[1,n]");
}

TEST(SymbolicImport, ConvolvesAndPoolsPicturesOfAnySize) {
  OnnxModel model;
  model.open_input("x", {OnnxModel::named("n"), {2, ""}, OnnxModel::named("h"), OnnxModel::named("w")}).output("y");
  std::vector<float> weights(static_cast<size_t>(4 * 2 * 3 * 3));
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i % 7) - 3;
  model.floats("k", {4, 2, 3, 3}, weights);
  onnx::NodeProto& conv = model.node("Conv", {"x", "k"}, {"c"});
  set_attribute(conv, "strides", std::vector<int64_t>{2, 2});
  set_attribute(conv, "pads", std::vector<int64_t>{1, 1, 1, 1});
  model.node("Relu", {"c"}, {"r"});
  onnx::NodeProto& pool = model.node("MaxPool", {"r"}, {"p"});
  set_attribute(pool, "kernel_shape", std::vector<int64_t>{2, 2});
  set_attribute(pool, "strides", std::vector<int64_t>{2, 2});
  model.node("GlobalAveragePool", {"p"}, {"y"});
  check(model, {{"n", {1, 4}}, {"h", {8, 40}}, {"w", {8, 40}}},
        {{{"n", 1}, {"h", 8}, {"w", 8}}, {{"n", 2}, {"h", 17}, {"w", 31}}, {{"n", 4}, {"h", 40}, {"w", 9}}});
}

TEST(SymbolicImport, PadsConvolutionsToTheStride) {
  for (const char* mode : {"SAME_UPPER", "SAME_LOWER"}) {
    OnnxModel model;
    model.open_input("x", {{1, ""}, {1, ""}, OnnxModel::named("w")}).output("y").output("z");
    model.floats("k", {2, 1, 4}, {1, 2, 3, 4, -1, 5, 2, 1});
    onnx::NodeProto& conv = model.node("Conv", {"x", "k"}, {"y"});
    set_attribute(conv, "auto_pad", std::string(mode));
    set_attribute(conv, "strides", std::vector<int64_t>{3});
    set_attribute(model.node("Conv", {"x", "k"}, {"z"}), "auto_pad", std::string(mode));
    const Graph graph = check(model, {{"w", {4, 50}}}, {{{"w", 4}}, {{"w", 5}}, {{"w", 6}}, {{"w", 7}}, {{"w", 50}}});
    EXPECT_EQ(graph.type(graph.outputs[1]).to_string(), "f32[1,2,w]");
  }
}

TEST(SymbolicImport, PadsToAMultiple) {
  // pad = (4 - w % 4) % 4, then windows of 4.
  OnnxModel model;
  model.open_input("x", {{3, ""}, OnnxModel::named("w")}).output("y");
  model.node("Shape", {"x"}, {"s"});
  model.ints("one", {1}, {1}).ints("four", {1}, {4}).ints("zeros", {3}, {0, 0, 0}).ints("to", {3}, {3, -1, 4});
  model.node("Gather", {"s", "one"}, {"w"});
  model.node("Mod", {"w", "four"}, {"rest"});
  model.node("Sub", {"four", "rest"}, {"more"});
  model.node("Mod", {"more", "four"}, {"pad"});
  set_attribute(model.node("Concat", {"zeros", "pad"}, {"pads"}), "axis", int64_t{0});
  model.node("Pad", {"x", "pads"}, {"p"});
  model.node("Reshape", {"p", "to"}, {"y"});
  check(model, {{"w", {1, 50}}}, {{{"w", 1}}, {{"w", 3}}, {{"w", 4}}, {{"w", 5}}, {{"w", 8}}, {{"w", 50}}});
}

TEST(SymbolicImport, ResizesByScalesAndToSizes) {
  OnnxModel model;
  model.open_input("x", {{1, ""}, {2, ""}, OnnxModel::named("h"), {6, ""}}).output("y").output("z");
  model.floats("scales", {4}, {1, 1, 2, 0.5f}).node("Resize", {"x", "", "scales"}, {"y"});
  // To the extents of another tensor.
  model.open_input("like", {{1, ""}, {2, ""}, OnnxModel::named("h2"), {5, ""}});
  model.node("Shape", {"like"}, {"s"});
  onnx::NodeProto& resize = model.node("Resize", {"x", "", "", "s"}, {"z"});
  set_attribute(resize, "mode", std::string("linear"));
  check(model, {{"h", {2, 20}}, {"h2", {1, 30}}},
        {{{"h", 2}, {"h2", 1}}, {{"h", 5}, {"h2", 7}}, {{"h", 20}, {"h2", 30}}, {{"h", 9}, {"h2", 9}}});
}

TEST(SymbolicImport, CountsPositions) {
  OnnxModel model;
  model.open_input("x", {OnnxModel::named("b"), OnnxModel::named("l")}).output("y");
  model.node("Shape", {"x"}, {"s"});
  model.ints("one", {}, {1}).ints("zero", {}, {0});
  model.node("Gather", {"s", "one"}, {"l"});
  model.node("Range", {"zero", "l", "one"}, {"p"});
  set_attribute(model.node("Cast", {"p"}, {"f"}), "to", int64_t{onnx::TensorProto::FLOAT});
  model.node("Add", {"x", "f"}, {"a"});
  model.node("CumSum", {"a", "one"}, {"y"});
  check(model, {{"b", {1, 4}}, {"l", {1, 40}}}, {{{"b", 1}, {"l", 1}}, {{"b", 3}, {"l", 17}}, {{"b", 4}, {"l", 40}}});
}

// The scores of a decoder with a cache, [b, len, past + len], and a mask [b, len, total].
OnnxModel cached(const std::string& total) {
  OnnxModel model;
  model.open_input("q", {OnnxModel::named("b"), OnnxModel::named("len"), {4, ""}});
  model.open_input("past_k", {OnnxModel::named("b"), OnnxModel::named("past"), {4, ""}});
  model.open_input("bias", {OnnxModel::named("b"), {1, ""}, OnnxModel::named(total)}).output("y");
  set_attribute(model.node("Concat", {"past_k", "q"}, {"k"}), "axis", int64_t{1});
  set_attribute(model.node("Transpose", {"k"}, {"kt"}), "perm", std::vector<int64_t>{0, 2, 1});
  model.node("MatMul", {"q", "kt"}, {"scores"});
  model.node("Add", {"scores", "bias"}, {"masked"});
  model.node("Softmax", {"masked"}, {"y"});
  return model;
}

TEST(SymbolicImport, FindsThatASizeIsTheSumOfOthers) {
  const Ranges ranges = {{"b", {1, 4}}, {"len", {1, 8}}, {"past", {0, 32}}, {"total", {1, 40}}};
  const Graph graph = check(cached("total"), ranges,
                            {{{"b", 1}, {"len", 1}, {"past", 0}, {"total", 1}},
                             {{"b", 2}, {"len", 3}, {"past", 5}, {"total", 8}},
                             {{"b", 4}, {"len", 8}, {"past", 32}, {"total", 40}}});
  EXPECT_EQ(graph.symbols.size(), 3u);
  EXPECT_EQ(graph.type(graph.inputs[2]).to_string(), "f32[b,1,(len + past)]");
}

TEST(SymbolicImport, ReadsNamesThatAreExpressions) {
  const Ranges ranges = {{"b", {1, 4}}, {"len", {1, 8}}, {"past", {0, 32}}};
  const Graph graph = check(cached("past + len"), ranges, {{{"b", 2}, {"len", 3}, {"past", 5}, {"past + len", 8}}});
  EXPECT_EQ(graph.type(graph.inputs[2]).to_string(), "f32[b,1,(len + past)]");
}

// ---- what has no graph with symbols ----

std::string refusal(const OnnxModel& model, const Ranges& ranges) {
  const ReadOutcome outcome = reader_of(model)(symbolic(ranges));
  const auto* reason = std::get_if<NoGraph>(&outcome);
  return reason ? reason->to_string() : "";
}

TEST(SymbolicImport, NormalisesPicturesOfAnySize) {
  OnnxModel model(21);
  model.open_input("x", {OnnxModel::named("n"), {6, ""}, OnnxModel::named("h"), {5, ""}});
  model.floats("scale", {6}, {1, 2, 3, 4, 5, 6}).floats("bias", {6}, {0, 1, 0, 1, 0, 1});
  for (const char* name : {"groups", "batch", "mean", "var", "layer", "center", "inverse"}) model.output(name);
  set_attribute(model.node("GroupNormalization", {"x", "scale", "bias"}, {"groups"}), "num_groups", int64_t{3});
  set_attribute(model.node("BatchNormalization", {"x", "scale", "bias", "bias", "scale"}, {"batch", "mean", "var"}),
                "training_mode", int64_t{1});
  model.floats("rows", {5}, {1, 2, 3, 4, 5});
  set_attribute(model.node("LayerNormalization", {"x", "rows"}, {"layer", "center", "inverse"}), "axis", int64_t{-1});
  const Graph graph = check(model, {{"n", {1, 8}}, {"h", {1, 64}}},
                            {{{"n", 1}, {"h", 1}}, {{"n", 3}, {"h", 7}}, {{"n", 8}, {"h", 64}}});
  std::vector<std::string> composites;
  for (const Node& node : graph.nodes())
    if (node.op->kind == OpKind::kComposite) composites.push_back(node.attrs.get<std::string>("name"));
  EXPECT_THAT(composites, testing::ElementsAre("group_norm", "batch_norm_training", "layer_norm"));
}

TEST(SymbolicImport, LossesOfABatchOfAnySize) {
  OnnxModel model;
  const auto n = OnnxModel::named("n");
  model.open_input("x", {n, {3, ""}, {2, ""}}).open_input("t", {n, {2, ""}});
  model.graph().mutable_input(1)->mutable_type()->mutable_tensor_type()->set_elem_type(onnx::TensorProto::INT64);
  model.floats("weights", {3}, {1, 2, 3});
  for (const char* name : {"mean", "sum", "each", "logs"}) model.output(name);
  model.node("NegativeLogLikelihoodLoss", {"x", "t"}, {"mean"});
  set_attribute(model.node("NegativeLogLikelihoodLoss", {"x", "t", "weights"}, {"sum"}), "reduction",
                std::string("sum"));
  onnx::NodeProto& each = model.node("SoftmaxCrossEntropyLoss", {"x", "t", "weights"}, {"each", "logs"});
  set_attribute(each, "reduction", std::string("none"));
  set_attribute(each, "ignore_index", int64_t{1});
  const Graph graph = check(model, kBatch, kBatches);
  EXPECT_EQ(graph.type(graph.outputs[2]).to_string(), "f32[n,2]");
}

TEST(SymbolicImport, DoesNotDecideByASizeThatMayBeEither) {
  // Squeeze without axes removes a dimension only where it is 1.
  OnnxModel model(11);
  model.open_input("x", {OnnxModel::named("n"), {1, ""}, {3, ""}}).output("y");
  model.node("Squeeze", {"x"}, {"y"});
  EXPECT_THAT(refusal(model, kBatch), testing::HasSubstr("may be 1"));
  EXPECT_EQ(refusal(model, {{"n", {2, 64}}}), "");
}

TEST(SymbolicImport, DoesNotTakeANumberForASymbol) {
  OnnxModel model;
  model.open_input("x", {{1, ""}, OnnxModel::named("c"), OnnxModel::named("n")}).output("y");
  model.floats("k", {4, 2, 3}, std::vector<float>(24, 1)).node("Conv", {"x", "k"}, {"y"});
  EXPECT_THAT(refusal(model, {{"c", {1, 4}}, {"n", {8, 64}}}), testing::HasSubstr("Ny"));
}

TEST(SymbolicImport, DoesNotDivideByWhatMayLeaveARest) {
  OnnxModel model;
  model.open_input("x", {OnnxModel::named("n"), {3, ""}}).ints("to", {2}, {-1, 6}).output("y");
  model.node("Reshape", {"x", "to"}, {"y"});
  EXPECT_THAT(refusal(model, kBatch), testing::HasSubstr("Ny"));
}

TEST(SymbolicImport, DoesNotTakeAShapeFromDataThatNothingBounds) {
  OnnxModel model;
  model.open_input("x", {OnnxModel::named("n")}).input("k", {}, onnx::TensorProto::INT64).output("y");
  model.ints("zero", {}, {0}).ints("one", {}, {1}).node("Range", {"zero", "k", "one"}, {"y"});
  EXPECT_THAT(refusal(model, kBatch), testing::HasSubstr("Ny"));
}

TEST(SymbolicImport, TakesAShapeFromData) {
  OnnxModel model;
  model.open_input("x", {OnnxModel::named("n")}).output("y");
  model.node("NonZero", {"x"}, {"y"});
  EXPECT_EQ(refusal(model, kBatch), "");
}

}  // namespace
}  // namespace tessera
