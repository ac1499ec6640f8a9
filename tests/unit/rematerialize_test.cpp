// Programs that fit into less memory: the bits stay, budgets hold or the program is as small as it gets.
#include "program/rematerialize.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <iostream>

#include "autodiff/gradients.h"
#include "graph/parser.h"
#include "graph_passes/pass.h"
#include "interp/graph_interp.h"
#include "interp/program_interp.h"
#include "lower/lower.h"
#include "ops/op_table.h"
#include "ops/op_util.h"
#include "program/memory_plan.h"
#include "program/order_calls.h"
#include "program/parser.h"
#include "program/printer.h"
#include "program/reuse_buffers.h"
#include "program/verify.h"
#include "random_graph.h"
#include "random_steps.h"
#include "schedule/choose.h"

namespace tessera {
namespace {

using testing::IsEmpty;

Target machine() {
  Target target;
  target.triple = "x86_64-unknown-linux-gnu";
  target.features = {"avx", "avx2", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl"};
  return target;
}

// A random graph with the gradients of its inputs: what is computed first is needed last.
Graph forward_and_backward(uint64_t seed) {
  Graph graph = random_graph(seed, 12 + static_cast<int>(seed % 24));
  std::vector<ValueId> wrt;
  for (const ValueId input : graph.inputs)
    if (is_real(graph.type(input).dtype)) wrt.push_back(input);
  return gradients(graph, graph.outputs[0], wrt, standard_ops());
}

Program program_of(Graph graph, bool scheduled) {
  GraphInterpreter evaluator;
  const Target target = machine();
  const PassContext ctx{standard_ops(), evaluator, target, 3};
  for (const GraphPass& pass : graph_pipeline()) graph = pass.run(graph, ctx);
  Program program = lower_graph(graph);
  if (scheduled) schedule_program(program, target, 3);
  order_calls(program);
  return program;
}

int64_t planned_bytes(Program program) {
  reuse_buffers(program);
  plan_memory(program);
  return session_bytes(program);
}

void expect_same(const std::vector<Tensor>& a, const std::vector<Tensor>& b, const Program& program) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_EQ(std::memcmp(a[i].bytes(), b[i].bytes(), static_cast<size_t>(a[i].num_bytes())), 0)
        << "output " << i << "\n"
        << print(program, {.elide_constants = true});
}

struct Tally {
  int asked = 0, held = 0, smaller = 0, repeated = 0;
  int held_with_less = 0;  // of those held, budgets below what the program needs anyway
};

// With ever less memory: the bits of `expected`.
void check_budgets(const Program& program, const std::vector<Tensor>& inputs, Tally& tally) {
  const std::vector<Tensor> expected = interpret(program, inputs);
  const int64_t whole = planned_bytes(program);
  for (const int percent : {100, 90, 75, 60, 50, 30}) {
    const int64_t budget = whole * percent / 100;
    if (budget == 0) return;
    Program small = program;
    rematerialize(small, budget);
    ASSERT_THAT(verify(small), IsEmpty()) << print(small, {.elide_constants = true});
    if (percent == 100) {
      EXPECT_EQ(print(small), print(program));
    }
    expect_same(interpret(small, inputs, ProgramRun{{}, true}), expected, small);
    reuse_buffers(small);
    plan_memory(small);
    ASSERT_THAT(verify(small), IsEmpty()) << print(small, {.elide_constants = true});
    expect_same(interpret(small, inputs, ProgramRun{{}, true}), expected, small);
    EXPECT_EQ(print(parse_program(print(small))), print(small));
    const int64_t needed = session_bytes(small);
    EXPECT_LE(needed, whole) << percent;
    ++tally.asked;
    tally.held += needed <= budget;
    tally.held_with_less += needed <= budget && percent < 100;
    tally.smaller += needed < whole;
    tally.repeated += static_cast<int>(small.calls.size() - program.calls.size());
  }
}

void say(const char* what, const Tally& tally) {
  std::cout << fmt::format("[ info     ] {}: {} of {} budgets held, {} programs smaller, {} calls repeated\n", what,
                           tally.held, tally.asked, tally.smaller, tally.repeated);
}

TEST(Rematerialize, RandomGraphsWithGradients) {
  Tally tally;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const Graph graph = forward_and_backward(seed);
    check_budgets(program_of(graph, seed % 2 == 0), random_inputs(graph, seed), tally);
    ASSERT_FALSE(HasFatalFailure()) << "seed " << seed;
  }
  say("gradients", tally);
  EXPECT_GT(tally.held, 40);
  EXPECT_GT(tally.held_with_less, 8);
  EXPECT_GT(tally.smaller, 30);
  EXPECT_GT(tally.repeated, 100);
}

TEST(Rematerialize, RandomPrograms) {
  Tally tally;
  for (uint64_t seed = 100; seed < 140; ++seed) {
    const Graph graph = random_graph(seed, 10 + static_cast<int>(seed % 30));
    check_budgets(program_of(graph, seed % 2 == 0), random_inputs(graph, seed), tally);
    ASSERT_FALSE(HasFatalFailure()) << "seed " << seed;
  }
  say("forward", tally);
  EXPECT_GT(tally.repeated, 0);
}

TEST(Rematerialize, BranchesAndLoops) {
  Tally tally;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const Program program = random_steps(seed);
    check_budgets(program, random_step_inputs(program, seed), tally);
    ASSERT_FALSE(HasFatalFailure()) << "seed " << seed;
  }
  say("steps", tally);
  EXPECT_GT(tally.repeated, 0);
}

// A chain of layers, each with a weight of its own, and the gradients of all: each layer's values again on the way
// back.
Graph layers(int count, int size) {
  std::string text = "graph @layers(%v0: f32[" + std::to_string(size) + "]";
  for (int i = 1; i <= count; ++i) text += fmt::format(", %w{}: f32[{}]", i, size);
  text += fmt::format(") -> (%v{1}: f32[{0}]) {{\n", size, count);
  for (int i = 1; i <= count; ++i) {
    text += fmt::format("  %p{1} = mul(%v{2}, %w{1}) : f32[{0}]\n", size, i, i - 1);
    text += fmt::format("  %q{1} = sin(%p{1}) : f32[{0}]\n", size, i);
    text += fmt::format("  %r{1} = reduce(%q{1}) {{axes = [0], keepdims = true, kind = \"sum\"}} : f32[1]\n", size, i);
    text += fmt::format("  %v{1} = add(%q{1}, %r{1}) : f32[{0}]\n", size, i);
  }
  Graph graph = parse_graph(text + "}\n", standard_ops());
  return gradients(graph, graph.outputs[0], {graph.inputs.begin() + 1, graph.inputs.end()}, standard_ops());
}

// Memory for about the square root of the layers is enough, with less than twice the calls.
TEST(Rematerialize, DeepChainsBecomeSegments) {
  const Graph graph = layers(36, 4096);
  const Program program = program_of(graph, true);
  const std::vector<Tensor> inputs = random_inputs(graph, 5), expected = interpret(program, inputs);
  const int64_t whole = planned_bytes(program), budget = whole * 45 / 100;
  Program small = program;
  rematerialize(small, budget);
  EXPECT_LE(planned_bytes(small), budget) << "of " << whole;
  EXPECT_LT(small.calls.size(), program.calls.size() * 2);
  expect_same(interpret(small, inputs), expected, small);
}

TEST(Rematerialize, NamesWhatIsInTheWay) {
  Program program = program_of(layers(4, 1024), true);
  plan_memory(program);
  const MemoryPeak peak = memory_peak(program);
  EXPECT_EQ(peak.bytes, arena_lower_bound(program));
  ASSERT_GT(peak.values.size(), 1U);
  int64_t sum = 0;
  for (const MemoryPeak::Value& value : peak.values) {
    sum += value.bytes;
    EXPECT_NE(value.why, "");
  }
  EXPECT_EQ(sum, peak.bytes);
  EXPECT_GE(peak.values[0].bytes, peak.values[1].bytes);
}

}  // namespace
}  // namespace tessera
