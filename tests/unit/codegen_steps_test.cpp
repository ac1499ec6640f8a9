// Branches and loops as machine code: random programs agree with the interpreter, on every instruction set that this
// machine has, on one thread and on two; and the entry stays small, however often a loop runs.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iostream>

#include "codegen_harness.h"
#include "interp/program_interp.h"
#include "program/memory_plan.h"
#include "program/parser.h"
#include "program/pass.h"
#include "program/printer.h"
#include "program/steps.h"
#include "program/verify.h"
#include "random_steps.h"

namespace tessera {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

void optimize(Program& program) {
  Target target;
  for (const ProgramPass& pass : program_pipeline())
    if (pass.phase == ProgramPhase::kScheduled) pass.run(program, target);
}

bool same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (std::memcmp(a[i].bytes(), b[i].bytes(), static_cast<size_t>(a[i].num_bytes())) != 0) return false;
  return a.size() == b.size();
}

TEST(CodegenSteps, RandomProgramsAgreeWithTheInterpreter) {
  int runs = 0, parallel = 0, swaps = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Program program = random_steps(seed);
    const std::vector<Tensor> inputs = random_step_inputs(program, seed);
    const std::vector<Tensor> expected = interpret(program, inputs);
    if (seed % 3 > 0) optimize(program);
    plan_memory(program);
    ASSERT_THAT(verify(program), IsEmpty());
    for_each_step(program.steps, [&](const ProgramStep& step) {
      for (const CarriedValue& carried : step.carried) swaps += carried.swap ? 1 : 0;
    });
    if (seed % 2 == 0) {
      ASSERT_TRUE(CModule::can_have(program)) << print(program);
      ASSERT_TRUE(same(CModule(program).run(inputs), expected)) << "seed " << seed << " in C\n" << print(program);
    }
    const std::vector<std::string>& targets = runnable_targets();
    for (size_t t = 0; t < targets.size(); ++t) {
      CodegenOptions options;
      options.opt_level = (seed + t) % 4 == 0 ? 0 : 3;
      const NativeModule module(program, parse_target(targets[t]), options);
      for (const int threads : {1, 2}) {
        HostOptions host;
        host.threads = threads;
        host.parallel_calls = &parallel;
        // Twice, in memory that a run has left.
        for (int again = 0; again < 2; ++again, ++runs)
          ASSERT_TRUE(same(module.run(inputs, host), expected))
              << "seed " << seed << " " << targets[t] << " threads " << threads << "\n"
              << print(program);
      }
    }
  }
  std::cout << fmt::format("[ info     ] {} runs, {} parallel loops, {} values that change places\n", runs, parallel,
                           swaps);
  EXPECT_GT(parallel, 0);
  EXPECT_GT(swaps, 0);
}

// h = tanh-like step of h and x[t], stacked; `count` iterations.
std::string recurrence(int count) {
  return fmt::format(R"(program @rnn(%x, %h0) -> (%all) {{
  plan arena 0 weights 0 scratch 0
  index t < {0}
  buffer %x: f32[{0},16] input 0
  buffer %h0: f32[16] input 1
  buffer %all: f32[{0},16] output 0
  buffer %h: f32[16] arena
  buffer %sum: f32[16] arena
  buffer %h_next: f32[16] arena
  buffer %x_t: f32[16] input alias %x from (t * 64)
  buffer %all_t: f32[16] output alias %all from (t * 64)
  define rule "naive"
  kernel @copy(a: f32[16]) -> (b: f32[16]) {{
    for i in 0..16 {{ b[i] = a[i] }}
  }}
  define rule "naive"
  kernel @mix(a: f32[16], x: f32[16]) -> (b: f32[16]) {{
    for i in 0..16 {{ b[i] = ((a[(15 - i)] * 0.5:f32) + x[i]) }}
  }}
  define rule "naive"
  kernel @squash(a: f32[16]) -> (b: f32[16]) {{
    for i in 0..16 {{ b[i] = min(max(a[i], -1:f32), 1:f32) }}
  }}
  call @copy(%h0, %h)
  loop t < {0} carry %h = %h_next {{
    call @mix(%h, %x_t, %sum) loc("mix")
    call @squash(%sum, %h_next) loc("squash")
    call @copy(%h_next, %all_t)
  }}
}}
)",
                     count);
}

TEST(CodegenSteps, ALoopIsOneBodyHoweverOftenItRuns) {
  std::vector<size_t> sizes;
  for (const int count : {2, 1024}) {
    Program program = parse_program(recurrence(count));
    optimize(program);
    EXPECT_THAT(print(program), HasSubstr(fmt::format("loop t < {} {{", count))) << "nothing is copied";
    plan_memory(program);
    ASSERT_THAT(verify(program), IsEmpty());
    const NativeModule module(program, native_target());
    sizes.push_back(module.code().object.size());
    const std::vector<Tensor> inputs = random_step_inputs(program, 3);
    std::vector<std::pair<int, int>> trace;
    HostOptions host;
    host.trace = &trace;
    const std::vector<Tensor> got = module.run(inputs, host);
    EXPECT_EQ(difference(got[0], interpret(program, inputs)[0], 1e-6), "");
    double best = 1e9;
    for (int round = 0; round < 30; ++round) {
      const auto start = std::chrono::steady_clock::now();
      module.run(inputs);
      best =
          std::min(best, std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
    }
    std::cout << fmt::format("[ info     ] {} iterations: {:.1f} us with the call\n", count, best);
    // Each call has its number in each iteration.
    ASSERT_EQ(trace.size(), static_cast<size_t>(2 + 6 * count));
    EXPECT_EQ(trace[2], std::pair(1, 0));
    EXPECT_EQ(trace[8], std::pair(1, 0));
    EXPECT_EQ(trace.back(), std::pair(3, 1));
  }
  EXPECT_NEAR(static_cast<double>(sizes[1]), static_cast<double>(sizes[0]), 64);
}

// One thread sweeps over weights that are larger than half of its cache in turns forwards and backwards.
TEST(CodegenSteps, LoopsSweepOverLargeWeightsInTurns) {
  Program program = parse_program(R"(program @rnn(%x, %b) -> (%y) {
  plan arena 0 weights 0 scratch 0
  index t < 7
  buffer %x: f32[100] input 0
  buffer %w: f32[100,100] weight = splat<f32[100,100] 0.25>
  buffer %b: f32[100] input 1
  buffer %y: f32[100] output 0
  buffer %h: f32[100] arena
  buffer %h_next: f32[100] arena
  define rule "naive"
  kernel @copy(a: f32[100]) -> (b: f32[100]) {
    for i in 0..100 { b[i] = a[i] }
  }
  define rule "naive"
  kernel @step(x: f32[100], w: f32[100,100]) -> (y: f32[100]) {
    parallel for i in 0..50 { unrolled for u in 0..2 {
      y[((i * 2) + u)] = 0:f32
      for k in 0..100 { y[((i * 2) + u)] = (y[((i * 2) + u)] + ((x[k] * w[((i * 2) + u), k]) * 0.01:f32)) } } }
  }
  call @copy(%x, %h)
  loop t < 7 carry %h = %h_next {
    call @step(%h, %w, %h_next)
  }
  call @copy(%h, %y)
}
)");
  Tensor weights(DType::kF32, {100, 100});
  for (int64_t i = 0; i < weights.num_elements(); ++i) weights.set_double(i, static_cast<double>(i * 7919 % 101) / 50);
  program.buffers[1].data = std::make_shared<Tensor>(weights);
  const std::vector<Tensor> inputs = random_step_inputs(program, 5);
  const std::vector<Tensor> expected = interpret(program, inputs);
  for (const int threads : {2, 1}) {
    Target target;
    target.num_threads = threads;
    target.l2_bytes = 64 << 10;
    for (const ProgramPass& pass : program_pipeline())
      if (pass.phase == ProgramPhase::kScheduled) pass.run(program, target);
    EXPECT_EQ(print(program).find("call @step_in_turns(%h, %w, %h_next)") != std::string::npos, threads == 1);
    plan_memory(program);
    ASSERT_THAT(verify(program), IsEmpty()) << print(program);
    EXPECT_TRUE(same(interpret(program, inputs, ProgramRun{{}, true}), expected));
    EXPECT_EQ(difference(NativeModule(program, native_target()).run(inputs)[0], expected[0], 1e-5), "");
  }
}

// Sizes of a run, and as many iterations: views move by formulas of both.
TEST(CodegenSteps, CountsAndViewsMayHaveSymbols) {
  Program program = parse_program(R"(program @open[n in 1..40, k in 0..50](%x, %h0) -> (%all, %last) {
  plan arena 0 weights 0 scratch 0
  index t < 50
  buffer %x: f32[k,n] input 0
  buffer %h0: f32[n] input 1
  buffer %all: f32[k,n] output 0
  buffer %last: f32[n] output 1
  buffer %h: f32[n] arena
  buffer %sum: f32[n] arena
  buffer %h_next: f32[n] arena
  buffer %x_t: f32[n] input alias %x from ((t * n) * 4)
  buffer %all_t: f32[n] output alias %all from ((t * n) * 4)
  define rule "naive"
  kernel @copy<n>(a: f32[n]) -> (b: f32[n]) {
    for i in 0..n { b[i] = a[i] }
  }
  define rule "naive"
  kernel @mix<n, t>(a: f32[n], x: f32[n]) -> (b: f32[n]) {
    for i in 0..n { b[i] = ((a[((n - 1) - i)] + x[i]) + cast:f32(t)) }
  }
  call @copy(%h0, %h)
  loop t < k carry %h = %h_next {
    call @mix(%h, %x_t, %h_next)
    call @mix(%h, %h_next, %sum)
    call @copy(%sum, %all_t)
  }
  call @copy(%h, %last)
}
)");
  for (const bool optimized : {false, true}) {
    if (optimized) {
      optimize(program);
      program.steps[1].carried.at(0).swap = true;  // small as it is
    }
    plan_memory(program);
    ASSERT_THAT(verify(program), IsEmpty()) << print(program);
    const NativeModule module(program, native_target());
    for (const int64_t n : {1, 7, 40})
      for (const int64_t k : {0, 1, 2, 3, 50}) {
        Tensor x(DType::kF32, {k, n}), h0(DType::kF32, {n});
        for (int64_t i = 0; i < k * n; ++i) x.set_double(i, static_cast<double>(i % 13));
        for (int64_t i = 0; i < n; ++i) h0.set_double(i, static_cast<double>(i));
        const std::vector<Tensor> got = module.run({x, h0}, {}, {n, k});
        std::vector<double> h(static_cast<size_t>(n));
        for (int64_t i = 0; i < n; ++i) h[static_cast<size_t>(i)] = static_cast<double>(i);
        for (int64_t t = 0; t < k; ++t) {
          std::vector<double> next(h);
          for (int64_t i = 0; i < n; ++i)
            next[static_cast<size_t>(i)] =
                h[static_cast<size_t>(n - 1 - i)] + x.get_double(t * n + i) + static_cast<double>(t);
          for (int64_t i = 0; i < n; ++i)
            ASSERT_EQ(static_cast<float>(h[static_cast<size_t>(n - 1 - i)] + next[static_cast<size_t>(i)] +
                                         static_cast<double>(t)),
                      got[0].get_double(t * n + i))
                << n << " " << k << " " << t;
          h = next;
        }
        for (int64_t i = 0; i < n; ++i) ASSERT_EQ(static_cast<float>(h[static_cast<size_t>(i)]), got[1].get_double(i));
      }
  }
}

}  // namespace
}  // namespace tessera
