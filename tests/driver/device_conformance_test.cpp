// What every device of the table has to do (driver/devices.h): a new row is held to this without another line here.
// Graphs of all kinds with all kernels that it takes there, and with some of them, beside the interpreter. A device
// that this machine lacks is skipped by name. Communicators, whose kernels are collectives alone, have
// collectives_test.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "driver/devices.h"
#include "graph/parser.h"
#include "interp/graph_interp.h"
#include "ops/op_table.h"
#include "support/compiled_graph.h"
#include "support/error.h"
#include "support/test_data.h"
#include "unit/random_control_flow.h"
#include "unit/random_graph.h"

namespace tessera {
namespace {

std::vector<std::string> kinds() {
  std::vector<std::string> result;
  for (const DeviceBackEnd& back_end : device_back_ends())
    // What is described takes sums of products alone (tests/unit/accel_network_test.cpp).
    if (!back_end.is_communicator && !back_end.is_described && back_end.generate) result.emplace_back(back_end.kind);
  return result;
}

class DeviceConformance : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    try {
      check(parse_graph("graph @main(%x: f32[3]) -> (%y: f32[3]) { %y = neg(%x) : f32[3] }", standard_ops()), {"*"}, 1);
    } catch (const std::exception& error) {
      const std::string why = error.what();
      const bool is_missing = why.find("TSR-7019") != std::string::npos;
      ASSERT_TRUE(is_missing && GetParam() != "null") << why;
      GTEST_SKIP() << why;
    }
  }

  // Runs the graph with the calls that fit the patterns on the device; how many kernels are there.
  size_t check(const Graph& graph, const std::vector<std::string>& patterns, const std::vector<Tensor>& inputs) {
    DriverOptions options = options_for("native", 1);
    for (const std::string& pattern : patterns) options.compile.places.push_back(pattern + "=" + GetParam());
    const CompiledRun got = run_compiled(graph, inputs, options);
    const std::vector<Tensor> want = GraphInterpreter().evaluate(graph, inputs);
    EXPECT_EQ(got.results.size(), want.size());
    for (size_t i = 0; i < std::min(want.size(), got.results.size()); ++i)
      EXPECT_TRUE(tensors_agree(got.results[i], want[i])) << "output " << i;
    return static_cast<size_t>(std::count_if(got.program.kernels.begin(), got.program.kernels.end(),
                                             [](const Kernel& kernel) { return kernel.device > 0; }));
  }

  size_t check(const Graph& graph, const std::vector<std::string>& patterns, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<Tensor> inputs;
    for (const ValueId input : graph.inputs) inputs.push_back(random_tensor(graph.type(input), random));
    return check(graph, patterns, inputs);
  }
};

TEST_P(DeviceConformance, RandomGraphs) {
  size_t on_device = 0;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(seed);
    const Graph graph = random_graph(seed, 10);
    on_device += check(graph, {"*"}, random_inputs(graph, seed));
  }
  EXPECT_GT(on_device, 25U);
}

// Values cross between host and device in both directions.
TEST_P(DeviceConformance, SomeOfTheCalls) {
  size_t on_device = 0;
  for (uint64_t seed = 21; seed <= 26; ++seed) {
    SCOPED_TRACE(seed);
    const Graph graph = random_graph(seed, 12);
    for (const char* pattern : {"*[02468]*", "*[1357]*"}) {
      try {
        on_device += check(graph, {pattern}, random_inputs(graph, seed));
      } catch (const UserError& error) {
        ASSERT_EQ(error.diagnostic().id, "TSR-4073") << error.what();  // no node has such a name
      }
    }
  }
  EXPECT_GT(on_device, 10U);
}

TEST_P(DeviceConformance, BranchesAndLoops) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(seed);
    const Graph graph = random_control_flow(seed);
    check(graph, {"*"}, control_flow_inputs(graph, seed));
  }
}

TEST_P(DeviceConformance, TypesAndShapes) {
  for (const char* dtype : {"f32", "f64", "f16", "bf16", "i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8"}) {
    SCOPED_TRACE(dtype);
    std::string inputs, outputs, body;
    int number = 0;
    for (const char* shape : {"[]", "[1]", "[0,5]", "[257]", "[3,1,67]"}) {
      const std::string type = std::string(dtype) + shape, n = std::to_string(number++);
      const char* separator = number == 1 ? "" : ", ";
      inputs += separator + ("%x" + n) + ": " + type + ", %y" + n + ": " + type;
      outputs += separator + ("%a" + n) + ": " + type + ", %b" + n + ": " + type;
      body += "  %a" + n + " = add(%x" + n + ", %y" + n + ") : " + type + "\n";
      body += "  %b" + n + " = max(%a" + n + ", %x" + n + ") : " + type + "\n";
    }
    check(parse_graph("graph @main(" + inputs + ") -> (" + outputs + ") {\n" + body + "}", standard_ops()), {"*"}, 3);
  }
}

// An input that is an output, and a value that the device makes for two readers on either side.
TEST_P(DeviceConformance, ValuesThatPassThrough) {
  const Graph graph =
      parse_graph(R"(graph @main(%x: f32[70,33], %w: f32[33,50]) -> (%x: f32[70,33], %p: f32[70,50], %y: f32[70,50]) {
    %p = matmul(%x, %w) : f32[70,50] loc("product")
    %t = tanh(%p) : f32[70,50] loc("turn")
    %y = sub(%t, %p) : f32[70,50] loc("difference")
  })",
                  standard_ops());
  EXPECT_GE(check(graph, {"product*"}, 5), 1U);
  EXPECT_GE(check(graph, {"*difference*"}, 5), 1U);
}

INSTANTIATE_TEST_SUITE_P(EveryBackEnd, DeviceConformance, testing::ValuesIn(kinds()),
                         [](const testing::TestParamInfo<std::string>& kind) { return kind.param; });

}  // namespace
}  // namespace tessera
