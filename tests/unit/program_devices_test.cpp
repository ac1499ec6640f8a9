// Programs of several devices: text form, verifier, what moving calls there leaves as it was.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <random>

#include "interp/program_interp.h"
#include "program/assign_devices.h"
#include "program/memory_plan.h"
#include "program/overlap_calls.h"
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

using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kTwoDevices = R"(program @two(%x, %w) -> (%y, %z) {
  plan arena 0 weights 0 scratch 0
  device dev "null" arena 0 weights 0
  buffer %x: f32[2] input 0
  buffer %w: f32[2] input 1
  buffer %y: f32[2] output 0
  buffer %z: f32[2] output 1
  buffer %x.dev: f32[2] arena on dev
  buffer %m: f32[2] arena on dev
  buffer %y.dev: f32[2] arena on dev
  define rule "naive" on dev
  kernel @neg.dev(a: f32[2]) -> (b: f32[2]) {
    for i in 0..2 { b[i] = (0:f32 - a[i]) }
  }
  define rule "naive"
  kernel @add(a: f32[2], b: f32[2]) -> (c: f32[2]) {
    for i in 0..2 { c[i] = (a[i] + b[i]) }
  }
  start 0 on dev {
    copy %x.dev = %x
    call @neg.dev(%x.dev, %m)
    call @neg.dev(%m, %y.dev)
    copy %y = %y.dev
  }
  call @add(%x, %w, %z)
  wait 0
}
)";

std::string changed(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string first_violation(const std::string& text) {
  const auto violations = verify(parse_program(text));
  return violations.empty() ? "none" : violations[0];
}

TEST(ProgramDevices, RoundTripIsIdentical) {
  const std::string text = print(parse_program(kTwoDevices));
  EXPECT_THAT(verify(parse_program(text)), IsEmpty());
  EXPECT_EQ(print(parse_program(text)), text);
  EXPECT_THAT(text, HasSubstr("  start 0 on dev {\n    copy %x.dev = %x\n"));
}

TEST(ProgramDevices, AreVerified) {
  EXPECT_EQ(first_violation(kTwoDevices), "none");
  const auto with = [](const std::string& from, const std::string& to) {
    return first_violation(changed(kTwoDevices, from, to));
  };
  EXPECT_THAT(with("  wait 0\n", ""), HasSubstr("start 0: nothing waits for it in its block"));
  EXPECT_THAT(with("  wait 0\n", "  wait 0\n  wait 0\n"), HasSubstr("wait 0: no start of this number"));
  EXPECT_THAT(with("  wait 0\n", "  wait 1\n"), HasSubstr("wait 1: no start of this number"));
  EXPECT_THAT(with("call @add(%x, %w, %z)", "call @add(%y, %w, %z)"),
              HasSubstr("start 0: y is read before the wait, and the block writes y"));
  EXPECT_THAT(with("call @add(%x, %w, %z)", "call @add(%m, %w, %z)"),
              HasSubstr("call of add: it runs on the host, and m lies on dev"));
  EXPECT_THAT(with("call @neg.dev(%x.dev, %m)", "call @neg.dev(%x, %m)"),
              HasSubstr("call of neg.dev: it runs on dev, and x lies on the host"));
  EXPECT_THAT(with("copy %x.dev = %x", "copy %x.dev = %m"), HasSubstr("the copy x.dev = m is from dev to dev"));
  EXPECT_THAT(with("copy %x.dev = %x", "copy %x = %x.dev"), HasSubstr("the copy x = x.dev writes the input"));
  EXPECT_THAT(with("copy %y = %y.dev\n", ""), HasSubstr("y: the output is never written"));
  EXPECT_THAT(with("output 0", "output 0 on dev"), HasSubstr("buffer y: an output on dev"));
  EXPECT_THAT(with("start 0 on dev", "start 0"), HasSubstr("start 0: there is no device 0"));
  EXPECT_THAT(with("  start 0 on dev {\n    copy", "  copy %y = %x\n  start 0 on dev {\n    copy"),
              HasSubstr("copy: it stands in no start"));
}

// The example of program/assign_devices.h.
TEST(ProgramDevices, CallsMoveAsTheHeaderSays) {
  Program program = parse_program(R"(program @two(%x) -> (%y, %z) {
  plan arena 0 weights 0 scratch 0
  buffer %x: f32[2] input 0
  buffer %y: f32[2] output 0
  buffer %z: f32[2] output 1
  buffer %m: f32[2] arena
  define rule "naive" loc("a")
  kernel @a(x: f32[2]) -> (y: f32[2]) {
    for i in 0..2 { y[i] = (0:f32 - x[i]) }
  }
  define rule "naive"
  kernel @b(x: f32[2]) -> (y: f32[2]) {
    for i in 0..2 { y[i] = (1:f32 + x[i]) }
  }
  define rule "naive"
  kernel @c(x: f32[2]) -> (y: f32[2]) {
    for i in 0..2 { y[i] = (2:f32 * x[i]) }
  }
  call @a(%x, %m)
  call @b(%m, %y)
  call @c(%x, %z)
}
)");
  assign_devices(program, {{"dev", "null"}}, [](const KernelCall& call) { return call.kernel < 2 ? 1 : 0; });
  EXPECT_THAT(verify(program), IsEmpty());
  const std::string text = print(program);
  EXPECT_EQ(text.substr(text.find("  start")), R"(  start 0 on dev {
    copy %x.dev = %x
    call @a.dev(%x.dev, %m)
    call @b.dev(%m, %y.dev)
    copy %y = %y.dev
  }
  call @c(%x, %z)
  wait 0
}
)");
}

// Which device a call is given to: any, for a seed.
std::function<int32_t(const KernelCall&)> at_random(uint64_t seed, int32_t devices) {
  auto random = std::make_shared<std::mt19937_64>(seed);
  return [random, devices](const KernelCall&) {
    return static_cast<int32_t>((*random)() % static_cast<uint64_t>(devices + 1));
  };
}

void expect_computes(const Program& program, const std::vector<Tensor>& inputs, const std::vector<Tensor>& expected) {
  ASSERT_THAT(verify(program), IsEmpty()) << print(program);
  for (const bool late : {false, true}) {
    ProgramRun run;
    run.late_starts = late;
    expect_same(interpret(program, inputs, run), expected, program);
    run.poison_dead = true;
    expect_same(interpret(program, inputs, run), expected, program);
  }
}

// The text of overlap_calls.h.
TEST(OverlapCalls, ADeviceBeginsAsSoonAsItMay) {
  const char* const text = R"(program @two(%x) -> (%y, %h) {
  plan arena 0 weights 0 scratch 0
  buffer %x: f32[2] input 0
  buffer %y: f32[2] output 0
  buffer %h: f32[2] output 1
  buffer %g: f32[2] arena
  buffer %s: f32[2] arena
  define rule "naive"
  kernel @a(x: f32[2]) -> (y: f32[2]) {
    for i in 0..2 { y[i] = (0:f32 - x[i]) }
  }
  define rule "naive"
  kernel @sum(x: f32[2]) -> (y: f32[2]) {
    for i in 0..2 { y[i] = (x[i] + x[i]) }
  }
  call @a(%x, %g)
  call @a(%x, %h)
  call @sum(%g, %s)
  call @a(%s, %y)
}
)";
  Program program = parse_program(text);
  overlap_calls(program, [](const KernelCall& call) { return call.kernel; });
  EXPECT_THAT(verify(program), IsEmpty());
  const std::string after = print(program);
  EXPECT_EQ(after.substr(after.find("  call")), R"(  call @a(%x, %g)
  call @sum(%g, %s)
  call @a(%x, %h)
  call @a(%s, %y)
}
)");
}

TEST(OverlapCalls, OrderLeavesWhatProgramsCompute) {
  int moved = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const Program before = random_steps(seed);
    const std::vector<Tensor> inputs = random_step_inputs(before, seed), expected = interpret(before, inputs);
    const auto device_of = [&](const KernelCall& call) {
      return (call.args.back() * 7 + call.kernel + static_cast<int32_t>(seed)) % 3 == 0 ? 1 : 0;
    };
    Program program = before;
    overlap_calls(program, device_of);
    expect_computes(program, inputs, expected);
    moved += print(program) == print(before) ? 0 : 1;
    assign_devices(program, {{"dev", "null"}}, device_of);
    expect_computes(program, inputs, expected);
    plan_memory(program);
    expect_computes(program, inputs, expected);
  }
  EXPECT_GT(moved, 10);
}

TEST(RandomDevices, MovingCallsLeavesWhatTheyCompute) {
  int starts = 0, copies = 0, moved = 0, overlapped = 0, direct = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const Program before = random_steps(seed);
    const std::vector<Tensor> inputs = random_step_inputs(before, seed);
    const std::vector<Tensor> expected = interpret(before, inputs);
    Program program = before;
    const int32_t devices = 1 + static_cast<int32_t>(seed % 2);
    std::vector<ProgramDevice> list;
    for (int32_t d = 0; d < devices; ++d) list.push_back({fmt::format("dev{}", d), "null"});
    // Every other program of two devices has such that read each other's memory.
    assign_devices(program, list, at_random(seed, devices),
                   seed % 4 == 1 ? std::set<std::string>{"null"} : std::set<std::string>{});
    expect_computes(program, inputs, expected);
    ASSERT_EQ(print(parse_program(print(program))), print(program));
    Program planned = program;
    plan_memory(planned);
    expect_computes(planned, inputs, expected);
    for (const ProgramPass& pass : program_pipeline()) {
      if (pass.phase != ProgramPhase::kScheduled) continue;
      pass.run(program, machine());
      expect_computes(program, inputs, expected);
    }
    plan_memory(program);
    expect_computes(program, inputs, expected);
    bool pending = false;
    for_each_step(planned.steps, [&](const ProgramStep& step) {
      starts += step.kind == StepKind::kStart ? 1 : 0;
      copies += step.kind == StepKind::kCopy ? 1 : 0;
      direct += step.kind == StepKind::kCopy && planned.buffers[static_cast<size_t>(step.from)].device > 0 &&
                        planned.buffers[static_cast<size_t>(step.to)].device > 0
                    ? 1
                    : 0;
      if (step.kind == StepKind::kStart || step.kind == StepKind::kWait) pending = step.kind == StepKind::kStart;
      if (step.kind == StepKind::kCalls && pending && step.num_calls > 0 &&
          planned.kernels[static_cast<size_t>(planned.calls[step.first_call].kernel)].device == 0)
        ++overlapped;
    });
    for (const ProgramBuffer& buffer : planned.buffers)
      moved += buffer.device > 0 && buffer.name.find(".dev") == std::string::npos ? 1 : 0;
  }
  std::cout << fmt::format(
      "[ info     ] {} starts, {} copies, {} between devices, {} buffers moved, host calls beside a start: {}\n",
      starts, copies, direct, moved, overlapped);
  EXPECT_GT(starts, 200);
  EXPECT_GT(copies, 200);
  EXPECT_GT(direct, 5);
  EXPECT_GT(moved, 20);
  EXPECT_GT(overlapped, 20);
}

// Steps of a block change places at random; whenever the verifier has nothing to say, it does not matter when a device
// does what it was given.
TEST(RandomDevices, TheVerifierCatchesRaces) {
  std::mt19937 random(5);
  int caught = 0, harmless = 0;
  for (uint64_t seed = 1000; seed < 1040; ++seed) {
    Program program = random_steps(seed);
    const std::vector<Tensor> inputs = random_step_inputs(program, seed);
    if (seed % 2 == 0) assign_devices(program, {{"dev", "null"}}, at_random(seed, 1));
    else assign_devices(program, {{"dev", "null"}, {"other", "null"}}, at_random(seed, 2), {"null"});
    for (int round = 0; round < 10; ++round) {
      Program broken = program;
      std::vector<size_t> waits;
      for (size_t i = 0; i < broken.steps.size(); ++i)
        if (broken.steps[i].kind == StepKind::kWait) waits.push_back(i);
      if (waits.empty()) break;
      const size_t from = waits[random() % waits.size()], to = random() % broken.steps.size();
      ProgramStep wait = broken.steps[from];
      broken.steps.erase(broken.steps.begin() + static_cast<std::ptrdiff_t>(from));
      broken.steps.insert(broken.steps.begin() + static_cast<std::ptrdiff_t>(to), std::move(wait));
      if (!verify(broken).empty()) {
        ++caught;
        continue;
      }
      ++harmless;
      ProgramRun late;
      late.late_starts = true;
      expect_same(interpret(broken, inputs, late), interpret(broken, inputs), broken);
    }
  }
  std::cout << fmt::format("[ info     ] {} races caught, {} changes were harmless\n", caught, harmless);
  EXPECT_GT(caught, 50);
  EXPECT_GT(harmless, 20);
}

}  // namespace
}  // namespace tessera
