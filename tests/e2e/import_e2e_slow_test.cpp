// Large models in the graph interpreter: minutes rather than seconds.
#include <fmt/format.h>

#include "import/onnx/onnx_import.h"
#include "import/onnx/read/tensor_proto.h"
#include "interp/graph_interp.h"
#include "ops/op_table.h"
#include "support/test_data.h"

namespace tessera {
namespace {

// Full graphs whose weights are constants made inside of them: they show loading and shape arithmetic more than values.
class LightModels : public testing::TestWithParam<const char*> {};

TEST_P(LightModels, GiveTheExpectedOutput) {
  const std::string folder = fmt::format("onnx-light/{}", GetParam());
  const auto path = find_test_data(folder);
  if (!path) GTEST_SKIP() << missing_test_data(folder);
  GraphInterpreter interpreter;
  const Graph graph = import_onnx_file((*path / "model.onnx").string(), {}, standard_ops(), interpreter);
  const Tensor input = read_tensor_proto_file((*path / "test_data_set_0/input_0.pb").string());
  const Tensor want = read_tensor_proto_file((*path / "test_data_set_0/output_0.pb").string());
  EXPECT_TRUE(tensors_agree(interpreter.evaluate(graph, {input}).at(0), want, 2e-3));
}

INSTANTIATE_TEST_SUITE_P(Onnx, LightModels,
                         testing::Values("bvlc_alexnet", "densenet121", "inception_v1", "resnet50", "shufflenet",
                                         "squeezenet"));

}  // namespace
}  // namespace tessera
