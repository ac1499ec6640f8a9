// Compiled evaluation beside the interpreter, on random graphs and from several threads.
#include "driver/engine/compiled_evaluator.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/engine/loop_kernel.h"
#include "graph/parser.h"
#include "interp/graph_interp.h"
#include "loop/parser.h"
#include "ops/op_table.h"
#include "support/error.h"
#include "support/test_data.h"
#include "unit/random_graph.h"

namespace tessera {
namespace {

Graph parse(const std::string& text) { return parse_graph(text, standard_ops()); }

void expect_agree(const std::vector<Tensor>& got, const std::vector<Tensor>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(tensors_agree(got[i], want[i])) << what << ", output " << i;
}

TEST(CompiledEvaluator, AgreesWithTheInterpreterOnRandomGraphs) {
  CompiledEvaluator compiled({}, 8);
  GraphInterpreter interpreter;
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    const Graph graph = random_graph(seed, 8);
    for (const uint64_t of_inputs : {seed, seed + 100}) {
      const std::vector<Tensor> inputs = random_inputs(graph, of_inputs);
      expect_agree(compiled.evaluate(graph, inputs), interpreter.evaluate(graph, inputs),
                   "seed " + std::to_string(seed));
    }
    EXPECT_EQ(compiled.num_compiled(), seed) << "a graph is compiled once for all of its inputs";
  }
}

TEST(CompiledEvaluator, TakesIntegersInputsAsOutputsConstantsAndNothing) {
  const Graph graph = parse(R"(
graph @edges(%x: i32[3], %e: f32[0,4]) -> (%sum: i32[3], %c: i64[2], %none: f32[0,4], %t: bool[3]) {
  %two = constant {value = dense<i32[] 2>}
  %sum = add(%x, %two)
  %c = constant {value = dense<i64[2] 7 -9>}
  %none = exp(%e)
  %t = gt(%x, %two)
})");
  Tensor x(DType::kI32, {3});
  for (int64_t i = 0; i < 3; ++i) x.set_int(i, 4 * i - 3);
  const std::vector<Tensor> inputs = {x, Tensor(DType::kF32, {0, 4})};
  expect_agree(CompiledEvaluator().evaluate(graph, inputs), GraphInterpreter().evaluate(graph, inputs), "edges");
}

TEST(CompiledEvaluator, ChecksAreOutputs) {
  const Graph graph = parse(R"(
graph @checked(%x: i64[1]) -> (%y: i64[1], %c: i64[1] check("x", "1")) {
  %y = neg(%x)
  %c = abs(%y)
})");
  Tensor x(DType::kI64, {1});
  const std::vector<Tensor> got = CompiledEvaluator().evaluate(graph, {x});  // 0: a run would refuse it
  ASSERT_EQ(got.size(), 2);
  EXPECT_EQ(got[1].get_int(0), 0);
}

TEST(CompiledEvaluator, ForgetsTheLeastRecentlyUsed) {
  const auto graph = [](int n) {
    return parse("graph @g(%x: f32[" + std::to_string(n) + "]) -> (%y: f32[" + std::to_string(n) +
                 "]) { %y = neg(%x) }");
  };
  const auto evaluate = [&](CompiledEvaluator& evaluator, int n) {
    evaluator.evaluate(graph(n), {Tensor(DType::kF32, {n})});
    return evaluator.num_compiled();
  };
  CompiledEvaluator evaluator({}, 2);
  EXPECT_EQ(evaluate(evaluator, 1), 1);
  EXPECT_EQ(evaluate(evaluator, 2), 2);
  EXPECT_EQ(evaluate(evaluator, 1), 2);
  EXPECT_EQ(evaluate(evaluator, 3), 3);  // 2 leaves
  EXPECT_EQ(evaluate(evaluator, 1), 3);
  EXPECT_EQ(evaluate(evaluator, 2), 4);
}

TEST(CompiledEvaluator, ServesSeveralThreads) {
  std::vector<Graph> graphs;
  std::vector<std::vector<Tensor>> inputs, want;
  for (uint64_t seed = 31; seed < 34; ++seed) {
    graphs.push_back(random_graph(seed, 6));
    inputs.push_back(random_inputs(graphs.back(), seed));
    want.push_back(GraphInterpreter().evaluate(graphs.back(), inputs.back()));
  }
  CompiledEvaluator evaluator({}, 2);  // fewer than there are graphs
  std::vector<std::vector<std::vector<Tensor>>> got(4);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < got.size(); ++t)
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < 6; ++i) {
        const size_t g = (i + t) % graphs.size();
        got[t].push_back(evaluator.evaluate(graphs[g], inputs[g]));
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (size_t t = 0; t < got.size(); ++t)
    for (size_t i = 0; i < got[t].size(); ++i) expect_agree(got[t][i], want[(i + t) % graphs.size()], "threads");
}

TEST(CompiledEvaluator, RefusesWhatTheInterpreterRefuses) {
  const Graph graph = parse("graph @g(%x: f32[2]) -> (%y: f32[2]) { %y = neg(%x) }");
  EXPECT_THROW(CompiledEvaluator().evaluate(graph, {Tensor(DType::kF32, {3})}), UserError);
}

TEST(CompiledEvaluator, MeasuresGraphsAndKernels) {
  const auto product = [](int n) {
    const std::string type = "f32[" + std::to_string(n) + "," + std::to_string(n) + "]";
    return parse("graph @p(%x: " + type + ", %w: " + type + ") -> (%y: " + type + ") { %y = matmul(%x, %w) }");
  };
  CompiledEvaluator evaluator;
  GraphTimer& timer = evaluator;
  const auto inputs = [](int n) { return std::vector<Tensor>(2, Tensor(DType::kF32, {n, n})); };
  const Duration small = timer.time(product(16), inputs(16), 0.02), large = timer.time(product(256), inputs(256), 0.05);
  EXPECT_GE(small.runs, 3);
  EXPECT_GT(small.least, 0);
  EXPECT_LE(small.least, small.median);
  EXPECT_GT(large.least, small.least);  // 4096 times the work

  const LoopProgram loops = parse_loop_program(R"(
kernel @copy(x: f32[65536]) -> (y: f32[65536]) {
  for i in 0..65536 { y[i] = x[i] }
})");
  const Duration kernel = timer.time(loops, random_loop_inputs(loops, 1), 0.02);
  EXPECT_GE(kernel.runs, 3);
  EXPECT_GT(kernel.least, 0);
}

}  // namespace
}  // namespace tessera
