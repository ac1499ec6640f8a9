// Order of calls, writing in place, merged kernels, sweeps in turns and views: each leaves what a program computes as
// it was, bit for bit, also when dead memory is overwritten with NaN; and the verifier catches plans that do not.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iostream>
#include <random>

#include "graph/parser.h"
#include "graph_passes/pass.h"
#include "interp/graph_interp.h"
#include "interp/program_interp.h"
#include "loop/parser.h"
#include "lower/lower.h"
#include "ops/op_table.h"
#include "program/in_place.h"
#include "program/memory_plan.h"
#include "program/merge_kernels.h"
#include "program/order_calls.h"
#include "program/parser.h"
#include "program/pass.h"
#include "program/printer.h"
#include "program/reuse_buffers.h"
#include "program/reuse_distance.h"
#include "program/serpentine_order.h"
#include "program/verify.h"
#include "random_graph.h"
#include "schedule/choose.h"

namespace tessera {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// ---- the proof ----

std::string in_place(const std::string& body, int64_t elements = 8) {
  const Program program = parse_program(
      "program @main() -> () {\n plan arena 0 weights 0 scratch 0\n define rule \"r\"\n"
      "kernel @k(a: f32[8], b: f32[8]) -> (y: f32[8]) {" +
      body + "}\n}\n");
  return why_not_in_place(program.kernels[0].program, 0, 2, elements);
}

TEST(InPlace, SameElementReadThenWritten) {
  EXPECT_EQ(in_place("for i in 0..8 { y[i] = (a[i] + b[floormod(i, 3)]) }"), "");
  EXPECT_EQ(in_place("parallel for t in 0..2 { vectorized for l in 0..4 { y[((t * 4) + l)] = a[((t * 4) + l)] } }"),
            "");
  // Two parts that do not overlap, behind conditions.
  EXPECT_EQ(in_place("for i in 0..8 { if (i < 5) { y[i] = a[i] } else { y[i] = (a[i] * 2:f32) } }"), "");
  EXPECT_EQ(in_place("for i in 0..10 { if (floormod(i, 5) < 4) { y[((floordiv(i, 5) * 4) + floormod(i, 5))] = "
                     "a[((floordiv(i, 5) * 4) + floormod(i, 5))] } }"),
            "");
  EXPECT_EQ(in_place("for i in 0..8 { y[i] = b[i] }"), "");  // the input is not read at all
  EXPECT_EQ(in_place("alloc r: f32[8] register for j in 0..8 { r[j] = b[j] } for i in 0..8 { y[i] = (a[i] + r[i]) }"),
            "");
}

TEST(InPlace, SaysWhyNot) {
  EXPECT_EQ(in_place("for i in 0..8 { y[i] = a[(7 - i)] }"), "it reads other elements than the one that it writes");
  EXPECT_EQ(in_place("for i in 0..8 { y[i] = (a[i] + a[0]) }"), "it reads other elements than the one that it writes");
  EXPECT_EQ(in_place("for j in 0..2 { for i in 0..8 { y[i] = a[i] } }"), "an element may be written more than once");
  // The last vector of a loop may overlap the one before.
  EXPECT_EQ(in_place("for t in 0..2 { for l in 0..5 { y[((t * 3) + l)] = a[((t * 3) + l)] } }"),
            "an element may be written more than once");
  EXPECT_EQ(in_place("for i in 0..8 { y[i] = a[i] }", 7), "an element may be written more than once");
  EXPECT_EQ(in_place("for i in 0..8 { y[i] = 0:f32 } for j in 0..8 { y[j] = (y[j] + a[j]) }"), "it reads its output");
  EXPECT_EQ(in_place("for i in 0..8 { if (a[i] > 0:f32) { y[i] = b[i] } else { y[i] = a[i] } }"),
            "a condition or an index depends on it");
  EXPECT_EQ(in_place("alloc r: f32[8] local for j in 0..8 { r[j] = a[j] } for i in 0..8 { y[i] = (a[i] + r[i]) }"),
            "it reads the input before it computes the element that goes there");
}

// ---- equivalence on random graphs ----

Target machine() {
  Target target;
  target.triple = "x86_64-unknown-linux-gnu";
  target.features = {"avx", "avx2", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl"};
  return target;
}

Program lowered(Graph graph, const std::string& left_out = "") {
  GraphInterpreter evaluator;
  const Target target = machine();
  const PassContext ctx{standard_ops(), evaluator, target, 3};
  for (const GraphPass& pass : graph_pipeline())
    if (pass.name != left_out) graph = pass.run(graph, ctx);
  return lower_graph(graph);
}

Program lowered(uint64_t seed, int nodes) { return lowered(random_graph(seed, nodes)); }

void expect_same(const std::vector<Tensor>& a, const std::vector<Tensor>& b, const Program& program) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_EQ(std::memcmp(a[i].bytes(), b[i].bytes(), static_cast<size_t>(a[i].num_bytes())), 0) << print(program);
}

// Steps h = tanh(h W), for vectors of `size`.
Graph steps(int number, int size) {
  std::string text = fmt::format("graph @steps(%h0: f32[1,{0}]) -> (%h{1}: f32[1,{0}]) {{\n", size, number);
  text += fmt::format("  %w = constant {{value = splat<f32[{0},{0}] 0.01>}} : f32[{0},{0}]\n", size);
  for (int step = 1; step <= number; ++step) {
    text += fmt::format("  %p{2} = matmul(%h{1}, %w) : f32[1,{0}]\n", size, step - 1, step);
    text += fmt::format("  %h{1} = tanh(%p{1}) : f32[1,{0}]\n", size, step);
  }
  return parse_graph(text + "}\n", standard_ops());
}

TEST(AlternateSweeps, GoesBackwardsInEverySecondStep) {
  const auto backwards = [](const Program& program) {
    return std::count_if(program.calls.begin(), program.calls.end(), [&](const KernelCall& call) {
      const std::string& name = program.kernels[static_cast<size_t>(call.kernel)].program.name;
      return name.find("_backwards") != std::string::npos;
    });
  };
  const Graph graph = steps(7, 300);
  const std::vector<Tensor> inputs = random_inputs(graph, 1);
  for (const int threads : {1, 2}) {
    Target target = machine();
    target.num_threads = threads;
    target.l2_bytes = 256 << 10;  // of weights 360000
    Program program = lowered(graph);
    merge_kernels(program);
    schedule_program(program, target, 3);
    const std::vector<Tensor> expected = interpret(program, inputs);
    serpentine_order(program, target);
    ASSERT_THAT(verify(program), IsEmpty()) << print(program);
    EXPECT_EQ(backwards(program), threads == 1 ? 3 : 0) << print(program, {.elide_constants = true});
    expect_same(interpret(program, inputs), expected, program);

    target.l2_bytes = 1 << 20;  // everything stays there
    Program small = lowered(graph);
    merge_kernels(small);
    schedule_program(small, target, 3);
    serpentine_order(small, target);
    EXPECT_EQ(backwards(small), 0);
  }
}

int over_count(const Program& program) {
  return static_cast<int>(std::count_if(program.buffers.begin(), program.buffers.end(),
                                        [](const ProgramBuffer& b) { return b.over >= 0; }));
}

TEST(ProgramPasses, LeaveRandomProgramsAsTheyWere) {
  int taken_over = 0, merged = 0;
  double ratio = 0, worst = 0;
  constexpr int kRounds = 60;
  for (uint64_t seed = 1; seed <= kRounds; ++seed) {
    Program plain = lowered(seed, 15 + static_cast<int>(seed % 30));
    std::vector<Tensor> inputs;
    {
      const Graph graph = random_graph(seed, 15 + static_cast<int>(seed % 30));
      inputs = random_inputs(graph, seed);
    }
    Program tuned = plain;
    for (const ProgramPass& pass : program_pipeline()) {
      if (pass.phase != ProgramPhase::kLowered) continue;
      pass.run(tuned, machine());
      ASSERT_THAT(verify(tuned), IsEmpty()) << pass.name;
    }
    merged += static_cast<int>(plain.kernels.size() - tuned.kernels.size());
    const bool scheduled = seed % 2 == 0;
    if (scheduled) schedule_program(tuned, machine(), 3);
    if (scheduled) schedule_program(plain, machine(), 3);
    const std::vector<Tensor> expected = interpret(plain, inputs);
    plan_memory(plain);
    ASSERT_THAT(verify(plain), IsEmpty());
    expect_same(interpret(plain, inputs, ProgramRun{{}, true}), expected, plain);
    for (const ProgramPass& pass : program_pipeline()) {
      if (pass.phase != ProgramPhase::kScheduled) continue;
      pass.run(tuned, machine());
      ASSERT_THAT(verify(tuned), IsEmpty()) << pass.name << "\n" << print(tuned);
      expect_same(interpret(tuned, inputs, ProgramRun{{}, true}), expected, tuned);
    }
    plan_memory(tuned);
    ASSERT_THAT(verify(tuned), IsEmpty());
    expect_same(interpret(tuned, inputs, ProgramRun{{}, true}), expected, tuned);
    EXPECT_EQ(print(parse_program(print(tuned))), print(tuned));
    EXPECT_LE(arena_lower_bound(tuned), arena_lower_bound(plain));
    taken_over += over_count(tuned);
    const int64_t bound = arena_lower_bound(tuned);
    const double here = bound ? static_cast<double>(tuned.arena_bytes) / static_cast<double>(bound) : 1;
    ratio += here;
    worst = std::max(worst, here);
  }
  std::cout << fmt::format(
      "[ info     ] arena / largest live set: {:.3f} on average, {:.3f} at most; {} buffers taken "
      "over, {} kernels merged\n",
      ratio / kRounds, worst, taken_over, merged);
  EXPECT_LE(worst, 1.15);
  EXPECT_GT(taken_over, 10);
  EXPECT_GT(merged, 0);
}

// Parts of a program run three times, or twice by twice: they compute the same again.
Program in_loops(Program program, std::mt19937& random) {
  const size_t calls = program.calls.size();
  std::vector<size_t> cuts = {0, calls, random() % (calls + 1), random() % (calls + 1), random() % (calls + 1)};
  std::sort(cuts.begin(), cuts.end());
  const auto run = [&](size_t part) {
    ProgramStep step;
    step.first_call = cuts[part];
    step.num_calls = cuts[part + 1] - cuts[part];
    return step;
  };
  const auto loop = [&](const char* index, int64_t count, ProgramStep body) {
    ProgramStep step;
    step.kind = StepKind::kLoop;
    step.count = count;
    step.index = {make_var(index), 0, count - 1, 1};
    step.blocks = {{std::move(body)}};
    return step;
  };
  program.steps = {run(0), loop("t", 3, run(1)), run(2), loop("u", 2, loop("v", 2, run(3)))};
  return program;
}

TEST(ProgramPasses, KnowLoopsFromTheFirstToTheLast) {
  std::mt19937 random(23);
  for (uint64_t seed = 300; seed < 340; ++seed) {
    const Graph graph = random_graph(seed, 25);
    const std::vector<Tensor> inputs = random_inputs(graph, seed);
    const Program plain = lowered(graph);
    const std::vector<Tensor> expected = interpret(plain, inputs);
    Program program = in_loops(plain, random);
    ASSERT_THAT(verify(program), IsEmpty()) << print(program);
    expect_same(interpret(program, inputs), expected, program);
    Target target = machine();
    target.num_threads = 1 + static_cast<int>(seed % 2);
    const auto run = [&](ProgramPhase phase) {
      for (const ProgramPass& pass : program_pipeline()) {
        if (pass.phase != phase) continue;
        pass.run(program, target);
        ASSERT_THAT(verify(program), IsEmpty()) << pass.name << "\n" << print(program);
      }
    };
    run(ProgramPhase::kLowered);
    schedule_program(program, target, 3);
    ASSERT_THAT(verify(program), IsEmpty()) << print(program);
    const std::vector<Tensor> scheduled = interpret(program, inputs);
    for (size_t i = 0; i < expected.size(); ++i)
      for (int64_t k = 0; k < expected[i].num_elements(); ++k) {
        const double want = expected[i].get_double(k), got = scheduled[i].get_double(k);
        if (std::isnan(want) && std::isnan(got)) continue;
        if (want == got) continue;
        ASSERT_NEAR(got, want, 1e-3 * std::max(1.0, std::abs(want))) << print(program);
      }
    run(ProgramPhase::kScheduled);
    plan_memory(program);
    ASSERT_THAT(verify(program), IsEmpty()) << print(program);
    expect_same(interpret(program, inputs, ProgramRun{{}, true}), scheduled, program);
    ASSERT_EQ(print(parse_program(print(program))), print(program));
  }
}

// Convolutions of one image, their results joined and cut along the channels in every way.
Graph random_blocks(std::mt19937& random) {
  std::string text;
  std::vector<std::pair<std::string, int>> values = {{"x", 32}};  // names and channels
  const auto pick = [&] { return values[random() % values.size()]; };
  const int count = 6 + static_cast<int>(random() % 8);
  for (int i = 0; i < count; ++i) {
    const std::string name = "v" + std::to_string(i);
    const auto [from, channels] = pick();
    switch (random() % 5) {
      case 0: {  // of one value with itself, of inputs, of parts of other concats: some must be copied
        std::string operands = "%" + from;
        int sum = channels;
        for (size_t more = 1 + random() % 3; more > 0; --more) {
          const auto [next, next_channels] = pick();
          operands += ", %" + next;
          sum += next_channels;
        }
        if (sum > 256) break;
        text += fmt::format("  %{} = concat({}) {{axis = 1}} : f32[1,{},3,5]\n", name, operands, sum);
        values.emplace_back(name, sum);
        break;
      }
      case 1: {
        const int start = static_cast<int>(random() % static_cast<unsigned>(channels));
        const int size = 1 + static_cast<int>(random() % static_cast<unsigned>(channels - start));
        text += fmt::format(
            "  %{} = slice(%{}) {{sizes = [1, {}, 3, 5], starts = [0, {}, 0, 0], steps = [1, 1, 1, 1]}} : "
            "f32[1,{},3,5]\n",
            name, from, size, start, size);
        values.emplace_back(name, size);
        break;
      }
      case 2:
        text += fmt::format("  %{} = neg(%{}) : f32[1,{},3,5]\n", name, from, channels);
        values.emplace_back(name, channels);
        break;
      default: {
        const int filters = 16 * (1 + static_cast<int>(random() % 2));
        text += fmt::format(
            "  %{}.w = constant {{value = splat<f32[{},{},1,1] {}>}} : f32[{},{},1,1]\n  %{} = conv(%{}, %{}.w) "
            "{{dilations = [1, 1], groups = 1, input_dilations = [1, 1], pads_begin = [0, 0], pads_end = [0, 0], "
            "strides "
            "= [1, 1]}} : f32[1,{},3,5]\n",
            name, filters, channels, 0.01 * (i + 1), filters, channels, name, from, name, filters);
        values.emplace_back(name, filters);
      }
    }
  }
  // The last values are outputs: concats and slices among them have memory of their own.
  std::string outputs;
  for (size_t i = values.size() - std::min<size_t>(3, values.size() - 1); i < values.size(); ++i)
    outputs += fmt::format("{}%{}: f32[1,{},3,5]", outputs.empty() ? "" : ", ", values[i].first, values[i].second);
  return parse_graph("graph @blocks(%x: f32[1,32,3,5]) -> (" + outputs + ") {\n" + text + "}\n", standard_ops());
}

TEST(PlaceSlices, JoinsAndCutsAsCopiesDo) {
  std::mt19937 random(17);
  size_t with = 0, without = 0;
  for (int round = 0; round < 80; ++round) {
    const Graph graph = random_blocks(random);
    const std::vector<Tensor> inputs = random_inputs(graph, static_cast<uint64_t>(round));
    GraphInterpreter interpreter;
    const std::vector<Tensor> expected = interpreter.evaluate(graph, inputs);
    Program placed = lowered(graph);
    Program copied = lowered(graph, "concat_in_place");
    with += placed.calls.size();
    without += copied.calls.size();
    for (Program* program : {&placed, &copied}) {
      if (round % 2) schedule_program(*program, machine(), 3);
      for (const ProgramPass& pass : program_pipeline()) {
        pass.run(*program, machine());
        ASSERT_THAT(verify(*program), IsEmpty()) << pass.name << "\n" << print(*program);
      }
      plan_memory(*program);
      ASSERT_THAT(verify(*program), IsEmpty()) << print(*program);
      const std::vector<Tensor> results = interpret(*program, inputs, ProgramRun{{}, true});
      ASSERT_EQ(results.size(), expected.size());
      for (size_t i = 0; i < results.size(); ++i) {
        double largest = 0;
        for (int64_t k = 0; k < expected[i].num_elements(); ++k)
          largest = std::max(largest, std::abs(expected[i].get_double(k)));
        for (int64_t k = 0; k < expected[i].num_elements(); ++k)
          ASSERT_NEAR(results[i].get_double(k), expected[i].get_double(k), 1e-5 * largest + 1e-6) << print(*program);
      }
    }
  }
  std::cout << fmt::format("[ info     ] {} calls with views, {} with copies\n", with, without);
  EXPECT_LT(with, without);
}

// A plan is damaged at random; whenever the verifier has nothing to say, the results are right.
TEST(ProgramPasses, TheVerifierCatchesBrokenPlans) {
  std::mt19937 random(7);
  int caught = 0, harmless = 0;
  for (uint64_t seed = 100; seed < 130; ++seed) {
    Program program = lowered(seed, 16);
    const std::vector<Tensor> inputs = random_inputs(random_graph(seed, 16), seed);
    const std::vector<Tensor> expected = interpret(program, inputs);
    reuse_buffers(program);
    plan_memory(program);
    std::vector<BufferId> roots;
    for (size_t i = 0; i < program.buffers.size(); ++i)
      if (program.buffers[i].kind == BufferKind::kArena && program.buffers[i].alias_of < 0 &&
          program.buffers[i].offset >= 0)
        roots.push_back(static_cast<BufferId>(i));
    if (roots.size() < 2) continue;
    for (int round = 0; round < 20; ++round) {
      Program broken = program;
      const BufferId a = roots[random() % roots.size()], b = roots[random() % roots.size()];
      ProgramBuffer& buffer = broken.buffers[static_cast<size_t>(a)];
      switch (random() % 3) {
        case 0: buffer.offset = broken.buffers[static_cast<size_t>(b)].offset; break;
        case 1: buffer.over = a == b ? -1 : b; break;
        default: std::swap(broken.calls[random() % broken.calls.size()], broken.calls[random() % broken.calls.size()]);
      }
      if (!verify(broken).empty()) {
        ++caught;
        continue;
      }
      ++harmless;
      expect_same(interpret(broken, inputs), expected, broken);
    }
  }
  std::cout << fmt::format("[ info     ] {} broken plans caught, {} changes were harmless\n", caught, harmless);
  EXPECT_GT(caught, 100);
  EXPECT_GT(harmless, 5);
}

constexpr const char* kChain = R"(program @main(%x) -> (%y) {
  plan arena 0 weights 0 scratch 0
  buffer %x: f32[16] input 0
  buffer %y: f32[16] output 0
  buffer %t: f32[16] arena
  buffer %u: f32[16] arena over %t
  buffer %whole: f32[32] arena
  buffer %low: f32[16] arena alias %whole
  buffer %high: f32[16] arena alias %whole from 64
  define rule "r"
  kernel @twice(a: f32[16]) -> (b: f32[16]) { for i in 0..16 { b[i] = (a[i] * 2:f32) } }
  define rule "r"
  kernel @turn(a: f32[16]) -> (b: f32[16]) { for i in 0..16 { b[i] = a[(15 - i)] } }
  define rule "r"
  kernel @fold(a: f32[32]) -> (b: f32[16]) { for i in 0..16 { b[i] = (a[i] + a[(i + 16)]) } }
  call @twice(%x, %t)
  call @twice(%t, %u)
  call @twice(%u, %low)
  call @turn(%low, %high)
  call @fold(%whole, %y)
})";

std::string changed(const std::string& from, const std::string& to) {
  std::string text = kChain;
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string violation(const std::string& from, const std::string& to) {
  const auto violations = verify(parse_program(changed(from, to)));
  return violations.empty() ? "none" : violations[0];
}

TEST(ProgramVerify, FollowsBytesThroughViewsAndReuse) {
  EXPECT_THAT(verify(parse_program(kChain)), IsEmpty());
  EXPECT_THAT(violation("call @twice(%u, %low)", "call @twice(%t, %low)"),
              HasSubstr("call of twice: t is read after u was written over it"));
  EXPECT_THAT(
      violation("call @twice(%t, %u)", "call @turn(%t, %u)"),
      HasSubstr("call of turn: the output u shares bytes with parameter a: it reads other elements than the one"));
  EXPECT_THAT(violation("alias %whole from 64", "alias %whole from 32"), HasSubstr("shares bytes with parameter a"));
  EXPECT_THAT(violation("alias %whole from 64", "alias %whole from 96"),
              HasSubstr("buffer high: 64 bytes from 96 on, its root whole has 128"));
  EXPECT_THAT(violation("alias %whole from 64", "alias %whole from 62"), HasSubstr("inside an element"));
  EXPECT_THAT(violation("  call @turn(%low, %high)\n", ""),
              HasSubstr("call of fold: whole is read before it is written"));
  EXPECT_THAT(violation("%u: f32[16] arena over %t", "%u: f32[16] arena over %x"),
              HasSubstr("only whole arena buffers"));
  EXPECT_THAT(violation("%whole: f32[32] arena", "%whole: f32[32] arena over %t"), HasSubstr("128 bytes over t of 64"));
}

TEST(ProgramVerify, AsksThatPlacesFollowTheBuffers) {
  Program program = parse_program(kChain);
  plan_memory(program);
  EXPECT_THAT(verify(program), IsEmpty());
  EXPECT_EQ(program.buffers[3].offset, program.buffers[2].offset);
  EXPECT_EQ(program.buffers[6].offset, program.buffers[4].offset + 64);
  program.buffers[3].offset = program.buffers[3].offset == 0 ? 64 : 0;
  EXPECT_THAT(verify(program)[0], HasSubstr("buffer u: not at the place of the buffer that it takes over"));
}

// Runs follow one another; a piece of memory counts once, whatever buffers it is.
TEST(ReuseDistance, CountsTheBytesSinceTheLatestTouch) {
  Program program = parse_program(kChain);
  plan_memory(program);
  std::vector<std::vector<int64_t>> distances;
  for (const std::vector<CallTraffic>& call : call_traffic(program)) {
    distances.emplace_back();
    for (const CallTraffic& argument : call) distances.back().push_back(argument.distance);
  }
  EXPECT_THAT(distances, ElementsAre(ElementsAre(256, 192), ElementsAre(0, 0), ElementsAre(0, 128), ElementsAre(0, 192),
                                     ElementsAre(0, 256)));
  EXPECT_EQ(call_traffic(program)[0][0].bytes, 64);
  // The input was touched by this call of the run before; each result by the call before, or by one of the run before.
  const auto calls = static_cast<int64_t>(program.calls.size());
  EXPECT_EQ(call_traffic(program)[0][0].calls, calls);
  for (size_t call = 1; call < program.calls.size(); ++call) EXPECT_EQ(call_traffic(program)[call][0].calls, 1);
}

TEST(ProgramInterp, PoisonShowsReadsOfDeadMemory) {
  // %stale is never written; it lies where %t was, whose contents are still there unless dead memory is overwritten.
  const Program program = parse_program(R"(program @main(%x) -> (%y) {
  plan arena 128 weights 0 scratch 0
  buffer %x: f32[16] input 0
  buffer %y: f32[16] output 0
  buffer %t: f32[16] arena at 0
  buffer %u: f32[16] arena at 64
  buffer %stale: f32[16] arena at 0
  define rule "r"
  kernel @twice(a: f32[16]) -> (b: f32[16]) { for i in 0..16 { b[i] = (a[i] * 2:f32) } }
  call @twice(%x, %t)
  call @twice(%t, %u)
  call @twice(%stale, %y)
})");
  Tensor x(DType::kF32, {16});
  for (int64_t i = 0; i < 16; ++i) x.set_double(i, 1);
  EXPECT_EQ(interpret(program, {x})[0].get_double(0), 4);
  EXPECT_TRUE(std::isnan(interpret(program, {x}, ProgramRun{{}, true})[0].get_double(0)));
  EXPECT_THAT(verify(program)[0], HasSubstr("stale is read after t was written over it"));
}

TEST(OrderCalls, RespectsDependenciesAndNeverNeedsMore) {
  std::mt19937 random(3);
  for (uint64_t seed = 200; seed < 240; ++seed) {
    Program program = lowered(seed, 20);
    const std::vector<Tensor> inputs = random_inputs(random_graph(seed, 20), seed);
    const std::vector<Tensor> expected = interpret(program, inputs);
    // Any order that respects the dependencies computes the same.
    Program shuffled = program;
    const auto before = call_dependencies(program);
    std::vector<bool> done(before.size(), false);
    shuffled.calls.clear();
    while (shuffled.calls.size() < before.size()) {
      const size_t call = random() % before.size();
      const bool ready = std::all_of(before[call].begin(), before[call].end(),
                                     [&](int32_t b) { return done[static_cast<size_t>(b)]; });
      if (done[call] || !ready) continue;
      done[call] = true;
      shuffled.calls.push_back(program.calls[call]);
    }
    ASSERT_THAT(verify(shuffled), IsEmpty());
    expect_same(interpret(shuffled, inputs), expected, shuffled);
    const int64_t given = arena_lower_bound(shuffled);
    order_calls(shuffled);
    EXPECT_LE(arena_lower_bound(shuffled), given);
    expect_same(interpret(shuffled, inputs), expected, shuffled);
  }
}

TEST(MergeKernels, ComparesEverythingButNames) {
  const auto key = [](const std::string& body) {
    return kernel_key(parse_program("program @main() -> () {\n plan arena 0 weights 0 scratch 0\n define rule \"r\"\n" +
                                    body + "\n}\n")
                          .kernels[0]);
  };
  const std::string base = key("kernel @k(a: f32[8]) -> (y: f32[8]) { for i in 0..8 { y[i] = (a[i] + 1:f32) } }");
  EXPECT_EQ(base, key("kernel @other(b: f32[8]) -> (z: f32[8]) { for j in 0..8 { z[j] = (b[j] + 1:f32) } }"));
  EXPECT_NE(base, key("kernel @k(a: f32[8]) -> (y: f32[8]) { for i in 0..8 { y[i] = (a[i] + 2:f32) } }"));
  EXPECT_NE(base, key("kernel @k(a: f32[8]) -> (y: f32[8]) { for i in 0..8 { y[i] = (a[i] * 1:f32) } }"));
  EXPECT_NE(base, key("kernel @k(a: f32[8]) -> (y: f32[8]) { parallel for i in 0..8 { y[i] = (a[i] + 1:f32) } }"));
  EXPECT_NE(base, key("kernel @k(a: f32[9]) -> (y: f32[8]) { for i in 0..8 { y[i] = (a[i] + 1:f32) } }"));
  EXPECT_NE(base, key("kernel @k(a: f32[8]) -> (y: f32[8]) { for i in 0..8 { y[i] = (a[(7 - i)] + 1:f32) } }"));
  EXPECT_NE(base, key("kernel @k(a: f16[8]) -> (y: f16[8]) { for i in 0..8 { y[i] = (a[i] + 1:f16) } }"));
}

}  // namespace
}  // namespace tessera
