// The rules of GPUs keep what a kernel computes: random kernels, each rule, as loops and as threads in three orders. No
// barrier of their thread forms can be left out: without it, threads race.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "codegen/gpu/gpu_codegen.h"
#include "codegen/gpu/gpu_dialects.h"
#include "device/thread_form.h"
#include "graph/parser.h"
#include "graph_passes/fusion/fuse_groups.h"
#include "interp/graph_interp.h"
#include "interp/loop_interp.h"
#include "interp/thread_interp.h"
#include "loop/naive_loops.h"
#include "loop/parser.h"
#include "loop/printer.h"
#include "loop/verify.h"
#include "lower/lower.h"
#include "ops/op_table.h"
#include "program/single_kernel_program.h"
#include "schedule/gpu/gpu_rows.h"
#include "schedule/gpu/gpu_rules.h"
#include "schedule_cases.h"
#include "thread_checks.h"

namespace tessera {
namespace {

void check_rules(const std::string& kind, const Graph& graph, std::mt19937& random, Counts& counts) {
  GraphInterpreter interpreter;
  const Target target;
  const PassContext ctx{standard_ops(), interpreter, target, 3};
  const Graph grouped = fuse_groups(graph, ctx);
  std::vector<TensorProgram> definitions;
  if (kind == "bf16" || kind == "f16") {  // values between kernels are narrow, as in a program
    for (const Kernel& kernel : lower_graph(grouped).kernels)
      if (kernel.definition) definitions.push_back(*kernel.definition);
  } else {
    std::vector<size_t> kept;
    for (const Node& node : grouped.nodes())
      if (node.op->kind != OpKind::kConstant && node.op->name != "reshape")
        definitions.push_back(lower_node(grouped, node, kept));
  }
  for (const TensorProgram& definition : definitions) {
    if (count_flops(definition) > 300000) continue;  // the interpreter takes its time
    const LoopProgram naive = naive_loops(definition);
    const std::vector<Tensor> given = random_params(naive, random);
    const std::vector<Tensor> want = by_loops(naive, given);
    for (const GpuRule& rule : gpu_rules()) {
      GpuLimits limits;
      limits.threads = random() % 2 == 0 ? 64 : 256;
      if (random() % 2 == 0) limits.wanted_threads = 1 << (random() % 8);
      if (random() % 2 == 0) limits.sums_of_thread = 8;
      limits.multiprocessors = 1 << (random() % 8);
      limits.warp_products = true;
      limits.staged_bytes = random() % 3 == 0 ? 0 : (random() % 2 == 0 ? 40 : 99) << 10;
      const GpuRuleResult answer = rule.apply(definition, limits);
      if (const auto* declined = std::get_if<Declined>(&answer)) {
        EXPECT_FALSE(declined->reason.empty());
        continue;
      }
      SCOPED_TRACE(fmt::format("{}, {}", kind, rule.name));
      expect_threads_agree(std::get<LoopProgram>(answer), given, want, counts);
      if (testing::Test::HasFatalFailure()) return;
      ++counts.taken[std::string(rule.name)];
    }
  }
}

TEST(GpuRules, ThreadsComputeWhatTheKernelSays) {
  std::mt19937 random(20261126);
  Counts counts;
  for (const char* kind : {"conv", "conv1d", "depthwise", "transposed", "pool", "matmul", "reduce", "elementwise",
                           "movement", "shuffle", "resize"})
    for (int i = 0; i < 6 && !HasFatalFailure(); ++i)
      check_rules(kind, random_case(kind, 8, random).graph, random, counts);
  // Long sums, whose steps groups of threads share, and whole vectors.
  for (int i = 0; i < 8 && !HasFatalFailure(); ++i) {
    const auto below = [&](int64_t most) { return static_cast<int64_t>(1 + random() % most); };
    const int64_t rows = 7 + below(20), steps = 32 + below(100), columns = 7 + below(20);
    const bool even = random() % 2 == 0, turned = random() % 2 == 0;
    const int64_t wide = even ? 8 * (columns / 8 + 1) : columns;
    const char* narrow = i % 2 == 0 ? "bf16" : "f16";
    const std::vector<std::pair<std::string, std::string>> cases = {
        {"long matmul", fmt::format("graph @g(%x: f32[{0},{1}], %w: f32[{1},{2}]) -> (%y: f32[{0},{2}]) {{\n"
                                    "  %y = matmul(%x, %w) : f32[{0},{2}]\n}}\n",
                                    rows, steps, columns)},
        {"vector by matrix", fmt::format("graph @g(%x: f32[1,{0}], %w: f32[{0},{1}]) -> (%y: f32[1,{1}]) {{\n"
                                         "  %y = matmul(%x, %w) : f32[1,{1}]\n}}\n",
                                         4 * steps, 31 + columns)},
        {"sums of columns",
         fmt::format("graph @g(%x: f32[{0},{1}]) -> (%y: f32[{1}]) {{\n"
                     "  %y = reduce(%x) {{axes = [0], keepdims = false, kind = \"{2}\"}} : f32[{1}]\n}}\n",
                     3 * steps, 31 + columns, random() % 2 ? "sum" : "max")},
        {narrow, fmt::format("graph @g(%x: f32[{0},{1}], %w: f32[{2}]) -> (%y: f32[{0},{3}]) {{\n"
                             "  %a = cast(%x) {{to = {5}}} : {5}[{0},{1}]\n  %b = cast(%w) {{to = {5}}} : {5}[{2}]\n"
                             "  %c = cast(%a) {{to = f32}} : f32[{0},{1}]\n  %d = cast(%b) {{to = f32}} : f32[{2}]\n"
                             "  %y = matmul(%c, %d) {{transpose_b = {4}}} : f32[{0},{3}]\n}}\n",
                             rows, even ? 8 * (steps / 8) : steps,
                             turned ? fmt::format("{},{}", wide, even ? 8 * (steps / 8) : steps)
                                    : fmt::format("{},{}", even ? 8 * (steps / 8) : steps, wide),
                             wide, turned ? "true" : "false", narrow)},
        {"turned", fmt::format("graph @g(%x: f32[2,{0},{1}], %w: f32[{1},2,{0}]) -> (%y: f32[{1},2,{0}]) {{\n"
                               "  %t = transpose(%x) {{perm = [2, 0, 1]}} : f32[{1},2,{0}]\n"
                               "  %y = add(%t, %w) : f32[{1},2,{0}]\n}}\n",
                               15 + rows, 15 + columns)},
        {"vectors", fmt::format("graph @g(%x: f32[{0},{1}], %w: f32[{1}]) -> (%y: f32[{0},{1}]) {{\n"
                                "  %a = add(%x, %w) : f32[{0},{1}]\n  %y = tanh(%a) : f32[{0},{1}]\n}}\n",
                                8 + rows, 4 * columns)}};
    for (const auto& [kind, text] : cases) check_rules(kind, parse_graph(text, standard_ops()), random, counts);
  }
  for (const GpuRule& rule : gpu_rules()) EXPECT_GT(counts.taken[std::string(rule.name)], 2) << rule.name;
  EXPECT_GT(counts.barriers, 20);
  EXPECT_GT(counts.waits, 2);
}

// ---- rows ----

// Softmax and norms, written out, behind and in front of other kernels.
std::string rows_text(const std::string& kind, const std::string& shape, const std::string& rows, int64_t axis) {
  const std::string reduced = fmt::format("axes = [{}], keepdims = true", axis);
  if (kind == "softmax")
    return fmt::format(
        "graph @g(%x: f32[{0}]) -> (%y: f32[{0}]) {{\n"
        "  %m = reduce(%x) {{{2}, kind = \"max\"}} : f32[{1}]\n  %d = sub(%x, %m) : f32[{0}]\n"
        "  %e = exp(%d) : f32[{0}]\n  %s = reduce(%e) {{{2}, kind = \"sum\"}} : f32[{1}]\n"
        "  %y = div(%e, %s) : f32[{0}]\n}}\n",
        shape, rows, reduced);
  return fmt::format(
      "graph @g(%x: f32[{0}], %w: f32[{0}]) -> (%y: f32[{0}], %z: f32[{1}]) {{\n"
      "  %a = add(%x, %w) : f32[{0}]\n  %m = reduce(%a) {{{2}, kind = \"sum\"}} : f32[{1}]\n"
      "  %d = sub(%a, %m) : f32[{0}]\n  %q = mul(%d, %d) : f32[{0}]\n"
      "  %v = reduce(%q) {{{2}, kind = \"sum\"}} : f32[{1}]\n  %r = sqrt(%v) : f32[{1}]\n"
      "  %p = tanh(%r) : f32[{1}]\n  %y = mul(%d, %p) : f32[{0}]\n  %z = neg(%m) : f32[{1}]\n}}\n",
      shape, rows, reduced);
}

TEST(GpuRows, ThreadsComputeWhatTheKernelsSay) {
  std::mt19937 random(20261126);
  Counts counts;
  GraphInterpreter interpreter;
  const Target target;
  const PassContext ctx{standard_ops(), interpreter, target, 3};
  size_t joined = 0;
  for (const char* kind : {"softmax", "norm"})
    for (const int64_t columns : {1, 5, 32, 77, 300})
      for (const bool planes : {false, true}) {
        const std::string rows = planes ? "2,3,1" : "3,1";
        const std::string shape = fmt::format("{}{}", planes ? "2,3," : "3,", columns);
        const Graph graph = parse_graph(rows_text(kind, shape, rows, planes ? 2 : 1), standard_ops());
        Program program = lower_graph(fuse_groups(graph, ctx));
        const size_t calls = program.calls.size();
        GpuLimits limits;
        limits.threads = random() % 2 == 0 ? 64 : 256;
        join_rows_on_gpus(program, [&](const Kernel&) { return &limits; });
        if (columns > 1) {
          EXPECT_LT(program.calls.size(), calls) << kind << columns;
        }
        for (const Kernel& kernel : program.kernels) {
          if (kernel.rule != kGpuRows) continue;
          ++joined;
          SCOPED_TRACE(fmt::format("{} {}", kind, shape));
          const LoopProgram naive = naive_loops(*kernel.joined);
          const std::vector<Tensor> given = random_params(kernel.program, random);
          std::vector<Tensor> shaped;
          for (size_t i = 0; i < given.size(); ++i) shaped.push_back(reshaped(given[i], *naive.params[i]));
          // Threads wait for a row as a whole, also where each reads only what it has stored.
          expect_threads_agree(kernel.program, given, by_loops(naive, shaped), counts, false);
          if (HasFatalFailure()) return;
        }
      }
  EXPECT_GE(joined, 16U);
  EXPECT_GT(counts.barriers, 100);
}

TEST(GpuRows, RowsThatDoNotFitStayApart) {
  GraphInterpreter interpreter;
  const Target target;
  const PassContext ctx{standard_ops(), interpreter, target, 3};
  GpuLimits limits;
  for (const int64_t columns : {8000, 8100, 8190, 12000, 20000})
    for (const int64_t kilobytes : {32, 48}) {
      const Graph graph = parse_graph(rows_text("softmax", fmt::format("2,{}", columns), "2,1", 1), standard_ops());
      Program program = lower_graph(fuse_groups(graph, ctx));
      limits.shared_bytes = kilobytes << 10;
      join_rows_on_gpus(program, [&](const Kernel&) { return &limits; });
      for (const Kernel& kernel : program.kernels)
        for (const Launch& launch : thread_form(kernel.program).launches)
          EXPECT_LE(launch.shared_bytes, limits.shared_bytes) << columns;
    }
}

// What is not bf16 where a condition does not hold goes through no tensor core; a mask leaves infinities out of sums.
TEST(GpuRules, OtherValuesThanZeroAreNoPadding) {
  GraphInterpreter interpreter;
  const Target target;
  const PassContext ctx{standard_ops(), interpreter, target, 3};
  GpuLimits limits;
  limits.warp_products = true;
  const auto rule_of = [&](const std::string& text) {
    for (const Kernel& kernel : lower_graph(fuse_groups(parse_graph(text, standard_ops()), ctx)).kernels)
      if (kernel.definition && kernel.definition->reduction())
        for (const GpuRule& rule : gpu_rules())
          if (const auto answer = rule.apply(*kernel.definition, limits); std::holds_alternative<LoopProgram>(answer))
            return std::string(rule.name);
    return std::string();
  };
  EXPECT_NE(rule_of("graph @g(%m: bool[32,64,1], %x: bf16[32,64,1], %w: bf16[1,64,40]) -> (%y: f32[32,40]) {\n"
                    "  %five = constant {value = dense<f32[] 5>} : f32[]\n  %a = cast(%x) {to = f32} : f32[32,64,1]\n"
                    "  %s = select(%m, %a, %five) : f32[32,64,1]\n  %b = cast(%w) {to = f32} : f32[1,64,40]\n"
                    "  %p = mul(%s, %b) : f32[32,64,40]\n"
                    "  %y = reduce(%p) {axes = [1], keepdims = false, kind = \"sum\"} : f32[32,40]\n}\n"),
            "gpu_mma");
  const std::string masked = rule_of(
      "graph @g(%m: bool[32,64,1], %a: f32[32,64,1], %b: f32[1,64,40]) -> (%y: f32[32,40]) {\n"
      "  %zero = constant {value = dense<f32[] 0>} : f32[]\n  %p = mul(%a, %b) : f32[32,64,40]\n"
      "  %s = select(%m, %p, %zero) : f32[32,64,40]\n"
      "  %y = reduce(%s) {axes = [1], keepdims = false, kind = \"sum\"} : f32[32,40]\n}\n");
  EXPECT_NE(masked, "gpu_tile");
  EXPECT_NE(masked, "");
}

// ---- the thread form by itself ----

struct Form {
  LoopProgram program;
  DeviceKernel kernel;
};

Form form_of(const std::string& text) {
  Form form{parse_loop_program(text), {}};
  EXPECT_THAT(verify(form.program), testing::IsEmpty());
  form.kernel = thread_form(form.program);
  return form;
}

TEST(ThreadForm, ThreadsWaitForWhatOthersStore) {
  const Form form = form_of(R"(kernel @k(x: f32[4,8]) -> (y: f32[4,8]) {
  blockIdx.x for b in 0..4 {
    alloc part: f32[8] local
    threadIdx.x for t in 0..8 { part[t] = x[b, t] }
    threadIdx.x for u in 0..8 { y[b, u] = part[(7 - u)] } } })");
  ASSERT_EQ(form.kernel.problem, "");
  ASSERT_EQ(form.kernel.launches.size(), 1U);
  const Launch& launch = form.kernel.launches[0];
  EXPECT_EQ(*as_int(launch.blocks[0]), 4);
  EXPECT_EQ(launch.threads[0], 8);
  EXPECT_EQ(launch.barriers.size(), 1U);
  EXPECT_EQ(launch.shared_bytes, 32);
}

TEST(ThreadForm, NobodyWaitsForReadersOrForOtherMemory) {
  const Form form = form_of(R"(kernel @k(x: f32[8]) -> (y: f32[8]) {
  blockIdx.x for b in 0..1 {
    alloc p: f32[8] local
    alloc q: f32[8] local
    threadIdx.x for t in 0..8 { p[t] = x[t] }
    threadIdx.x for u in 0..8 { q[u] = x[u] }
    threadIdx.x for v in 0..8 { y[v] = (p[(7 - v)] + q[v]) }
    threadIdx.x for w in 0..8 { if (p[w] < 0:f32) { y[w] = 0:f32 } } } })");
  ASSERT_EQ(form.kernel.problem, "");
  EXPECT_EQ(form.kernel.launches[0].barriers.size(), 2U);  // before v, and before w for y
}

// The next round of a loop stores where this one still reads.
TEST(ThreadForm, LoopsGoRound) {
  const Form form = form_of(R"(kernel @k(x: f32[3,8]) -> (y: f32[8]) {
  blockIdx.x for b in 0..1 {
    alloc sum: f32[8,1] register
    alloc p: f32[8] local
    threadIdx.x for s in 0..8 { sum[s, 0] = 0:f32 }
    for k in 0..3 {
      threadIdx.x for t in 0..8 { p[t] = x[k, t] }
      threadIdx.x for u in 0..8 { sum[u, 0] = (sum[u, 0] + p[(7 - u)]) } }
    threadIdx.x for v in 0..8 { y[v] = sum[v, 0] } } })");
  ASSERT_EQ(form.kernel.problem, "");
  EXPECT_EQ(form.kernel.launches[0].barriers.size(), 2U);
  std::mt19937 random(1);
  const std::vector<Tensor> given = random_params(form.program, random);
  Counts counts;
  expect_threads_agree(form.program, given, by_loops(form.program, given), counts);
}

// Pieces go round through three slots, two of them ahead: the one that is read has arrived when one group at most is
// under way, and one barrier a round keeps slots apart.
TEST(ThreadForm, CopiesAheadOfWhatIsRead) {
  const auto from = [&](const std::string& piece, const std::string& slot) {
    return fmt::format(fmt::runtime("tensorized \"cuda.copy.b16\" {{ vectorized for l in 0..8 {{ "
                                    "p[{1}, t, l] = x[{0}, t, l] }} }}"),
                       piece, slot);
  };
  const auto loops = [&](const std::string& slots, const std::string& modulus) {
    return "kernel @k(x: bf16[9,4,8]) -> (y: bf16[9,4]) {\n  blockIdx.x for b in 0..1 {\n    alloc p: bf16[" + slots +
           ",4,8] local\n    threadIdx.x for t in 0..4 { " + from("0", "0") + " }\n    threadIdx.x for t in 0..4 { " +
           from("1", "1") + " }\n    for i in 0..9 { threadIdx.x for t in 0..4 {\n      if (i < 7) { " +
           from("(i + 2)", "floormod((i + 2), " + modulus + ")") + " }\n      y[i, t] = p[floormod(i, " + modulus +
           "), (3 - t), t] } } } }";
  };
  const Form form = form_of(loops("3", "3"));
  ASSERT_EQ(form.kernel.problem, "");
  const Launch& launch = form.kernel.launches[0];
  EXPECT_EQ(launch.copies.size(), 3U);
  ASSERT_EQ(launch.waits.size(), 1U);
  EXPECT_EQ(launch.waits.begin()->second, 1);
  EXPECT_EQ(launch.barriers.size(), 1U);
  EXPECT_TRUE(launch.barriers.contains(launch.waits.begin()->first));
  std::mt19937 random(1);
  const std::vector<Tensor> given = random_params(form.program, random);
  Counts counts;
  expect_threads_agree(form.program, given, by_loops(form.program, given), counts);
  EXPECT_EQ(counts.waits, 1);
}

// A ring is read behind its loop: the last iteration, not the one in which places began to repeat, says what is there.
TEST(ThreadForm, LoopsThatEndAnywhereInTheRing) {
  const auto loops_of = [](const std::string& type, const std::string& store, const std::string& symbols,
                           const std::string& extent, const std::string& dims, const std::string& read) {
    return fmt::format(
        "kernel @k{0}(x: {1}[9,4{2}]) -> (y: {1}[4]) {{\n  blockIdx.x for b in 0..1 {{\n    alloc p: {1}[2,4{2}] "
        "local\n"
        "    for i in 0..{3} {{ threadIdx.x for t in 0..4 {{ {4} }} }}\n"
        "    threadIdx.x for t in 0..4 {{ y[t] = p[{5}, (3 - t){6}] }} }} }}",
        symbols, type, dims, extent, store, read, dims.empty() ? "" : ", t");
  };
  const std::string plain = "p[floormod(i, 2), t] = x[i, t]";
  const std::string copy =
      "tensorized \"cuda.copy.b16\" { vectorized for l in 0..8 { p[floormod(i, 2), t, l] = x[i, t, l] } }";
  for (const int64_t extent : {2, 3, 5, 6, 9})
    for (const bool copies : {false, true})
      for (const bool open : {false, true}) {
        SCOPED_TRACE(fmt::format("{} iterations{}{}", extent, copies ? ", copied" : "", open ? ", open" : ""));
        const std::string read = fmt::format("{}", (extent - 1) % 2);
        LoopProgram program =
            parse_loop_program(loops_of(copies ? "bf16" : "f32", copies ? copy : plain, open ? "<n>" : "",
                                        open ? "n" : fmt::format("{}", extent), copies ? ",8" : "", read));
        const DeviceKernel kernel = thread_form(program);
        ASSERT_EQ(kernel.problem, "");
        // Before what is read, and, where slots come again, before they are stored to.
        EXPECT_EQ(kernel.launches[0].barriers.size(), extent > 2 || open ? 2U : 1U);
        if (open) {
          int least = copies ? 9 : 0;
          for (const auto& [statement, under_way] : kernel.launches[0].waits) least = std::min(least, under_way);
          EXPECT_EQ(least, 0);
          continue;
        }
        std::mt19937 random(1);
        const std::vector<Tensor> given = random_params(program, random);
        Counts counts;
        expect_threads_agree(program, given, by_loops(program, given), counts, false);
      }
}

// An index that stays a while, and then moves on, is no ring: it may be any slot.
TEST(ThreadForm, SlotsThatStayAWhile) {
  const Form form = form_of(R"(kernel @k(x: f32[8,4]) -> (y: f32[8,4], z: f32[4]) {
  blockIdx.x for b in 0..1 {
    alloc p: f32[2,4] local
    alloc q: f32[2,4] local
    threadIdx.x for t in 0..4 { p[0, t] = x[0, t] }
    threadIdx.x for t in 0..4 { p[1, t] = x[1, t] }
    threadIdx.x for t in 0..4 { z[t] = (p[0, (3 - t)] + p[1, (3 - t)]) }
    for i in 0..8 {
      threadIdx.x for t in 0..4 { q[floormod(i, 2), t] = p[floormod(floordiv(i, 4), 2), (3 - t)] }
      threadIdx.x for t in 0..4 { y[i, t] = q[floormod(i, 2), (3 - t)] }
      threadIdx.x for t in 0..4 { p[floormod((floordiv(i, 4) + 1), 2), t] = x[i, t] } } } })");
  ASSERT_EQ(form.kernel.problem, "");
  std::mt19937 random(1);
  const std::vector<Tensor> given = random_params(form.program, random);
  Counts counts;
  expect_threads_agree(form.program, given, by_loops(form.program, given), counts, false);
}

// What stands outside of thread loops happens once.
TEST(ThreadForm, FirstThreadsAndSmallerNests) {
  const Form form = form_of(R"(kernel @k(x: f32[8]) -> (y: f32[8], z: f32[1]) {
  blockIdx.x for b in 0..1 {
    alloc p: f32[8] local
    threadIdx.y for r in 0..2 { threadIdx.x for t in 0..4 { p[((r * 4) + t)] = x[((r * 4) + t)] } }
    z[0] = p[7]
    threadIdx.x for u in 0..3 { y[u] = p[(u + 4)] }
    for i in 3..8 { y[i] = p[i] } } })");
  ASSERT_EQ(form.kernel.problem, "");
  EXPECT_EQ(form.kernel.launches[0].num_threads(), 8);
  std::mt19937 random(1);
  const std::vector<Tensor> given = random_params(form.program, random);
  for (const ThreadOrder order : kOrders)
    EXPECT_EQ(difference(by_threads(form.program, form.kernel, given, order), by_loops(form.program, given)), "");
}

TEST(ThreadForm, WhatHasNone) {
  EXPECT_THAT(form_of(R"(kernel @k(x: f32[8]) -> (y: f32[8]) {
  alloc p: f32[8] local
  blockIdx.x for b in 0..2 { threadIdx.x for t in 0..4 { p[((b * 4) + t)] = x[((b * 4) + t)]
    y[((b * 4) + t)] = p[((b * 4) + t)] } } })")
                  .kernel.problem,
              testing::HasSubstr("p is allocated outside of the blocks of threads"));
  EXPECT_THAT(form_of(R"(kernel @k(x: f32[8]) -> (y: f32[8]) {
  for i in 0..2 { blockIdx.x for b in 0..4 { y[((i * 4) + b)] = x[((i * 4) + b)] } } })")
                  .kernel.problem,
              testing::HasSubstr("has blocks of threads inside of it"));
}

// Two launches, one after the other.
TEST(ThreadForm, Launches) {
  const Form form = form_of(R"(kernel @k(x: f32[8]) -> (y: f32[8], z: f32[8]) {
  blockIdx.x for b in 0..2 { threadIdx.x for t in 0..4 { y[((b * 4) + t)] = x[((b * 4) + t)] } }
  blockIdx.x for c in 0..8 { z[c] = y[(7 - c)] } })");
  ASSERT_EQ(form.kernel.problem, "");
  ASSERT_EQ(form.kernel.launches.size(), 2U);
  EXPECT_EQ(form.kernel.launches[1].num_threads(), 1);
}

// ---- as text ----

std::string text_of(const std::string& loops, const Dialect& dialect) {
  Program program = program_of(parse_loop_program(loops));
  program.devices.push_back({"gpu", "gpu"});
  program.kernels[0].device = 1;
  const std::string source = generate_gpu_source(program, 1, dialect);
  return source.substr(source.find(std::string(dialect.kernel)));
}

constexpr const char* kReversed = R"(kernel @k(x: f32[4,8]) -> (y: f32[4,8]) {
  blockIdx.x for b in 0..4 {
    alloc part: f32[8] local
    threadIdx.x for t in 0..8 { part[t] = x[b, t] }
    threadIdx.x for u in 0..6 { y[b, u] = fma(part[(7 - u)], 2:f32, 1:f32) } } })";

TEST(GpuText, OpenCl) {
  EXPECT_EQ(text_of(kReversed, opencl_c()),
            "__kernel __attribute__((reqd_work_group_size(8, 1, 1))) void k0_k("
            R"(__global u8 *x_memory, i64 x_at, __global u8 *y_memory, i64 y_at) {
  __global const f32 *restrict x = (__global const f32 *)(x_memory + x_at);
  __global f32 *restrict y = (__global f32 *)(y_memory + y_at);
  __local __attribute__((aligned(16))) f32 part[8];
  { const i32 b = get_group_id(0);
    (void)b;
    { const i32 t = get_local_id(0);
      (void)t;
      part[t] = x[(b * 8) + t];
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    { const i32 u = get_local_id(0);
      (void)u;
      if (u < 6) {
        y[(b * 8) + u] = fmaf(part[(u * (-1)) + 7], 2.0f, 1.0f);
      }
    }
  }
}
)");
}

// Copies that the thread does not wait for, and more shared memory than a kernel may declare.
TEST(GpuText, CopiesOfCuda) {
  const std::string loops = R"(kernel @k(x: bf16[4096,8]) -> (y: bf16[8]) {
  blockIdx.x for b in 0..1 {
    alloc p: bf16[4096,8] local
    threadIdx.x for t in 0..8 { for i in 0..512 {
      tensorized "cuda.copy.b16" { vectorized for l in 0..8 { p[((i * 8) + t), l] = x[((i * 8) + t), l] } } } }
    threadIdx.x for u in 0..8 { y[u] = p[(u * 512), 7] } } })";
  const std::string text = text_of(loops, cuda_cpp());
  EXPECT_THAT(text, testing::HasSubstr("u16 *const p = (u16 *)(tsr_shared + 0);"));
  EXPECT_THAT(text, testing::HasSubstr("tsr_copy(&p["));
  EXPECT_THAT(text,
              testing::HasSubstr("    tsr_end_of_copies();\n    tsr_wait_for_copies<0>();\n    __syncthreads();"));
  EXPECT_THAT(text_of(loops, opencl_c()), testing::Not(testing::HasSubstr("tsr_")));
}

TEST(GpuText, Cuda) {
  EXPECT_EQ(text_of(kReversed, cuda_cpp()),
            R"(extern "C" __global__ void __launch_bounds__(8, 2) k0_k(const f32 *__restrict__ x, f32 *__restrict__ y) {
  __shared__ __align__(16) f32 part[8];
  { const i32 b = blockIdx.x;
    (void)b;
    { const i32 t = threadIdx.x;
      (void)t;
      part[t] = x[(b * 8) + t];
    }
    __syncthreads();
    { const i32 u = threadIdx.x;
      (void)u;
      if (u < 6) {
        y[(b * 8) + u] = fmaf(part[(u * (-1)) + 7], 2.0f, 1.0f);
      }
    }
  }
}
)");
}

// Indices have 32 bits where all their parts fit, and only there.
TEST(GpuText, IndicesOf64Bits) {
  const std::string text = text_of(R"(kernel @k(x: f32[70000,40000]) -> (y: f32[70000]) {
  blockIdx.x for b in 0..70000 { threadIdx.x for t in 0..1 { y[b] = x[b, ((b * 2) - b)] } } })",
                                   opencl_c());
  EXPECT_THAT(text, testing::HasSubstr("const i32 b = get_group_id(0);"));
  EXPECT_THAT(text, testing::HasSubstr("y[b] = x[(i64)b * 40001];"));
}

}  // namespace
}  // namespace tessera
