// Every graph pass keeps what a graph computes: the interpreter's answer before and after, on random graphs. And what
// the golden texts do not show: why fusion refused, what the pipeline promises.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "graph/parser.h"
#include "graph/printer.h"
#include "graph/verify.h"
#include "graph_passes/fusion/fuse_groups.h"
#include "graph_passes/pass.h"
#include "graph_passes/quantized/lower_qdq_matmul.h"
#include "interp/graph_interp.h"
#include "ops/op_table.h"
#include "random_graph.h"

namespace tessera {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kGraphs = 10;  // a sanitizer makes the interpreter about ten times as slow
#else
constexpr int kGraphs = 60;
#endif
constexpr int kNodes = 18;

Target make_target(bool avx512) {
  Target target;
  target.features = {"avx", "avx2", "fma"};
  if (avx512) target.features.insert("avx512f");
  return target;
}

void expect_close(const std::vector<Tensor>& got, const std::vector<Tensor>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].dims(), want[i].dims()) << what;
    double difference = 0, largest = 0;
    for (int64_t k = 0; k < want[i].num_elements(); ++k) {
      const double g = got[i].get_double(k), w = want[i].get_double(k);
      if (std::isnan(w) && std::isnan(g)) continue;
      if (std::isinf(w) && w == g) continue;
      difference = std::max(difference, std::isfinite(g - w) ? std::fabs(g - w) : INFINITY);
      if (std::isfinite(w)) largest = std::max(largest, std::fabs(w));
    }
    ASSERT_LE(difference, 2e-5 * largest + 1e-30) << what << ", output " << i;
  }
}

// Element by element with the same bits; NaN is NaN.
void expect_exact(const std::vector<Tensor>& got, const std::vector<Tensor>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].dims(), want[i].dims()) << what;
    for (int64_t e = 0; e < got[i].num_elements(); ++e) {
      if (!is_float(got[i].dtype())) {
        ASSERT_EQ(got[i].get_int(e), want[i].get_int(e)) << what << ", output " << i << ", element " << e;
        continue;
      }
      const double g = got[i].get_double(e), w = want[i].get_double(e);
      ASSERT_TRUE((std::isnan(g) && std::isnan(w)) || (g == w && std::signbit(g) == std::signbit(w)))
          << what << ", output " << i << ", element " << e << ": " << g << " instead of " << w;
    }
  }
}

void expect_same_interface(const Graph& a, const Graph& b, const std::string& what) {
  ASSERT_EQ(a.inputs.size(), b.inputs.size()) << what;
  ASSERT_EQ(a.outputs.size(), b.outputs.size()) << what;
  for (size_t i = 0; i < a.inputs.size(); ++i) {
    EXPECT_EQ(a.value(a.inputs[i]).name, b.value(b.inputs[i]).name) << what;
    EXPECT_EQ(a.type(a.inputs[i]), b.type(b.inputs[i])) << what;
  }
  for (size_t i = 0; i < a.outputs.size(); ++i) {
    EXPECT_EQ(a.value(a.outputs[i]).name, b.value(b.outputs[i]).name) << what;
    EXPECT_EQ(a.type(a.outputs[i]), b.type(b.outputs[i])) << what;
  }
}

// A random graph, and what it computes: the same for every pass and level.
struct RandomCase {
  uint64_t seed;
  Graph graph;
  std::string text;
  std::vector<Tensor> inputs, results;
};

std::vector<RandomCase> make_cases(uint64_t first, int count, int nodes) {
  std::vector<RandomCase> cases;
  GraphInterpreter evaluator;
  for (uint64_t seed = first; seed < first + static_cast<uint64_t>(count); ++seed) {
    RandomCase c{seed, random_graph(seed, nodes), {}, {}, {}};
    EXPECT_TRUE(verify(c.graph).empty()) << "seed " << seed;
    c.text = print(c.graph);
    c.inputs = random_inputs(c.graph, seed);
    c.results = evaluator.evaluate(c.graph, c.inputs);
    cases.push_back(std::move(c));
  }
  return cases;
}

class EveryPass : public testing::TestWithParam<std::string> {};

TEST_P(EveryPass, KeepsWhatRandomGraphsCompute) {
  const GraphPass* pass = find_graph_pass(GetParam());
  ASSERT_NE(pass, nullptr);
  GraphInterpreter evaluator;
  const Target target = make_target(false);
  const PassContext ctx{standard_ops(), evaluator, target, 3};
  static const std::vector<RandomCase> cases = make_cases(0, kGraphs, kNodes);
  int changed = 0;
  for (const RandomCase& c : cases) {
    const std::string what = GetParam() + " on seed " + std::to_string(c.seed);
    const Graph after = pass->run(c.graph, ctx);
    const auto problems = verify(after);
    ASSERT_TRUE(problems.empty()) << what << ": " << problems[0];
    expect_same_interface(c.graph, after, what);
    const std::string text = print(after);
    if (text == c.text) continue;  // it computes the same
    ++changed;
    const std::vector<Tensor> results = evaluator.evaluate(after, c.inputs);
    if (pass->numerics == Numerics::kExact) expect_exact(results, c.results, what);
    else expect_close(results, c.results, what);
    EXPECT_EQ(text, print(parse_graph(text, standard_ops()))) << what;
  }
  // Under a sanitizer there are too few graphs to say.
  // lower_precision does nothing unless it is asked to, and two passes nothing without products of bytes:
  // tests/driver/precision_test.cpp and byte_products_test.cpp have them. Loops are in control_flow_test.cpp, weights
  // in blocks in tests/python/gguf_test.py, bytes that come back in cancel_quantisation_test.cpp, sums that become
  // bytes in scale_sums_once_test.cpp.
  const std::set<std::string> idle = {"lower_precision",       "hoist_zero_points",   "lower_qdq_matmul",
                                      "hoist_loop_invariants", "unroll_loops",        "copy_dequantisations",
                                      "byte_activations",      "cancel_quantisation", "scale_sums_once"};
  if (idle.contains(GetParam())) {
    EXPECT_EQ(changed, 0);
  } else if (kGraphs > 10) {
    EXPECT_GT(changed, kGraphs / 10) << "the random graphs hardly exercise " << GetParam();
  }
}

std::vector<std::string> pass_names() {
  std::set<std::string> names;
  for (const GraphPass& pass : graph_pipeline()) names.emplace(pass.name);
  return {names.begin(), names.end()};
}

INSTANTIATE_TEST_SUITE_P(GraphPasses, EveryPass, testing::ValuesIn(pass_names()),
                         [](const auto& info) { return info.param; });

class Pipeline : public testing::TestWithParam<std::pair<int, bool>> {};

TEST_P(Pipeline, KeepsWhatRandomGraphsCompute) {
  const auto [level, avx512] = GetParam();
  GraphInterpreter evaluator;
  const Target target = make_target(avx512);
  const PassContext ctx{standard_ops(), evaluator, target, level};
  static const std::vector<RandomCase> cases = make_cases(1000, 2 * kGraphs, 2 * kNodes);
  for (const RandomCase& c : cases) {
    Graph graph = c.graph;
    const std::string what = "seed " + std::to_string(c.seed);
    for (const GraphPass& pass : graph_pipeline()) {
      if (pass.min_level > level) continue;
      graph = pass.run(graph, ctx);
      const auto problems = verify(graph);
      ASSERT_TRUE(problems.empty()) << what << " after " << pass.name << ": " << problems[0];
    }
    expect_same_interface(c.graph, graph, what);
    for (const Node& node : graph.nodes()) {
      EXPECT_NE(node.op->kind, OpKind::kComposite) << what;
      if (level > 0 && !node.attrs.has("in_place")) {
        EXPECT_NE(node.op->kind, OpKind::kExpression) << what << ": " << node.op->name << " is in no group";
      }
      // Several results are stored in one pass over one shape.
      if (node.op->kind != OpKind::kGroup) continue;
      for (const ValueId result : node.outputs) {
        EXPECT_TRUE(same_shape(graph.type(result).shape, graph.type(node.outputs[0]).shape)) << what;
      }
    }
    expect_close(evaluator.evaluate(graph, c.inputs), c.results, what);
  }
}

INSTANTIATE_TEST_SUITE_P(GraphPasses, Pipeline,
                         testing::Values(std::pair{0, false}, std::pair{1, false}, std::pair{2, true},
                                         std::pair{3, false}, std::pair{3, true}),
                         [](const auto& info) {
                           return "Level" + std::to_string(info.param.first) + (info.param.second ? "Avx512" : "Avx2");
                         });

// What --numerics strict leaves.
TEST(GraphPasses, ExactOnesTogetherKeepEveryBit) {
  GraphInterpreter evaluator;
  const Target target = make_target(true);
  PassContext ctx{standard_ops(), evaluator, target};
  ctx.loosest = Numerics::kExact;
  for (const RandomCase& c : make_cases(3000, 2 * kGraphs, 2 * kNodes)) {
    Graph graph = c.graph;
    for (const GraphPass& pass : graph_pipeline())
      if (pass.may_run(ctx.loosest)) graph = pass.run(graph, ctx);
    expect_exact(evaluator.evaluate(graph, c.inputs), c.results, "seed " + std::to_string(c.seed));
  }
}

TEST(GraphPasses, ASecondRunOfThePipelineFindsNothingToDo) {
  GraphInterpreter evaluator;
  const Target target = make_target(true);
  const PassContext ctx{standard_ops(), evaluator, target, 3};
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Graph graph = random_graph(seed, kNodes);
    for (const GraphPass& pass : graph_pipeline()) graph = pass.run(graph, ctx);
    Graph again = graph;
    for (const GraphPass& pass : graph_pipeline()) again = pass.run(again, ctx);
    EXPECT_EQ(print(again), print(graph)) << "seed " << seed;
  }
}

// What refuses a fusion is said once for each pair, in words.
std::map<std::string, std::string> refusals_of(const std::string& text) {
  GraphInterpreter evaluator;
  const Target target = make_target(false);
  Remarks remarks;
  fuse_groups(parse_graph(text, standard_ops()), {standard_ops(), evaluator, target, 3, &remarks});
  std::map<std::string, std::string> result;
  for (const Remark& remark : remarks.list())
    if (remark.kind == Remark::Kind::kRefused) result[remark.node + " -> " + remark.other] = remark.text;
  return result;
}

TEST(IntegerProductRemarks, NameTheReasonOfARefusal) {
  GraphInterpreter evaluator;
  Target target = make_target(false);
  target.triple = "x86_64-unknown-linux-gnu";
  target.features.insert("avxvnni");
  Remarks remarks;
  lower_qdq_matmul(parse_graph(R"(
graph @main(%x: u8[4,8], %w: i8[8,2]) -> (%y: f32[4,2]) {
  %s = constant {value = dense<f32[] 0.5>} : f32[]
  %x.wide = cast(%x) {to = i32} : i32[4,8]
  %x.real = cast(%x.wide) {to = f32} : f32[4,8]
  %a = mul(%x.real, %s) : f32[4,8]
  %w.wide = cast(%w) {to = i32} : i32[8,2]
  %w.real = cast(%w.wide) {to = f32} : f32[8,2]
  %b = mul(%w.real, %s) : f32[8,2]
  %y = matmul(%a, %b) : f32[4,2] loc("Product")
})",
                               standard_ops()),
                   {standard_ops(), evaluator, target, 3, &remarks});
  ASSERT_EQ(remarks.list().size(), 1u);
  EXPECT_EQ(remarks.list()[0].node, "Product");
  EXPECT_EQ(remarks.list()[0].text, "its second factor is not constant");
}

TEST(FusionRemarks, NameTheReasonOfEveryRefusal) {
  const auto refusals = refusals_of(R"(
graph @main(%x: f32[4,8], %w: f32[8,8]) -> (%y: f32[4,8], %b: f32[4,8], %n: f32[4,1], %t: f32[8,4]) {
  %a = exp(%x) loc("Exp")
  %b = matmul(%a, %w) loc("MatMul_0")
  %c = matmul(%b, %w) loc("MatMul_1")
  %s = reduce(%c) {axes = [1], keepdims = true, kind = "sum"} loc("Sum")
  %y = sub(%c, %s) loc("Sub")
  %m = matmul(%x, %w) loc("MatMul_2")
  %t = transpose(%m) {perm = [1, 0]} loc("Transpose")
  %n = sqrt(%s) loc("Sqrt")
})");
  const std::map<std::string, std::string> want = {
      {"Exp -> MatMul_0", "a contraction reads its operands many times, from packed memory"},
      {"MatMul_0 -> MatMul_1", "its result is an output of the graph"},
      {"MatMul_1 -> Sum", "a kernel has one reduction"},
      {"MatMul_2 -> Transpose", "the shapes differ: f32[8,4] and f32[4,8]"},
      {"Sum -> Sub", "the shapes differ: f32[4,8] and f32[4,1]"},
  };
  EXPECT_EQ(refusals, want);
}

}  // namespace
}  // namespace tessera
