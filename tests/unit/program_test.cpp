// Programs: text form, verifier, memory plan, and that a plan does not change what a program computes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <iostream>
#include <random>

#include "interp/program_interp.h"
#include "loop/parser.h"
#include "program/memory_plan.h"
#include "program/parser.h"
#include "program/printer.h"
#include "program/verify.h"
#include "support/error.h"

namespace tessera {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kText = R"(program @main(%x) -> (%y) {
  plan arena 128 weights 64 scratch 0
  buffer %x: f32[2,3] input 0
  buffer %y: f32[6] output 0
  buffer %w: f32[6] weight at 0 = dense<f32[6] 1 2 3 4 5 6>
  buffer %t: f32[2,3] arena at 0
  buffer %"t/flat view": f32[6] arena at 0 alias %t
  buffer %u: f32[6]{0/4,0%4} arena at 64
  define rule "naive" flops 6 bytes 48 refused "register_tile: no reduction" loc("Relu_0")
  kernel @relu(x: f32[2,3]) -> (y: f32[2,3]) {
    for i in 0..2 { for j in 0..3 { y[i, j] = max(x[i, j], 0:f32) } }
  }
  define rule "injective"
  kernel @add(x: f32[6], w: f32[6]) -> (y: f32[2,4]) {
    parallel for i in 0..6 { y[floordiv(i, 4), floormod(i, 4)] = (x[i] + w[i]) }
  }
  define rule "injective"
  kernel @flat(x: f32[8]) -> (y: f32[6]) {
    for i in 0..6 { y[i] = (x[i] * 2:f32) }
  }
  call @relu(%x, %t) loc("Relu_0")
  call @add(%"t/flat view", %w, %u)
  call @flat(%u, %y) loc("Mul_2")
}
)";

TEST(ProgramText, RoundTripIsIdentical) {
  const Program program = parse_program(kText);
  EXPECT_EQ(print(program), kText);
  EXPECT_THAT(verify(program), testing::IsEmpty());
}

TEST(ProgramText, DuplicateNamesAreToldApart) {
  Program program = parse_program(kText);
  program.buffers[3].name = "x";
  program.kernels[1].program.name = "relu";
  const std::string text = print(program);
  EXPECT_THAT(text, HasSubstr("call @relu_1(%\"t/flat view\", %w, %u)"));
  EXPECT_THAT(text, HasSubstr("call @relu(%x, %x_1)"));
  EXPECT_EQ(print(parse_program(text)), text);
}

TEST(ProgramText, ElidedWeightsRoundTrip) {
  Program program = parse_program(kText);
  auto weight = std::make_shared<Tensor>(DType::kF32, std::vector<int64_t>{100});
  for (int64_t i = 0; i < 100; ++i) weight->set_double(i, static_cast<double>(i));
  program.buffers[2].data = weight;
  const std::string text = print(program, {.elide_constants = true});
  EXPECT_THAT(text, HasSubstr("elided<f32[100] 0x"));
  EXPECT_EQ(print(parse_program(text), {.elide_constants = true}), text);
  const std::string full = print(program);
  EXPECT_THAT(full, HasSubstr("hex<f32[100] 0x000000000000803f"));
  EXPECT_EQ(print(parse_program(full)), full);
}

TEST(ProgramInterp, RunsTheCalls) {
  Tensor x(DType::kF32, {2, 3});
  for (int64_t i = 0; i < 6; ++i) x.set_double(i, static_cast<double>(i) - 2);
  std::vector<std::string> seen;
  const std::vector<Tensor> outputs =
      interpret(parse_program(kText), {x}, [&](const KernelCall& call, const Tensor& output) {
        seen.push_back(call.loc + std::to_string(output.num_elements()));
      });
  ASSERT_EQ(outputs.size(), 1u);
  std::vector<double> values;
  for (int64_t i = 0; i < 6; ++i) values.push_back(outputs[0].get_double(i));
  EXPECT_THAT(values, ElementsAre(2, 4, 6, 10, 14, 18));
  EXPECT_THAT(seen, ElementsAre("Relu_06", "8", "Mul_26"));
  EXPECT_THROW(interpret(parse_program(kText), {}), InternalError);
  EXPECT_THROW(interpret(parse_program(kText), {Tensor(DType::kF32, {6})}), InternalError);
}

TEST(ProgramInterp, WrongOverlapShows) {
  // %u on top of %t: @add overwrites what it still has to read.
  std::string text = kText;
  text.replace(text.find("arena at 64"), 11, "arena at 16");
  Tensor x(DType::kF32, {2, 3});
  for (int64_t i = 0; i < 6; ++i) x.set_double(i, static_cast<double>(i) - 2);
  const std::vector<Tensor> outputs = interpret(parse_program(text), {x});
  EXPECT_NE(outputs[0].get_double(5), 18);
}

std::string replaced(std::string from, const std::string& to) {
  std::string text = kText;
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string violation(const std::string& from, const std::string& to) {
  const auto violations = verify(parse_program(replaced(from, to)));
  return violations.empty() ? "none" : violations[0];
}

TEST(ProgramText, KeepsChecks) {
  const std::string text = replaced("scratch 0\n", "scratch 0\n  check \"Sum \\\"s\\\"\", \"[1, 2]\"\n");
  const Program program = parse_program(text);
  ASSERT_EQ(program.checks.size(), 1U);
  EXPECT_EQ(program.checks[0].what, "Sum \"s\"");
  EXPECT_EQ(program.checks[0].legal, "[1, 2]");
  EXPECT_EQ(print(program), text);
  EXPECT_THAT(verify(program)[0], HasSubstr("check y: f32[6] instead of a list of i64"));
  Program other = program;
  other.checks.resize(2);
  EXPECT_THAT(verify(other)[0], HasSubstr("checks: there are more than outputs"));
}

TEST(ProgramVerify, NamesTheRule) {
  EXPECT_THAT(violation("arena at 64", "arena at 0"),
              HasSubstr("call of add: the output u shares bytes with parameter x"));
  EXPECT_THAT(violation("arena at 64", "arena at 65"), HasSubstr("buffer u: 32 bytes at 65 of 128"));
  EXPECT_THAT(violation("arena 128", "arena 64"), HasSubstr("buffer u: 32 bytes at 64 of 64"));
  EXPECT_THAT(violation("arena at 0 alias", "arena at 64 alias"), HasSubstr("not at the place of its root"));
  EXPECT_THAT(violation("{0/4,0%4} arena at 64", "{0/4,0%4} arena"), HasSubstr("buffer u: used but without a place"));
  EXPECT_THAT(violation("f32[6] output 0", "f32[6] output 1"), HasSubstr("number 1 in a signature of 1"));
  EXPECT_THAT(violation("dense<f32[6] 1 2 3 4 5 6>", "dense<f32[5] 1 2 3 4 5>"),
              HasSubstr("buffer w: 20 bytes of contents for 24"));
  EXPECT_THAT(violation(" = dense<f32[6] 1 2 3 4 5 6>", ""), HasSubstr("buffer w: a weight without contents"));
  EXPECT_THAT(violation("call @relu(%x, %t)", "call @relu(%x)"), HasSubstr("call of relu: 1 parameters instead of 2"));
  EXPECT_THAT(violation("call @relu(%x, %t)", "call @relu(%u, %t)"),
              HasSubstr("parameter x is f32[2,3], given u of f32[2,4]"));
  EXPECT_THAT(violation("call @relu(%x, %t)", "call @relu(%t, %t)"), HasSubstr("t is read before it is written"));
  EXPECT_THAT(violation("call @relu(%x, %t) loc(\"Relu_0\")\n", ""),
              HasSubstr("t/flat view is read before it is written"));
  EXPECT_THAT(violation("call @flat(%u, %y)", "call @flat(%u, %w)"), HasSubstr("the weight w is written"));
  EXPECT_THAT(violation("call @flat(%u, %y)", "call @flat(%u, %\"t/flat view\")"),
              HasSubstr("y: the output is never written"));
  EXPECT_THAT(violation("y[i] = (x[i] * 2:f32)", "y[i + 1] = (x[i] * 2:f32)"),
              HasSubstr("kernel flat: y[(i + 1)] = ...: index 0 of y is 1..6"));
  Program program = parse_program(kText);
  program.buffers[4].alias_of = 4;
  EXPECT_THAT(verify(program)[0], HasSubstr("the alias leads to no buffer"));
  program = parse_program(kText);
  program.buffers[3].bytes = 25;
  EXPECT_THAT(verify(program)[0], HasSubstr("buffer t: 25 bytes for the type f32[2,3]"));
  program = parse_program(kText);
  program.calls[0].args[1] = 77;
  EXPECT_THAT(verify(program)[0], HasSubstr("no buffer 77"));
  program = parse_program(kText);
  program.calls[2].args = {5, 5};
  EXPECT_THAT(verify(program)[0], HasSubstr("parameter y is f32[6], given u"));
  EXPECT_THROW(verify_or_throw(program, "lower"), InternalError);
}

struct Mistake {
  const char* name;
  const char* from;
  const char* to;
  const char* id;
  const char* message;
};
void PrintTo(const Mistake& mistake, std::ostream* out) { *out << mistake.name; }

class ProgramTextMistake : public testing::TestWithParam<Mistake> {};

TEST_P(ProgramTextMistake, IsTold) {
  try {
    parse_program(replaced(GetParam().from, GetParam().to), "m.program");
    FAIL() << "accepted";
  } catch (const UserError& error) {
    EXPECT_EQ(error.diagnostic().id, GetParam().id) << error.what();
    EXPECT_THAT(error.diagnostic().message, HasSubstr(GetParam().message));
    EXPECT_THAT(error.diagnostic().node, testing::StartsWith("m.program:"));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ProgramTextMistake,
    testing::Values(
        Mistake{"Negative", "weight at 0", "weight at -64", "TSR-3201", "an offset of -64"},
        Mistake{"NoBuffer", "call @relu(%x,", "call @relu(%q,", "TSR-3202", "there is no buffer '%q'"},
        Mistake{"NoKernel", "call @relu(", "call @elu(", "TSR-3202", "there is no kernel '@elu'"},
        Mistake{"SignatureBuffer", "(%x) -> (%y)", "(%x) -> (%z)", "TSR-3202", "there is no buffer '%z'"},
        Mistake{"Twice", "buffer %w", "buffer %x", "TSR-3203", "buffer '%x' is defined twice"},
        Mistake{"KernelTwice", "kernel @add", "kernel @relu", "TSR-3203", "kernel '@relu' is defined twice"},
        Mistake{"Kind", "arena at 64", "stack at 64", "TSR-3001", "expected input, output, weight or arena"},
        Mistake{"Statement", "call @relu", "jump @relu", "TSR-3001",
                "expected buffer, define, call, branch, loop, bind, start, wait or '}'"},
        Mistake{"Condition", "call @relu(%x, %t)", "call @relu(%x, %t) if not %x", "TSR-3201",
                "a call has no condition of its own"},
        Mistake{"Kernel", "max(x[i, j], 0:f32)", "max(x[i], 0:f32)", "TSR-3103", "2 dimensions, found 1"},
        Mistake{"Type", "f32[6] output", "f33[6] output", "TSR-3005", "unknown dtype 'f33'"}),
    [](const auto& info) { return info.param.name; });

TEST(ProgramText, DamagedTextNeverCrashes) {
  std::mt19937 random(5);
  const std::string good = kText;
  for (int round = 0; round < 2000; ++round) {
    std::string text = good;
    for (int edits = 1 + static_cast<int>(random() % 3); edits > 0; --edits) {
      const size_t at = random() % text.size();
      if (random() % 2) text[at] = static_cast<char>(random());
      else text.erase(at, 1 + random() % 30);
      if (text.empty()) text = " ";
    }
    try {
      const Program program = parse_program(text);
      EXPECT_EQ(print(parse_program(print(program))), print(program));
      verify(program);
    } catch (const UserError& error) {
      EXPECT_THAT(error.diagnostic().id, testing::StartsWith("TSR-3"));
    }
  }
}

// ---- memory plan ----

TEST(MemoryPlan, RandomLifetimesNeverOverlap) {
  std::mt19937 random(11);
  double ratio_sum = 0;
  constexpr int kRounds = 300;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<Lifetime> lifetimes;
    const int count = 1 + static_cast<int>(random() % 60);
    const int calls = 1 + static_cast<int>(random() % 40);
    for (int i = 0; i < count; ++i) {
      const auto first = static_cast<int32_t>(random() % static_cast<unsigned>(calls));
      const auto last = std::min(calls - 1, first + static_cast<int32_t>(random() % 8));
      lifetimes.push_back({i, first, last, 64 * static_cast<int64_t>(random() % 100)});
    }
    int64_t total = 0;
    const std::vector<int64_t> offsets = place_buffers(lifetimes, total);
    ASSERT_EQ(offsets.size(), lifetimes.size());
    int64_t bound = 0;
    for (int call = 0; call < calls; ++call) {
      int64_t live = 0;
      for (const Lifetime& l : lifetimes)
        if (l.first <= call && call <= l.last) live += l.bytes;
      bound = std::max(bound, live);
    }
    for (size_t i = 0; i < lifetimes.size(); ++i) {
      EXPECT_GE(offsets[i], 0);
      EXPECT_EQ(offsets[i] % 64, 0);
      EXPECT_LE(offsets[i] + lifetimes[i].bytes, total);
      for (size_t j = 0; j < i; ++j) {
        const bool together = lifetimes[i].first <= lifetimes[j].last && lifetimes[j].first <= lifetimes[i].last;
        const bool apart =
            offsets[i] + lifetimes[i].bytes <= offsets[j] || offsets[j] + lifetimes[j].bytes <= offsets[i];
        EXPECT_TRUE(!together || apart) << i << " and " << j;
      }
    }
    EXPECT_GE(total, bound);
    ratio_sum += bound ? static_cast<double>(total) / static_cast<double>(bound) : 1.0;
  }
  std::cout << "[ info     ] arena / lower bound over random lifetimes: " << ratio_sum / kRounds << " on average\n";
  EXPECT_LT(ratio_sum / kRounds, 1.15);
}

// A random straight-line program: every call adds two earlier values (or views of them) of one size, and scales.
Program random_program(std::mt19937& random) {
  std::string buffers = "  buffer %in: f32[64] input 0\n  buffer %out: f32[64] output 0\n";
  std::string calls;
  std::vector<std::string> values = {"in"};
  const int count = 2 + static_cast<int>(random() % 30);
  for (int i = 0; i < count; ++i) {
    if (random() % 5 == 0) {
      const std::string weight = "w" + std::to_string(i);
      buffers += "  buffer %" + weight + ": f32[64] weight = splat<f32[64] " + std::to_string(random() % 3) + ">\n";
      values.push_back(weight);
    }
    const std::string name = "t" + std::to_string(i);
    const bool last = i + 1 == count;
    if (!last) buffers += "  buffer %" + name + ": f32[64] arena\n";
    const auto pick = [&] { return values[values.size() - 1 - random() % std::min<size_t>(values.size(), 6)]; };
    calls += "  call @mix(%" + pick() + ", %" + pick() + ", %" + (last ? "out" : name) + ")\n";
    if (!last && random() % 4 == 0) {
      buffers += "  buffer %v" + std::to_string(i) + ": f32[8,8] arena alias %" + name + "\n";
      buffers += "  buffer %f" + std::to_string(i) + ": f32[64] arena alias %v" + std::to_string(i) + "\n";
      values.push_back("f" + std::to_string(i));
    } else {
      values.push_back(name);
    }
  }
  return parse_program("program @random(%in) -> (%out) {\n  plan arena 0 weights 0 scratch 0\n" + buffers +
                       "  define rule \"naive\"\n  kernel @mix(a: f32[64], b: f32[64]) -> (c: f32[64]) {\n"
                       "    for i in 0..64 { c[i] = fma(a[63 - i], 0.5:f32, b[i]) }\n  }\n" +
                       calls + "}\n");
}

TEST(MemoryPlan, DoesNotChangeResults) {
  std::mt19937 random(23);
  Tensor input(DType::kF32, {64});
  for (int64_t i = 0; i < 64; ++i) input.set_double(i, static_cast<double>(random() % 1000) / 1000);
  for (int round = 0; round < 200; ++round) {
    Program program = random_program(random);
    ASSERT_THAT(verify(program), testing::IsEmpty());
    const std::vector<Tensor> before = interpret(program, {input});
    plan_memory(program);
    ASSERT_THAT(verify(program), testing::IsEmpty());
    EXPECT_GE(program.arena_bytes, arena_lower_bound(program));
    const std::vector<Tensor> after = interpret(program, {input});
    ASSERT_EQ(std::memcmp(before[0].bytes(), after[0].bytes(), 256), 0) << print(program);
    for (int64_t i = 0; i < 64; ++i) ASSERT_FALSE(std::isnan(after[0].get_double(i)));
    const std::string text = print(program);
    EXPECT_EQ(print(parse_program(text)), text);
  }
}

TEST(MemoryPlan, EqualWeightsAreStoredOnce) {
  Program program = parse_program(R"(program @main(%x) -> (%y) {
  plan arena 0 weights 0 scratch 0
  buffer %x: f32[4] input 0
  buffer %y: f32[4] output 0
  buffer %a: f32[4] weight = dense<f32[4] 1 2 3 4>
  buffer %b: f32[4] weight = dense<f32[4] 1 2 3 5>
  buffer %c: f32[4] weight = dense<f32[4] 1 2 3 4>
  buffer %d: f32[2,2] weight alias %b
})");
  plan_memory(program);
  EXPECT_EQ(program.buffers[2].offset, 0);
  EXPECT_EQ(program.buffers[3].offset, 64);
  EXPECT_EQ(program.buffers[4].offset, 0);
  EXPECT_EQ(program.buffers[5].offset, 64);
  EXPECT_EQ(program.weight_bytes, 128);
}

TEST(MemoryPlan, AChainUsesTwoBuffers) {
  std::string text =
      "program @main(%x) -> (%y) {\n plan arena 0 weights 0 scratch 0\n buffer %x: f32[16] input 0\n buffer %y: "
      "f32[16] output 0\n";
  for (int i = 0; i < 10; ++i) text += " buffer %t" + std::to_string(i) + ": f32[16] arena\n";
  text +=
      " define rule \"r\" kernel @k(a: f32[16]) -> (b: f32[16]) { for i in 0..16 { b[i] = a[i] } }\n call @k(%x, "
      "%t0)\n";
  for (int i = 1; i < 10; ++i) text += " call @k(%t" + std::to_string(i - 1) + ", %t" + std::to_string(i) + ")\n";
  Program program = parse_program(text + " call @k(%t9, %y)\n}");
  plan_memory(program);
  EXPECT_EQ(arena_lower_bound(program), 128);
  EXPECT_EQ(program.arena_bytes, 128);
}

}  // namespace
}  // namespace tessera
