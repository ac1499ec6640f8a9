// Kernels that do the work of several keep what these compute (te/joined_program.h): one after the other, the members
// give what the graph says.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <random>

#include "../support/symbolic_graphs.h"
#include "codegen/llvm/target.h"
#include "graph/bind_symbols.h"
#include "graph_passes/pass.h"
#include "interp/graph_interp.h"
#include "interp/program_interp.h"
#include "loop/naive_loops.h"
#include "loop/verify.h"
#include "lower/lower.h"
#include "program/pass.h"
#include "program/verify.h"
#include "schedule/choose.h"
#include "schedule/fusion/join_plan.h"
#include "support/test_data.h"

namespace tessera {
namespace {

using namespace symbolic_graphs;

Program lowered(Graph graph, const Target& target) {
  const KnownSymbols known(graph.symbols);
  GraphInterpreter evaluator;
  const PassContext context{standard_ops(), evaluator, target, 3};
  for (const GraphPass& pass : graph_pipeline()) graph = pass.run(graph, context);
  Program program = lower_graph(graph);
  for (const ProgramPass& pass : program_pipeline())
    if (pass.phase == ProgramPhase::kLowered) pass.run(program, target);
  return program;
}

Program scheduled(const Graph& graph, const Target& target, const ChoosePoint& choose = {}) {
  Program program = lowered(graph, target);
  schedule_program(program, target, 3, {}, {}, choose);
  return program;
}

std::vector<const JoinedProgram*> joined_in(const Program& program) {
  std::vector<const JoinedProgram*> found;
  for (const Kernel& kernel : program.kernels)
    if (kernel.joined) found.push_back(kernel.joined.get());
  return found;
}

Graph attention_of(int64_t heads, bool by_words, bool with_mask) {
  Builder b({range("n", 1, 2), range("l", 2, 130)});
  const Expr n = b.symbol(0), l = b.symbol(1);
  const auto operand = [&](const char* name) {
    if (!by_words) return b.input(name, {n, heads, l, 16});
    return b.add("transpose", {b.reshape(b.input(name, {n, l, heads * 16}), {n, l, heads, 16})},
                 {{"perm", Ints{0, 2, 1, 3}}});
  };
  std::vector<ValueId> operands = {operand("q"), operand("k"), operand("v")};
  if (with_mask) operands.push_back(b.input("mask", {l, l}));
  ValueId y = b.composite("attention", operands, {{"scale", 0.5}});
  if (by_words) y = b.reshape(b.add("transpose", {y}, {{"perm", Ints{0, 2, 1, 3}}}), {n, l, heads * 16});
  return b.result({y});
}

// Of which there are blocks of columns.
Graph long_attention() {
  Builder b({range("n", 1, 2), range("l", 2, 2000)});
  const auto operand = [&](const char* name, const Expr& rows) { return b.input(name, {b.symbol(0), 1, rows, 8}); };
  return b.result({b.composite("attention", {operand("q", 50), operand("k", b.symbol(1)), operand("v", b.symbol(1))},
                               {{"scale", 0.5}})});
}

Graph softmax_of_rows() {
  Builder b({range("n", 1, 4), range("l", 1, 200)});
  return b.result({b.composite("softmax", {b.input("x", {64, b.symbol(0), b.symbol(1)})}, {{"axis", int64_t{2}}})});
}

// Each joined kernel's members instead of its loops.
void check_members(const Graph& graph, const Ints& point) {
  const Graph bound = bind_symbols(graph, point);
  Target target = parse_target("native");
  target.num_threads = 1;
  Program program = scheduled(bound, target);
  ASSERT_FALSE(joined_in(program).empty());
  for (Kernel& kernel : program.kernels) {
    if (!kernel.joined) continue;
    ASSERT_EQ(problem_of(*kernel.joined), "") << to_string(*kernel.joined);
    ASSERT_GE(kernel.joined->members.size(), 2U);
    kernel.program = naive_loops(*kernel.joined);
    verify_or_throw(kernel.program, "naive_loops");
  }
  verify_or_throw(program, "naive_loops");
  const std::vector<Tensor> inputs = inputs_at(bound, 5);
  const Tensor want = GraphInterpreter().evaluate(bound, inputs)[0];
  EXPECT_TRUE(tensors_agree(interpret(program, inputs)[0], want));
}

TEST(JoinedProgram, MembersComputeWhatTheKernelDoes) {
  for (const Ints& point : {Ints{1, 60}, Ints{2, 130}, Ints{2, 97}}) {
    check_members(attention_of(3, false, false), point);
    check_members(attention_of(4, true, true), point);
    check_members(softmax_of_rows(), point);
  }
}

TEST(JoinedProgram, OpenSizesStayFormulas) {
  for (const bool by_words : {false, true}) {
    const Program program = scheduled(attention_of(3, by_words, true), parse_target("native"));
    const auto joined = joined_in(program);
    ASSERT_EQ(joined.size(), 1U);
    EXPECT_EQ(problem_of(*joined[0]), "") << to_string(*joined[0]);
    EXPECT_FALSE(static_dims(joined[0]->result().buffer->shape));
    EXPECT_NE(to_string(*joined[0]).find("joined @"), std::string::npos);
  }
}

// A call of a joined kernel names the nodes of all its members.
TEST(JoinedProgram, CallsNameAllNodes) {
  const Program program = scheduled(attention_of(3, true, true), parse_target("native"));
  ASSERT_EQ(joined_in(program).size(), 1U);
  for (const KernelCall& call : program.calls)
    if (program.kernels[static_cast<size_t>(call.kernel)].joined)
      for (const char* node : {"attention", "transpose"}) EXPECT_NE(call.loc.find(node), std::string::npos) << call.loc;
}

TEST(JoinedProgram, CanonicalTextHasNoNames) {
  const Target target = parse_target("native");
  const auto text_of = [&](const Graph& graph) { return canonical_text(*joined_in(scheduled(graph, target)).at(0)); };
  const std::string text = text_of(attention_of(3, false, true));
  EXPECT_EQ(text, text_of(attention_of(3, false, true)));
  EXPECT_NE(text, text_of(attention_of(5, false, true)));
  EXPECT_NE(text, text_of(attention_of(3, false, false)));
}

// Blocks of rows and of columns are knobs: every point computes the same.
TEST(JoinedProgram, PointsComputeWhatTheKernelDoes) {
  std::mt19937 random(3);
  Target target = parse_target("native");
  target.num_threads = 1;
  for (const auto& [graph, point] : std::vector<std::pair<Graph, Ints>>{{attention_of(3, false, false), {1, 60}},
                                                                        {attention_of(4, true, true), {2, 97}},
                                                                        {softmax_of_rows(), {3, 130}},
                                                                        {long_attention(), {1, 1100}}}) {
    const Graph bound = bind_symbols(graph, point);
    const std::vector<Tensor> inputs = inputs_at(bound, 5);
    const Tensor want = GraphInterpreter().evaluate(bound, inputs)[0];
    const Program standard = scheduled(bound, target);
    const auto joined = joined_in(standard);
    ASSERT_EQ(joined.size(), 1U);
    const auto space =
        joined_knob_space(*find_joining_step("fuse_rows"), *joined[0], {}, target, first_answer_of(target, 3));
    ASSERT_TRUE(std::holds_alternative<KnobSpace>(space));
    const KnobSpace& knobs = std::get<KnobSpace>(space);
    EXPECT_EQ(knobs.knobs.size(), point[1] > 1000 ? 2U : 1U);
    EXPECT_GT(knobs.size(), 2);
    for (int i = 0; i < (point[1] > 1000 ? 2 : 6); ++i) {
      const KnobPoint at = knobs.point(static_cast<int64_t>(random()) % knobs.size());
      const Program program = scheduled(
          bound, target, [&](const Kernel& kernel) { return kernel.joined ? TunedChoice{at, ""} : TunedChoice(); });
      ASSERT_EQ(joined_in(program).size(), 1U);
      EXPECT_TRUE(std::any_of(program.kernels.begin(), program.kernels.end(), [&](const Kernel& kernel) {
        return kernel.rule == to_string(at);
      })) << to_string(at);
      verify_or_throw(program, to_string(at));
      EXPECT_TRUE(tensors_agree(interpret(program, inputs)[0], want)) << to_string(at);
    }
  }
}

// A plan says of calls that it leaves apart why.
TEST(JoinPlan, SaysWhy) {
  const Target target = parse_target("native");
  const auto reasons = [&](const Graph& graph) {
    const Program program = lowered(graph, target);
    const JoinPlan plan = plan_joins(program, target, {{"fuse_rows"}, first_answer_of(target, 3), {}, {}});
    std::string text = fmt::format("{} joined:", plan.joins.size());
    for (const RefusedJoin& refused : plan.refused) text += " " + refused.reason + ";";
    return text;
  };
  const auto softmax = [](bool show_exponentials) {
    Builder b({});
    const ValueId x = b.input("x", {64, 100});
    const auto reduce = [&](const char* kind, ValueId of) {
      return b.add("reduce", {of}, {{"axes", Ints{1}}, {"keepdims", true}, {"kind", std::string(kind)}});
    };
    const ValueId largest = reduce("max", x);
    const ValueId powers = b.add("exp", {b.add("sub", {x, largest})});
    const ValueId y = b.add("div", {powers, reduce("sum", powers)});
    return show_exponentials ? b.result({y, powers}) : b.result({y});
  };
  EXPECT_EQ(reasons(softmax(false)), "1 joined:");
  EXPECT_EQ(reasons(softmax(true)),
            "0 joined: what lies between them is an output, a state, or has a place in another value;");
}

TEST(JoinedProgram, ProblemsAreNamed) {
  const Program program = scheduled(attention_of(3, false, true), parse_target("native"));
  const JoinedProgram good = *joined_in(program).at(0);
  JoinedProgram bad = good;
  std::swap(bad.members[0], bad.members[1]);
  EXPECT_NE(problem_of(bad), "");
  bad = good;
  bad.members.pop_back();
  EXPECT_EQ(problem_of(bad), "the last member does not write the result");
  bad = good;
  bad.members[0].args.pop_back();
  EXPECT_NE(problem_of(bad).find("arguments"), std::string::npos);
  bad = good;
  bad.members[0].args[0] = bad.values.size();
  EXPECT_NE(problem_of(bad).find("that is not there"), std::string::npos);
  bad = good;
  bad.values[0].buffer = make_buffer("x", DType::kI32, bad.values[0].buffer->shape);
  EXPECT_NE(problem_of(bad).find("and it is i32"), std::string::npos) << problem_of(bad);
}

}  // namespace
}  // namespace tessera
