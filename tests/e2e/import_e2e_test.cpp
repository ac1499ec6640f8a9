// Real models, imported and run by the graph interpreter, against the outputs that ONNX Runtime gave for them.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "graph/verify.h"
#include "import/onnx/onnx_import.h"
#include "interp/graph_interp.h"
#include "npy.h"
#include "ops/op_table.h"
#include "support/test_data.h"

namespace tessera {
namespace {

Graph import(const std::filesystem::path& path, const ImportOptions& options = {}) {
  GraphInterpreter evaluator;
  Graph graph = import_onnx_file(path.string(), options, standard_ops(), evaluator);
  EXPECT_THAT(verify(graph), testing::IsEmpty());
  return graph;
}

// Folders of `real` have input_<case>_<i>.npy and expected_<case>_<i>.npy.
void run_cases(const std::string& folder, const std::vector<std::string>& cases) {
  const auto path = find_test_data(folder);
  if (!path) GTEST_SKIP() << missing_test_data(folder);
  const Graph graph = import(*path / "model.onnx");
  GraphInterpreter interpreter;
  for (const std::string& name : cases) {
    SCOPED_TRACE(name);
    std::vector<Tensor> inputs;
    for (size_t i = 0; i < graph.inputs.size(); ++i)
      inputs.push_back(read_npy((*path / fmt::format("input_{}_{}.npy", name, i)).string()));
    const std::vector<Tensor> outputs = interpreter.evaluate(graph, inputs);
    for (size_t i = 0; i < outputs.size(); ++i)
      EXPECT_TRUE(tensors_agree(outputs[i], read_npy((*path / fmt::format("expected_{}_{}.npy", name, i)).string())))
          << graph.value(graph.outputs[i]).name;
  }
}

const std::vector<std::string> kDigits = {"digit0", "digit3", "digit5", "digit7", "digit9"};

TEST(ImportE2E, MnistOfOnnxRuntimeExamples) { run_cases("real/mnist-ort-examples", kDigits); }

TEST(ImportE2E, MnistOptimised) { run_cases("real/mnist-opt-wonnx", kDigits); }

TEST(ImportE2E, UltraFace) { run_cases("real/ultraface-rfb-320", {"photo2", "photo13", "photo16"}); }

TEST(ImportE2E, UltraFaceKeepsNamesAndLeavesNoShapeArithmetic) {
  const auto path = find_test_data("real/ultraface-rfb-320/model.onnx");
  if (!path) GTEST_SKIP() << missing_test_data("real/ultraface-rfb-320/model.onnx");
  const Graph graph = import(*path);
  ASSERT_EQ(graph.inputs.size(), 1u);
  EXPECT_EQ(graph.value(graph.inputs[0]).name, "input");
  ASSERT_EQ(graph.outputs.size(), 2u);
  EXPECT_EQ(graph.value(graph.outputs[0]).name, "scores");
  EXPECT_EQ(graph.value(graph.outputs[1]).name, "boxes");
  for (const Node& node : graph.nodes()) {
    EXPECT_FALSE(node.loc.empty());
    for (const ValueId output : node.outputs) EXPECT_TRUE(is_float(graph.type(output).dtype)) << node.loc;
  }
}

// Every network of tests/models imports; what it computes is checked where it is compiled.
TEST(ImportE2E, TextDetectorNeedsItsDims) {
  const auto path = source_path(".deps/ppocr/ch_PP-OCRv4_det_infer.onnx");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no " << path << ": scripts/setup.sh fetches it";
  ImportOptions options;
  options.shapes["x"] = {1, 3, 96, 160};
  const Graph graph = import(path, options);
  EXPECT_EQ(graph.type(graph.outputs[0]).to_string(), "f32[1,1,96,160]");
}

}  // namespace
}  // namespace tessera
