// Nodes with control flow, and state: what they mean, what passes and lowering make of them.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <array>

#include "graph/control_flow.h"
#include "graph/hash.h"
#include "graph/parser.h"
#include "graph/printer.h"
#include "graph/verify.h"
#include "graph_passes/pass.h"
#include "interp/graph_interp.h"
#include "interp/graph_session.h"
#include "interp/program_interp.h"
#include "lower/lower.h"
#include "ops/op_table.h"
#include "program/memory_plan.h"
#include "program/pass.h"
#include "program/verify.h"
#include "random_control_flow.h"
#include "support/error.h"
#include "support/test_data.h"

namespace tessera {
namespace {

constexpr uint64_t kSeeds = 300;

Graph parse(const std::string& text) { return parse_graph(text, standard_ops()); }

Target make_target() {
  Target target;
  target.triple = "x86_64-unknown-linux-gnu";
  target.features = {"avx", "avx2", "fma"};
  return target;
}

std::vector<Tensor> evaluate(const Graph& graph, uint64_t seed) {
  return GraphInterpreter().evaluate(graph, control_flow_inputs(graph, seed));
}

void expect_same(const std::vector<Tensor>& found, const std::vector<Tensor>& want, const std::string& what) {
  ASSERT_EQ(found.size(), want.size()) << what;
  for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(tensors_agree(found[i], want[i])) << what << ", output " << i;
}

TEST(ControlFlow, TextIsReadBack) {
  size_t loops = 0, ifs = 0, calls = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Graph graph = random_control_flow(seed);
    ASSERT_THAT(verify(graph), testing::IsEmpty()) << seed;
    const Graph again = parse(print(graph));
    EXPECT_EQ(print(again), print(graph)) << seed;
    EXPECT_EQ(structural_hash(again), structural_hash(graph)) << seed;
    expect_same(evaluate(again, seed), evaluate(graph, seed), std::to_string(seed));
    for (const Node& node : graph.nodes()) {
      loops += node.op->kind == OpKind::kLoop;
      ifs += node.op->kind == OpKind::kIf;
      calls += node.op->kind == OpKind::kCall;
    }
  }
  EXPECT_GT(loops, 100u);
  EXPECT_GT(ifs, 100u);
  EXPECT_GT(calls, 100u);
}

TEST(ControlFlow, CallsOfOneFunctionShareItsRegion) {
  const Graph graph =
      parse(standard_ops().get("call").example.substr(0, standard_ops().get("call").example.find("run")));
  EXPECT_EQ(graph.nodes()[0].regions[0], graph.nodes()[1].regions[0]);
  GraphInterpreter evaluator;
  const Target target = make_target();
  for (const GraphPass& pass : graph_pipeline()) {
    const Graph after = pass.run(graph, {standard_ops(), evaluator, target});
    EXPECT_EQ(after.nodes()[0].regions[0], after.nodes()[1].regions[0]) << pass.name;
  }
}

TEST(ControlFlow, EveryPassKeepsWhatItComputes) {
  GraphInterpreter evaluator;
  const Target target = make_target();
  const PassContext context{standard_ops(), evaluator, target, 3};
  uint64_t hoisted = 0, unrolled = 0;
  for (uint64_t seed = 0; seed < kSeeds / 3; ++seed) {
    const Graph before = random_control_flow(seed);
    const std::vector<Tensor> want = evaluate(before, seed);
    Graph graph = before;
    for (const GraphPass& pass : graph_pipeline()) {
      const std::string what = std::string(pass.name) + " on seed " + std::to_string(seed);
      const Graph alone = pass.run(before, context);
      ASSERT_THAT(verify(alone), testing::IsEmpty()) << what;
      expect_same(evaluate(alone, seed), want, what);
      if (pass.name == "hoist_loop_invariants") hoisted += print(alone) != print(before);
      if (pass.name == "unroll_loops") unrolled += print(alone) != print(before);
      graph = pass.run(graph, context);
      ASSERT_THAT(verify(graph), testing::IsEmpty()) << what << " behind the others";
    }
    expect_same(evaluate(graph, seed), want, "all passes on seed " + std::to_string(seed));
  }
  EXPECT_GT(hoisted, kSeeds / 30) << "what loops compute alike in each iteration";
  EXPECT_GT(unrolled, kSeeds / 30) << "loops of few iterations";
}

TEST(ControlFlow, LoweredProgramsComputeTheSame) {
  GraphInterpreter evaluator;
  const Target target = make_target();
  const PassContext context{standard_ops(), evaluator, target, 3};
  size_t loops = 0, branches = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Graph before = random_control_flow(seed);
    const std::vector<Tensor> want = evaluate(before, seed), inputs = control_flow_inputs(before, seed);
    for (const bool optimised : {false, true}) {
      Graph graph = before;
      for (const GraphPass& pass : graph_pipeline())
        if (optimised || pass.min_level == 0) graph = pass.run(graph, context);
      const std::string what = "seed " + std::to_string(seed) + (optimised ? ", optimised" : "");
      Program program = lower_graph(graph);
      ASSERT_THAT(verify(program), testing::IsEmpty()) << what;
      for (const ProgramStep& step : program.steps) {
        loops += step.kind == StepKind::kLoop;
        branches += step.kind == StepKind::kBranch;
      }
      expect_same(interpret(program, inputs), want, what);
      plan_memory(program);
      ASSERT_THAT(verify(program), testing::IsEmpty()) << what << ", planned";
      ProgramRun run;
      run.poison_dead = true;
      expect_same(interpret(program, inputs, run), want, what + ", planned");
      Program passed = lower_graph(graph);
      for (const ProgramPass& pass : program_pipeline()) {
        pass.run(passed, target);
        ASSERT_THAT(verify(passed), testing::IsEmpty()) << what << ", " << pass.name;
        expect_same(interpret(passed, inputs, run), want, what + ", " + std::string(pass.name));
      }
    }
  }
  EXPECT_GT(loops, 100u);
  EXPECT_GT(branches, 100u);
}

// ---- what the random graphs meet only now and then ----

void expect_result(const std::string& text, const std::vector<Tensor>& inputs, const std::vector<double>& want) {
  const Graph graph = parse(text);
  const auto check = [&](const std::vector<Tensor>& results, const char* how) {
    std::vector<double> found;
    for (const Tensor& result : results)
      for (int64_t i = 0; i < result.num_elements(); ++i) found.push_back(result.get_double(i));
    EXPECT_EQ(found, want) << how << "\n" << text;
  };
  check(GraphInterpreter().evaluate(graph, inputs), "the graph");
  Program program = lower_graph(graph);
  ASSERT_THAT(verify(program), testing::IsEmpty());
  plan_memory(program);
  check(interpret(program, inputs), "the program");
}

Tensor floats(const std::vector<int64_t>& dims, const std::vector<double>& values) {
  Tensor tensor(DType::kF32, dims);
  for (size_t i = 0; i < values.size(); ++i) tensor.set_double(static_cast<int64_t>(i), values[i]);
  return tensor;
}

Tensor number(int64_t value) {
  Tensor tensor(DType::kI64, {});
  tensor.set_int(0, value);
  return tensor;
}

TEST(ControlFlow, CarriedValuesChangePlaces) {
  const std::string text = R"(
graph @main(%n: i64[], %x: f32[2], %y: f32[2], %z: f32[2]) -> (%a: f32[2], %b: f32[2], %c: f32[2]) {
  %a, %b, %c = loop(%n, %x, %y, %z) {counted = true, num_carried = 3} ({
    graph @body(%i: i64[], %p: f32[2], %q: f32[2], %r: f32[2]) -> (%q: f32[2], %p: f32[2], %r: f32[2]) {
    }
  }) : f32[2], f32[2], f32[2]
})";
  const std::vector<Tensor> xyz = {floats({2}, {1, 2}), floats({2}, {3, 4}), floats({2}, {5, 6})};
  expect_result(text, {number(0), xyz[0], xyz[1], xyz[2]}, {1, 2, 3, 4, 5, 6});
  expect_result(text, {number(-3), xyz[0], xyz[1], xyz[2]}, {1, 2, 3, 4, 5, 6});
  expect_result(text, {number(3), xyz[0], xyz[1], xyz[2]}, {3, 4, 1, 2, 5, 6});
}

// The hidden state of a recurrent layer: an iteration reads the row that the one before has written, so that nothing is
// carried from a buffer to another. (Rows that are an output of the model are written there.)
TEST(ControlFlow, CarriedValuesThatAreStackedAreRows) {
  for (const bool reversed : {false, true}) {
    const std::string text = R"(
graph @main(%s: f32[2], %x: f32[3,2]) -> (%last: f32[2], %y: f32[3,2], %more: f32[3,2]) {
  %end, %rows, %twice = loop(%s, %x) {num_carried = 1, num_scanned = 1, scan_reversed = [1], stack_reversed = [REVERSED, 0]} ({
    graph @body(%i: i64[], %a: f32[2], %row: f32[2]) -> (%b: f32[2], %b: f32[2], %t: f32[2]) {
      %b = add(%a, %row) : f32[2]
      %t = mul(%b, %a) : f32[2]
    }
  }) : f32[2], f32[3,2], f32[3,2]
  %more = add(%rows, %twice) : f32[3,2]
  %last = neg(%end) : f32[2]
  %y = neg(%rows) : f32[3,2]
})";
    const std::string its_text = std::string(text).replace(text.find("REVERSED"), 8, reversed ? "1" : "0");
    const Program program = lower_graph(parse(its_text));
    const auto loop = std::find_if(program.steps.begin(), program.steps.end(),
                                   [](const ProgramStep& step) { return step.kind == StepKind::kLoop; });
    ASSERT_NE(loop, program.steps.end());
    EXPECT_THAT(loop->carried, testing::IsEmpty());
    // b: 1 + 5 = 6, 6 + 3 = 9, 9 + 1 = 10 and 2 + 6, 8 + 4, 12 + 2; t: 6, 54, 90 and 16, 96, 168.
    const std::vector<double> rows =
        reversed ? std::vector<double>{10, 14, 9, 12, 6, 8} : std::vector<double>{6, 8, 9, 12, 10, 14};
    std::vector<double> want = {-10, -14};
    for (const double value : rows) want.push_back(-value);
    const double twice[] = {6, 16, 54, 96, 90, 168};
    for (size_t i = 0; i < 6; ++i) want.push_back(rows[i] + twice[i]);
    expect_result(its_text, {floats({2}, {1, 2}), floats({3, 2}, {1, 2, 3, 4, 5, 6})}, want);
  }
}

// Loops of both blocks of a branch carry its result.
TEST(ControlFlow, SeveralLoopsMayCarryTheSameBytes) {
  const std::string text = R"(
graph @main(%c: bool[], %n: i64[], %z: i64[]) -> (%used: i64[]) {
  %both = if(%c, %n, %z) ({
    graph @yes(%n: i64[], %z: i64[]) -> (%end: i64[]) {
      %end = loop(%n, %z) {counted = true, num_carried = 1} ({
        graph @body(%i: i64[], %a: i64[]) -> (%i: i64[]) {
        }
      }) : i64[]
    }
    graph @no(%n: i64[], %z: i64[]) -> (%end: i64[]) {
      %end = loop(%z) {max_trip = [3], num_carried = 1} ({
        graph @body(%i: i64[], %a: i64[]) -> (%i: i64[]) {
        }
      }) : i64[]
    }
  }) : i64[]
  %used = neg(%both) : i64[]
})";
  const auto truth = [](bool value) {
    Tensor tensor(DType::kBool, {});
    tensor.set_int(0, value);
    return tensor;
  };
  expect_result(text, {truth(true), number(0), number(7)}, {-7});
  expect_result(text, {truth(true), number(5), number(7)}, {-4});
  expect_result(text, {truth(false), number(5), number(7)}, {-2});
}

// The row that the next iteration reads is written by either block of a branch.
TEST(ControlFlow, RowsMayBeWrittenByBranches) {
  const std::string text = R"(
graph @main(%s: f32[2], %x: f32[3,2]) -> (%last: f32[2], %more: f32[3,2]) {
  %zero = constant {value = dense<i64[] 0>} : i64[]
  %end, %rows, %twice = loop(%s, %x, %zero) {num_carried = 1, num_scanned = 1} ({
    graph @body(%i: i64[], %a: f32[2], %row: f32[2], %zero: i64[]) -> (%b: f32[2], %b: f32[2], %t: f32[2]) {
      %first = eq(%i, %zero) : bool[]
      %b = if(%first, %a, %row) ({
        graph @yes(%a: f32[2], %row: f32[2]) -> (%b: f32[2]) {
          %b = sub(%a, %row) : f32[2]
        }
        graph @no(%a: f32[2], %row: f32[2]) -> (%b: f32[2]) {
          %b = add(%a, %row) : f32[2]
        }
      }) : f32[2]
      %t = mul(%b, %a) : f32[2]
    }
  }) : f32[2], f32[3,2], f32[3,2]
  %more = add(%rows, %twice) : f32[3,2]
  %last = neg(%end) : f32[2]
})";
  // b: 1 - 1, 0 + 3, 3 + 5 and 3 - 2, 1 + 4, 5 + 6; t: 0, 0, 24 and 3, 5, 55.
  expect_result(text, {floats({2}, {1, 3}), floats({3, 2}, {1, 2, 3, 4, 5, 6})}, {-8, -11, 0, 4, 3, 10, 32, 66});
}

TEST(ControlFlow, WhileCountsItsIterations) {
  // The Collatz sequence of n: how many steps it takes to 1.
  const std::string text = R"(
graph @main(%n: i64[]) -> (%steps: i64[]) {
  %zero = constant {value = dense<i64[] 0>} : i64[]
  %one = constant {value = dense<i64[] 1>} : i64[]
  %start = gt(%n, %one) : bool[]
  %last, %steps = loop(%start, %n, %zero) {has_condition = true, num_carried = 2} ({
    graph @body(%i: i64[], %x: i64[], %count: i64[]) -> (%go: bool[], %y: i64[], %next: i64[]) {
      %one = constant {value = dense<i64[] 1>} : i64[]
      %two = constant {value = dense<i64[] 2>} : i64[]
      %three = constant {value = dense<i64[] 3>} : i64[]
      %bit = bitwise_and(%x, %one) : i64[]
      %odd = eq(%bit, %one) : bool[]
      %y = if(%odd, %x, %one, %two, %three) ({
        graph @then(%x: i64[], %one: i64[], %two: i64[], %three: i64[]) -> (%b: i64[]) {
          %a = mul(%x, %three) : i64[]
          %b = add(%a, %one) : i64[]
        }
        graph @else(%x: i64[], %one: i64[], %two: i64[], %three: i64[]) -> (%b: i64[]) {
          %b = div(%x, %two) : i64[]
        }
      }) : i64[]
      %next = add(%i, %one) : i64[]
      %go = gt(%y, %one) : bool[]
    }
  }) : i64[], i64[]
})";
  expect_result(text, {number(1)}, {0});
  expect_result(text, {number(6)}, {8});
  expect_result(text, {number(27)}, {111});
}

TEST(ControlFlow, WhatDoesNotFitIsRefused) {
  const auto message = [](const std::string& text) {
    try {
      parse(text);
    } catch (const UserError& error) {
      return error.diagnostic().id + " " + error.diagnostic().message;
    }
    return std::string("accepted");
  };
  EXPECT_EQ(message(R"(graph @main(%c: bool[], %x: f32[2]) -> (%y: f32[2]) {
    %y = if(%c, %x) ({
      graph @then(%a: f32[2]) -> (%a: f32[2]) { }
      graph @else(%a: f32[2]) -> (%b: f32[1]) { %b = constant {value = dense<f32[1] 1>} : f32[1] }
    }) })"),
            "TSR-2005 operator if: result 0 is f32[2] in one region, f32[1] in the other");
  EXPECT_EQ(message(R"(graph @main(%x: f32[2]) -> (%y: f32[2]) {
    %y = loop(%x) {num_carried = 1} ({ graph @body(%i: i64[], %a: f32[2]) -> (%a: f32[2]) { } }) })"),
            "TSR-2005 operator loop: a loop without an end");
  EXPECT_EQ(message(R"(graph @main(%n: i64[], %x: f32[2]) -> (%y: f32[2]) {
    %y = loop(%n, %x) {counted = true} ({ graph @body(%i: i64[], %a: f32[2]) -> (%a: f32[2]) { } }) })"),
            "TSR-2030 operator loop: stacked results of a loop that nothing bounds");
  EXPECT_EQ(message(R"(graph @main(%x: f32[2]) -> (%y: f32[2]) {
    %y = loop(%x) {max_trip = [2], num_carried = 1} ({ graph @body(%i: i64[], %a: f32[3]) -> (%a: f32[3]) { } }) })"),
            "TSR-2005 operator loop: input %a of the region is f32[3]");
  EXPECT_EQ(message(R"(graph @main(%x: f32[2], %y: f32[3]) -> (%z: f32[]) {
    %z = loop(%x, %y) {num_carried = 0, num_scanned = 2} ({
      graph @body(%i: i64[], %a: f32[], %b: f32[]) -> (%a: f32[]) { } }) })"),
            "TSR-2024 operator loop: operand 2 of type f32[3] has the extent 3 of dimension 0");
  EXPECT_EQ(message("graph @main(%x: f32[2], %s: f32[2] state(\"a\")) -> (%x: f32[2]) { }"),
            "TSR-3010 state \"a\" has an input and no output");
  EXPECT_EQ(message("graph @main(%s: f32[2] state(\"a\", dense<f32[1] 1>)) -> (%s: f32[2] state(\"a\")) { }"),
            "TSR-3010 the initial value of state \"a\" is no tensor of its type");
  EXPECT_EQ(message("graph @main(%s: f32[2] state(\"a\")) -> (%s: f32[2] state(\"b\")) { }"),
            "TSR-3010 the output of state \"b\" stands where that of \"a\" is expected");
}

// ---- state ----

const char* kCounter = R"(
graph @main(%x: f32[2], %s: f32[2] state("sum"), %n: i64[] state("calls", dense<i64[] 5>))
    -> (%y: f32[2], %t: f32[2] state("sum"), %m: i64[] state("calls"), %c: i64[2] check("the calls", "at most 7")) {
  %t = add(%s, %x) : f32[2]
  %y = neg(%t) : f32[2]
  %one = constant {value = dense<i64[] 1>} : i64[]
  %seven = constant {value = dense<i64[] 7>} : i64[]
  %m = add(%n, %one) : i64[]
  %few = le(%m, %seven) : bool[]
  %f = cast(%few) {to = i64} : i64[]
  %g = reshape(%f) {shape = [1]} : i64[1]
  %h = reshape(%m) {shape = [1]} : i64[1]
  %c = concat(%g, %h) {axis = 0} : i64[2]
})";

TEST(State, LivesFromCallToCall) {
  const Graph graph = parse(kCounter);
  EXPECT_EQ(graph.num_own_inputs(), 1u);
  EXPECT_EQ(graph.num_own_outputs(), 1u);
  GraphInterpreter evaluator;
  GraphSession session(graph, evaluator);
  EXPECT_EQ(session.call({floats({2}, {1, 2})})[0].get_double(1), -2);
  const auto second = session.call({floats({2}, {1, 2})});
  ASSERT_EQ(second.size(), 2u);  // the output and the check
  EXPECT_EQ(second[0].get_double(1), -4);
  EXPECT_EQ(second[1].get_int(1), 7);
  // The third call's check does not hold: it leaves the state as it was.
  EXPECT_EQ(session.call({floats({2}, {1, 2})})[1].get_int(0), 0);
  EXPECT_EQ(session.states()[0].get_double(1), 4);
  EXPECT_EQ(session.states()[1].get_int(0), 7);
  session.reset();
  EXPECT_EQ(session.states()[0].get_double(1), 0);
  EXPECT_EQ(session.states()[1].get_int(0), 5);
}

TEST(State, IsKeptByPassesAndPartOfTheHash) {
  const Graph graph = parse(kCounter);
  EXPECT_EQ(print(parse(print(graph))), print(graph));
  GraphInterpreter evaluator;
  const Target target = make_target();
  Graph after = graph;
  for (const GraphPass& pass : graph_pipeline()) {
    after = pass.run(after, {standard_ops(), evaluator, target});
    ASSERT_THAT(verify(after), testing::IsEmpty()) << pass.name;
    ASSERT_EQ(after.states.size(), 2u) << pass.name;
    EXPECT_EQ(after.value(after.state_output(1)).name, "m") << pass.name;
  }
  GraphSession session(after, evaluator);
  session.call({floats({2}, {1, 2})});
  EXPECT_EQ(session.call({floats({2}, {1, 2})})[0].get_double(0), -2);
  Graph other = graph;
  other.states[0].name = "total";
  EXPECT_NE(structural_hash(other), structural_hash(graph));
  other = graph;
  other.states[1].initial = nullptr;
  EXPECT_NE(structural_hash(other), structural_hash(graph));
  other = graph;
  std::swap(other.states[0], other.states[1]);
  EXPECT_THAT(verify(other), testing::Not(testing::IsEmpty()));
  EXPECT_THAT(verify(lower_graph(graph)), testing::IsEmpty());
}

// A stream of random numbers is a key and a state that counts.
TEST(State, CountsRandomNumbers) {
  const Graph graph = parse(R"(
graph @main(%key: u32[2], %n: i64[] state("drawn")) -> (%y: u32[3,2], %m: i64[] state("drawn")) {
  %y = random_bits(%key, %n) {shape = [3, 2]} : u32[3,2]
  %three = constant {value = dense<i64[] 3>} : i64[]
  %m = add(%n, %three) : i64[]
})");
  Tensor key(DType::kU32, {2});
  key.set_int(0, 0x13198a2e);
  key.set_int(1, 0x03707344);
  GraphInterpreter evaluator;
  GraphSession session(graph, evaluator);
  std::vector<int64_t> drawn;
  for (int call = 0; call < 2; ++call) {
    const Tensor y = session.call({key})[0];
    for (int64_t i = 0; i < 6; ++i) drawn.push_back(y.get_int(i));
  }
  const Graph at_once = parse(R"(
graph @main(%key: u32[2]) -> (%y: u32[12]) {
  %y = random_bits(%key) {shape = [12]} : u32[12]
})");
  const Tensor all = GraphInterpreter().evaluate(at_once, {key})[0];
  for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(drawn[static_cast<size_t>(i)], all.get_int(i));
}

// Known answers of Random123 (tests/kat_vectors: threefry2x32, 20 rounds), by the evaluator and by the loops.
TEST(RandomBits, AreThoseOfThePapersLibrary) {
  const Graph graph = parse(R"(
graph @main(%key: u32[2], %n: i64[]) -> (%y: u32[2]) {
  %y = random_bits(%key, %n) {shape = [2]} : u32[2]
})");
  struct Vector {
    std::array<uint32_t, 2> counter, key, want;
  };
  for (const Vector& v : {Vector{{0, 0}, {0, 0}, {0x6b200159, 0x99ba4efe}},
                          Vector{{0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}, {0x1cb996fc, 0xbb002be7}},
                          Vector{{0x243f6a88, 0x85a308d3}, {0x13198a2e, 0x03707344}, {0xc4923a9c, 0x483df7a0}}}) {
    Tensor key(DType::kU32, {2});
    key.set_int(0, v.key[0]);
    key.set_int(1, v.key[1]);
    const Tensor n = number(static_cast<int64_t>(static_cast<uint64_t>(v.counter[1]) << 32 | v.counter[0]));
    for (const Tensor& y :
         {GraphInterpreter().evaluate(graph, {key, n})[0], interpret(lower_graph(graph), {key, n})[0]}) {
      EXPECT_EQ(y.get_int(0), v.want[0]);
      EXPECT_EQ(y.get_int(1), v.want[1]);
    }
  }
}

TEST(RandomBits, LoopsGiveTheSameBits) {
  Tensor key(DType::kU32, {2});
  key.set_int(1, 77);
  for (const int64_t count : {0, 1, 2, 3, 31, 32, 33, 64, 1001}) {
    const Graph graph = parse(fmt::format(
        "graph @main(%key: u32[2], %n: i64[]) -> (%y: u32[{0}]) {{ %y = random_bits(%key, %n) {{shape = [{0}]}} }}",
        count));
    const std::vector<Tensor> inputs = {key, number(0xfffffff0)};
    const Tensor want = GraphInterpreter().evaluate(graph, inputs)[0];
    EXPECT_TRUE(tensors_agree(interpret(lower_graph(graph), inputs)[0], want)) << count;
  }
}

}  // namespace
}  // namespace tessera
