// Programs of branches and loops: text form, verifier, what they compute.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <random>

#include "graph/flow.h"
#include "interp/program_interp.h"
#include "program/join_pieces.h"
#include "program/memory_plan.h"
#include "program/parser.h"
#include "program/pass.h"
#include "program/printer.h"
#include "program/steps.h"
#include "program/verify.h"
#include "program_checks.h"
#include "random_steps.h"
#include "support/error.h"

namespace tessera {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// h = h + x[t], stacked, while the sum is below %most; afterwards the branch takes the last sum or its negative.
constexpr const char* kScan = R"(program @scan(%x, %h0, %most) -> (%all, %y) {
  plan arena 0 weights 0 scratch 0
  index t < 4
  buffer %x: f32[4,2] input 0
  buffer %h0: f32[2] input 1
  buffer %most: f32[1] input 2
  buffer %all: f32[4,2] output 0
  buffer %y: f32[2] output 1
  buffer %h: f32[2] arena
  buffer %h_next: f32[2] arena
  buffer %go: bool[1] arena
  buffer %go_next: bool[1] arena
  buffer %positive: bool[1] arena
  buffer %x_t: f32[2] input alias %x from (t * 8)
  buffer %all_t: f32[2] output alias %all from (t * 8)
  define rule "naive"
  kernel @copy(a: f32[2]) -> (b: f32[2]) {
    for i in 0..2 { b[i] = a[i] }
  }
  define rule "naive"
  kernel @add(a: f32[2], b: f32[2]) -> (c: f32[2]) {
    for i in 0..2 { c[i] = (a[i] + b[i]) }
  }
  define rule "naive"
  kernel @less(a: f32[2], b: f32[1]) -> (c: bool[1]) {
    c[0] = (a[0] < b[0])
  }
  define rule "naive"
  kernel @number<t>(a: f32[2]) -> (b: f32[2]) {
    for i in 0..2 { b[i] = (a[i] + (cast:f32(t) * 100:f32)) }
  }
  define rule "naive"
  kernel @is_positive(a: f32[2]) -> (b: bool[1]) {
    b[0] = (0:f32 < a[0])
  }
  define rule "naive"
  kernel @neg(a: f32[2]) -> (b: f32[2]) {
    for i in 0..2 { b[i] = (0:f32 - a[i]) }
  }
  call @copy(%h0, %h)
  call @less(%h, %most, %go)
  loop t < 4 while %go carry %h = %h_next, %go = %go_next loc("Loop_0") {
    call @add(%h, %x_t, %h_next) loc("Add_1")
    call @number(%h_next, %all_t)
    call @less(%h_next, %most, %go_next)
  }
  call @is_positive(%h, %positive)
  branch %positive loc("If_2") {
    call @copy(%h, %y)
  } else {
    call @neg(%h, %y)
  }
}
)";

Tensor floats(const std::vector<int64_t>& dims, const std::vector<double>& values) {
  Tensor tensor(DType::kF32, dims);
  for (size_t i = 0; i < values.size(); ++i) tensor.set_double(static_cast<int64_t>(i), values[i]);
  return tensor;
}

std::vector<double> values(const Tensor& tensor) {
  std::vector<double> result;
  for (int64_t i = 0; i < tensor.num_elements(); ++i) result.push_back(tensor.get_double(i));
  return result;
}

TEST(ProgramSteps, RoundTripIsIdentical) {
  const Program program = parse_program(kScan);
  EXPECT_EQ(print(program), kScan);
  EXPECT_THAT(verify(program), IsEmpty());
}

TEST(ProgramSteps, LoopsCarryAndMoveAndBranchesChoose) {
  Program program = parse_program(kScan);
  const Tensor x = floats({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  for (const bool planned : {false, true}) {
    if (planned) plan_memory(program);
    ASSERT_THAT(verify(program), IsEmpty());
    const auto run = [&](double first, double most) {
      return interpret(program, {x, floats({2}, {first, 10}), floats({1}, {most})}, ProgramRun{{}, planned});
    };
    auto result = run(0, 100);
    EXPECT_THAT(values(result[0]), ElementsAre(1, 12, 104, 116, 209, 222, 316, 330));
    EXPECT_THAT(values(result[1]), ElementsAre(16, 30));
    result = run(-100, 100);
    EXPECT_THAT(values(result[1]), ElementsAre(84, -30));
    result = run(0, 3);  // ends behind the second iteration
    EXPECT_THAT(values(result[1]), ElementsAre(4, 16));
    EXPECT_EQ(result[0].get_double(3), 116);
    EXPECT_TRUE(std::isnan(result[0].get_double(4)));
    result = run(5, 3);  // never begins
    EXPECT_THAT(values(result[1]), ElementsAre(5, 10));
  }
}

TEST(ProgramSteps, ALoopEndsWhereItsIndexDoes) {
  std::string text = kScan;
  text.replace(text.find("loop t < 4 while"), 16, "loop t < %n while");
  text.replace(text.find("  buffer %most:"), 0, "  buffer %n: i64[] input 3\n");
  text.replace(text.find("%most) ->"), 9, "%most, %n) ->");
  const Program program = parse_program(text);
  EXPECT_EQ(print(program), text);
  EXPECT_THAT(verify(program), IsEmpty());
  const Tensor x = floats({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  for (const int64_t n : {-1, 0, 1, 4, 1000}) {
    Tensor count(DType::kI64, {});
    count.set_int(0, n);
    const auto result = interpret(program, {x, floats({2}, {0, 0}), floats({1}, {100}), count});
    EXPECT_EQ(result[1].get_double(0), n <= 0 ? 0 : n == 1 ? 1 : 16);
  }
}

std::string violation(const std::string& from, const std::string& to) {
  std::string text = kScan;
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  const auto violations = verify(parse_program(text.replace(at, from.size(), to)));
  return violations.empty() ? "none" : violations[0];
}

TEST(ProgramSteps, AreVerified) {
  EXPECT_THAT(violation("while %go carry", "while %h carry"),
              HasSubstr("loop t of Loop_0: the condition h is f32[2] instead of one bool"));
  EXPECT_THAT(violation("branch %positive", "branch %h"), HasSubstr("branch of If_2: the condition h is f32[2]"));
  EXPECT_THAT(violation("loop t < 4 while %go carry %h = %h_next, %go = %go_next", "loop t carry %h = %h_next"),
              HasSubstr("loop t of Loop_0: it never ends"));
  EXPECT_THAT(violation("loop t < 4", "loop t < 5"), HasSubstr("5 iterations, the index ends at 3"));
  EXPECT_THAT(violation("loop t < 4", "loop t < %go"), HasSubstr("the count go is bool[1] instead of one i64"));
  EXPECT_THAT(violation("%go = %go_next", "%go = %h_next"), HasSubstr("go is bool[1], its next contents h_next are"));
  EXPECT_THAT(violation("%go = %go_next", "%h = %h_next"), HasSubstr("h is carried, and so is h of the same bytes"));
  EXPECT_THAT(violation("carry %h = %h_next", "carry %h0 = %h_next"), HasSubstr("the input h0 is written"));
  EXPECT_THAT(violation("carry %h = %h_next", "carry swap %h = %h_next"), HasSubstr("none"));
  EXPECT_THAT(violation("call @is_positive(%h, %positive)", "call @number(%h, %y)\n  call @is_positive(%h, %positive)"),
              HasSubstr("call of number: it takes t, which has no value here"));
  EXPECT_THAT(violation("call @is_positive(%h,", "call @is_positive(%x_t,"),
              HasSubstr("x_t begins where t says, which has no value here"));
  EXPECT_THAT(violation("index t < 4", "index t < 5"),
              HasSubstr("buffer x_t: 8 bytes from 0..32 on, its root x has 32"));
  // Bytes.
  EXPECT_THAT(violation("  call @copy(%h0, %h)\n", ""), HasSubstr("call of less: h is read before it is written"));
  EXPECT_THAT(violation("call @less(%h, %most, %go)", "call @less(%h0, %most, %go_next)"),
              HasSubstr("loop t of Loop_0: go is read before it is written"));
  EXPECT_THAT(violation("    call @less(%h_next, %most, %go_next)\n", ""),
              HasSubstr("loop t of Loop_0: go_next is read before it is written"));
  EXPECT_THAT(violation("branch %positive", "branch %go_next"), HasSubstr("none"));
  EXPECT_THAT(violation("call @neg(%h, %y)", "call @neg(%h, %h_next)"), HasSubstr("y: the output is never written"));
  Program program = parse_program(kScan);
  program.steps[1].blocks.emplace_back();
  EXPECT_THAT(verify(program)[0], HasSubstr("loop t of Loop_0: 2 blocks instead of 1"));
  program = parse_program(kScan);
  program.calls.push_back(program.calls[0]);
  EXPECT_THAT(verify(program)[0], HasSubstr("steps: they make 8 of 9 calls"));
  program = parse_program(kScan);
  std::swap(program.steps[0], program.steps[2]);
  EXPECT_THAT(verify(program)[0], HasSubstr("calls: 1 from 5 on, behind 0 of 8"));
  program = parse_program(kScan);
  program.steps[1].carried[0].next = 99;
  EXPECT_THAT(verify(program)[0], HasSubstr("loop t of Loop_0: no buffer 99"));
}

// Buffers of a planned program on top of each other, which no straight line would forbid.
TEST(ProgramSteps, BytesAreFollowedThroughBlocks) {
  const auto with = [](const std::string& a, const std::string& b) {
    Program program = parse_program(kScan);
    plan_memory(program);
    EXPECT_THAT(verify(program), IsEmpty());
    const auto find = [&](const std::string& name) -> ProgramBuffer& {
      return *std::find_if(program.buffers.begin(), program.buffers.end(),
                           [&](const ProgramBuffer& buffer) { return buffer.name == name; });
    };
    find(a).offset = find(b).offset;
    const auto violations = verify(program);
    return violations.empty() ? std::string("none") : violations[0];
  };
  EXPECT_THAT(with("h_next", "h"), HasSubstr("call of add: the output h_next shares bytes with parameter a"));
  EXPECT_THAT(with("go_next", "h"), HasSubstr("loop t of Loop_0: go_next is read after h was written over it"));
  EXPECT_THAT(with("go", "h_next"), HasSubstr("none"));  // go is read before the iteration only
  EXPECT_THAT(with("go", "h"), HasSubstr("call of less: the output go shares bytes with parameter a"));
}

TEST(RandomSteps, PlansAndPassesLeaveWhatTheyCompute) {
  int swaps = 0, in_place = 0, loops = 0, over = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const Program program = random_steps(seed);
    const std::vector<Tensor> inputs = random_step_inputs(program, seed);
    ASSERT_THAT(verify(program), IsEmpty()) << print(program);
    ASSERT_EQ(print(parse_program(print(program))), print(program));
    const std::vector<Tensor> expected = interpret(program, inputs);
    for (const Tensor& output : expected)
      for (int64_t i = 0; i < output.num_elements(); ++i)
        ASSERT_FALSE(std::isnan(output.get_double(i))) << print(program);
    Program planned = program;
    plan_memory(planned);
    ASSERT_THAT(verify(planned), IsEmpty()) << print(planned);
    expect_same(interpret(planned, inputs, ProgramRun{{}, true}), expected, planned);
    Program optimized = program;
    for (const ProgramPass& pass : program_pipeline()) {
      if (pass.phase != ProgramPhase::kScheduled) continue;
      pass.run(optimized, machine());
      ASSERT_THAT(verify(optimized), IsEmpty()) << pass.name << "\n" << print(optimized);
      expect_same(interpret(optimized, inputs), expected, optimized);
      ASSERT_EQ(print(parse_program(print(optimized))), print(optimized)) << pass.name;
    }
    plan_memory(optimized);
    ASSERT_THAT(verify(optimized), IsEmpty()) << print(optimized);
    expect_same(interpret(optimized, inputs, ProgramRun{{}, true}), expected, optimized);
    const auto count = [](const Program& of, const auto& what) {
      int result = 0;
      for_each_step(of.steps, [&](const ProgramStep& step) {
        for (const CarriedValue& carried : step.carried) result += what(carried) ? 1 : 0;
      });
      return result;
    };
    swaps += count(optimized, [](const CarriedValue& carried) { return carried.swap; });
    in_place += count(program, [](const CarriedValue&) { return true; }) -
                count(optimized, [](const CarriedValue&) { return true; });
    for_each_step(program.steps, [&](const ProgramStep& step) { loops += step.kind == StepKind::kLoop ? 1 : 0; });
    for (const ProgramBuffer& buffer : optimized.buffers) over += buffer.over >= 0 ? 1 : 0;
  }
  std::cout << fmt::format("[ info     ] {} loops; carried: {} in place, {} change places; {} buffers taken over\n",
                           loops, in_place, swaps, over);
  EXPECT_GT(swaps, 20);
  EXPECT_GT(in_place, 20);
  EXPECT_GT(over, 20);
}

// A plan is damaged at random; whenever the verifier has nothing to say, the results are right.
TEST(RandomSteps, TheVerifierCatchesBrokenPlans) {
  std::mt19937 random(11);
  int caught = 0, harmless = 0;
  for (uint64_t seed = 500; seed < 560; ++seed) {
    Program program = random_steps(seed);
    const std::vector<Tensor> inputs = random_step_inputs(program, seed);
    const std::vector<Tensor> expected = interpret(program, inputs);
    for (const ProgramPass& pass : program_pipeline())
      if (pass.phase == ProgramPhase::kScheduled && seed % 2 == 0) pass.run(program, machine());
    plan_memory(program);
    std::vector<size_t> roots;
    for (size_t i = 0; i < program.buffers.size(); ++i)
      if (program.buffers[i].alias_of < 0 && program.buffers[i].kind == BufferKind::kArena &&
          program.buffers[i].offset >= 0)
        roots.push_back(i);
    if (roots.size() < 2) continue;
    for (int round = 0; round < 30; ++round) {
      Program broken = program;
      const size_t a = roots[random() % roots.size()], b = roots[random() % roots.size()];
      broken.buffers[a].offset = broken.buffers[b].offset;
      if (!verify(broken).empty()) {
        ++caught;
        continue;
      }
      ++harmless;
      SCOPED_TRACE(fmt::format("{} at the place of {}", program.buffers[a].name, program.buffers[b].name));
      expect_same(interpret(broken, inputs), expected, broken);
    }
  }
  std::cout << fmt::format("[ info     ] {} broken plans caught, {} changes were harmless\n", caught, harmless);
  EXPECT_GT(caught, 100);
  EXPECT_GT(harmless, 5);
}

// The pieces of a flow keep their steps, and each knows which are its own.
TEST(ProgramSteps, PiecesOfAFlowKeepThem) {
  auto flow = std::make_shared<Flow>();
  flow->pieces.resize(3);
  std::vector<Program> pieces;
  for (const uint64_t seed : {4, 5, 6}) pieces.push_back(random_steps(seed));
  pieces[1] = parse_program(R"(program @straight(%x) -> (%y) {
  plan arena 0 weights 0 scratch 0
  buffer %x: f32[2] input 0
  buffer %y: f32[2] output 0
  define rule "naive"
  kernel @copy(a: f32[2]) -> (b: f32[2]) { for i in 0..2 { b[i] = a[i] } }
  call @copy(%x, %y)
}
)");
  size_t steps = 1;
  for (Program& piece : pieces) {
    plan_memory(piece);
    steps += piece.steps.size();
  }
  const Program joined = join_pieces(flow, pieces);
  EXPECT_THAT(verify(joined), IsEmpty());
  ASSERT_EQ(joined.steps.size(), steps);
  for (size_t p = 0; p < pieces.size(); ++p) {
    const ProgramPiece& piece = joined.pieces[p];
    EXPECT_EQ(piece.num_steps, p == 1 ? 1U : pieces[p].steps.size());
    EXPECT_EQ(joined.steps[piece.first_step].first_call, piece.first_call);
  }
}

struct Mistake {
  const char* name;
  const char* from;
  const char* to;
  const char* id;
  const char* message;
};
void PrintTo(const Mistake& mistake, std::ostream* out) { *out << mistake.name; }

class StepTextMistake : public testing::TestWithParam<Mistake> {};

TEST_P(StepTextMistake, IsTold) {
  std::string text = kScan;
  const std::string from = GetParam().from;
  const size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos);
  try {
    parse_program(text.replace(at, from.size(), GetParam().to), "m.program");
    FAIL() << "accepted";
  } catch (const UserError& error) {
    EXPECT_EQ(error.diagnostic().id, GetParam().id) << error.what();
    EXPECT_THAT(error.diagnostic().message, HasSubstr(GetParam().message));
    EXPECT_THAT(error.diagnostic().node, testing::StartsWith("m.program:"));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, StepTextMistake,
    testing::Values(
        Mistake{"Index", "loop t", "loop s", "TSR-3202", "there is no index 's'"},
        Mistake{"IndexTwice", "index t < 4", "index t < 4\n  index t < 5", "TSR-3203", "symbol t is declared twice"},
        Mistake{"Condition", "while %go carry", "while %stop carry", "TSR-3202", "there is no buffer '%stop'"},
        Mistake{"Carried", "%h = %h_next", "%h to %h_next", "TSR-3001", "expected"},
        Mistake{"Statement", "    call @neg(", "    buffer @neg(", "TSR-3001",
                "expected call, branch, loop, bind, start, wait, copy or '}'"},
        Mistake{"NoLargest", "index t < 4", "index t", "TSR-3204", "has no smallest and largest value"},
        Mistake{"ShapeOfIndex", "x_t: f32[2] input alias", "x_t: f32[t] input alias", "TSR-3003", "unknown symbol 't'"},
        Mistake{"Depth", "branch %positive loc(\"If_2\") {",
                "branch %positive { branch %positive { branch %positive { branch %positive { branch %positive { branch "
                "%positive { branch %positive { branch %positive { branch %positive { branch %positive { branch "
                "%positive { branch %positive { branch %positive { branch %positive { branch %positive { branch "
                "%positive { branch %positive {",
                "TSR-3201", "more than 16 blocks inside each other"},
        Mistake{"Negative", "index t < 4", "index t < -4", "TSR-3201", "a largest number of iterations of -4"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tessera
