// Plans of models with many equal layers: costs from a few of them are those of the whole compiled model.
#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/compile.h"
#include "driver/parallelize.h"
#include "graph/hash.h"
#include "graph/parser.h"
#include "graph/repeated_layers.h"
#include "graph/verify.h"
#include "ops/op_table.h"

namespace tessera {
namespace {

struct Network {
  int layers = 1, rows = 8, width = 16, hidden = 32;
  bool gives_all = false;    // each layer's result is a result of the graph
  bool reads_first = false;  // the last node reads what the first layer gave
};

// Layers of a perceptron beside a stream that goes by; all read one constant and one input, too.
Graph graph_of(const Network& net) {
  const std::string stream = fmt::format("f32[{},{}]", net.rows, net.width);
  std::string text;
  text += "  %same = constant {value = splat<" + stream + " 0.5>} : " + stream + "\n  %y0 = exp(%x) : " + stream + "\n";
  for (int i = 0; i < net.layers; ++i) {
    text += fmt::format("  %up{0} = constant {{value = splat<f32[{1},{2}] 0.0{0}1>}} : f32[{1},{2}]\n", i, net.width,
                        net.hidden);
    text += fmt::format("  %down{0} = constant {{value = splat<f32[{2},{1}] 0.0{0}2>}} : f32[{2},{1}]\n", i, net.width,
                        net.hidden);
    text += fmt::format("  %a{} = mul(%y{}, %same) : {}\n", i, i, stream);
    text += fmt::format("  %h{0} = matmul(%a{0}, %up{0}) {{transpose_a = false, transpose_b = false}} : f32[{1},{2}]\n",
                        i, net.rows, net.hidden);
    text += fmt::format("  %t{0} = tanh(%h{0}) : f32[{1},{2}]\n", i, net.rows, net.hidden);
    text += fmt::format("  %p{0} = matmul(%t{0}, %down{0}) {{transpose_a = false, transpose_b = false}} : {1}\n", i,
                        stream);
    text += fmt::format("  %s{0} = add(%p{0}, %x) : {1}\n", i, stream);
    text += fmt::format("  %y{1} = add(%s{0}, %y{0}) : {2}\n", i, i + 1, stream);
  }
  text += fmt::format("  %z = mul(%y{}, %{}) : {}\n", net.layers, net.reads_first ? "y1" : "x", stream);
  std::string results = "%z: " + stream;
  for (int i = 1; net.gives_all && i <= net.layers; ++i) results += fmt::format(", %y{}: {}", i, stream);
  return parse_graph("graph @net(%x: " + stream + ") -> (" + results + ") {\n" + text + "}\n", standard_ops());
}

TEST(RepeatedLayers, AreFoundAndTakenAway) {
  for (int layers = 3; layers <= 12; ++layers) {
    SCOPED_TRACE(layers);
    const Graph graph = graph_of({.layers = layers});
    const std::optional<RepeatedLayers> found = repeated_layers(graph);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->count, layers);
    EXPECT_EQ(found->nodes, 6u);
    for (int fewer = 2; fewer <= layers; ++fewer) {
      const Graph few = with_layers(graph, *found, fewer);
      ASSERT_THAT(verify(few), testing::IsEmpty());
      EXPECT_EQ(structural_hash(few), structural_hash(graph_of({.layers = fewer})));
    }
  }
  EXPECT_FALSE(repeated_layers(graph_of({.layers = 2})).has_value());
  EXPECT_FALSE(repeated_layers(graph_of({.layers = 9, .gives_all = true})).has_value());
  // What the first layer gave is read behind the last one, so that one is none of them.
  const Graph graph = graph_of({.layers = 9, .reads_first = true});
  const std::optional<RepeatedLayers> found = repeated_layers(graph);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->count, 4);
  EXPECT_EQ(structural_hash(with_layers(graph, *found, 2)),
            structural_hash(graph_of({.layers = 5, .reads_first = true})));
}

void expect_cost_of_compiled(const RankCost& cost, const Graph& graph, const RankSpeed& speed) {
  DriverOptions options;
  options.emit = Emit::kModule;
  options.compile.num_threads = 1;
  PassRunner runner(options);
  const Program program = compile_graph(graph, options, runner).program;
  EXPECT_EQ(cost.weight_bytes, program.weight_bytes);
  EXPECT_EQ(cost.arena_bytes, program.arena_bytes);
  double seconds = 0;
  for (const KernelCall& call : program.calls) {
    const Kernel& kernel = program.kernels[static_cast<size_t>(call.kernel)];
    if (kernel.device == 0)
      seconds += std::max(static_cast<double>(kernel.flops) / speed.operations_per_second,
                          static_cast<double>(kernel.bytes) / speed.memory_bytes_per_second);
  }
  EXPECT_NEAR(cost.compute_seconds, seconds, 1e-9 * seconds);
}

TEST(ParallelPlan, CostsOfEqualLayersAreThoseOfAll) {
  std::mt19937 random(1);
  const auto pick = [&](std::vector<int> from) { return from[random() % from.size()]; };
  for (int i = 0; i < 6; ++i) {
    const Network net{.layers = pick({7, 8, 11, 13}),
                      .rows = pick({2, 8, 62}),
                      .width = pick({6, 16, 34}),
                      .hidden = pick({4, 32, 66}),
                      .reads_first = i == 5};
    SCOPED_TRACE(fmt::format("{} layers, {} rows, {} wide, {} hidden", net.layers, net.rows, net.width, net.hidden));
    const Graph graph = graph_of(net);
    ParallelOptions options;
    options.mesh = mesh_named(i % 2 == 0 ? "model=2" : "data=2,model=2");
    options.searches = i % 3 == 0;
    DriverOptions compile;
    compile.compile.num_threads = 1;
    const ParallelPlan plan = make_parallel_plan(graph, options, compile);
    expect_cost_of_compiled(plan.alone, graph, options.speed);
    expect_cost_of_compiled(plan.rank, graph_of_rank(plan, 0), options.speed);
  }
}

}  // namespace
}  // namespace tessera
