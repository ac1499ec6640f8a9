// Attention in one kernel of a GPU computes what its members compute one after the other: random shapes and masks, as
// loops and as threads in three orders.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "graph/parser.h"
#include "graph_passes/fusion/fuse_groups.h"
#include "interp/graph_interp.h"
#include "loop/naive_loops.h"
#include "loop/printer.h"
#include "lower/lower.h"
#include "ops/op_table.h"
#include "schedule/gpu/gpu_attention.h"
#include "support/remarks.h"
#include "thread_checks.h"

namespace tessera {
namespace {

enum class Mask { kNone, kOfRows, kOfColumns, kCausal, kAhead, kRagged };

struct Shape {
  int64_t batch = 1, heads = 1, group = 1;  // heads of queries that share keys and values
  int64_t queries = 8, keys = 8, depth = 8, out = 8;
  bool turned = false;  // keys are the columns of a matrix
  Mask mask = Mask::kNone;
  std::string narrow;  // the type of queries, keys and values; empty: f32
};

std::string text_of(const Shape& s) {
  const std::string outer = fmt::format("{},{}", s.batch, s.heads);
  const std::string rows = fmt::format("{},{},{}", outer, s.group, s.queries);
  const std::string keys = fmt::format(
      "{},1,{}", outer, s.turned ? fmt::format("{},{}", s.depth, s.keys) : fmt::format("{},{}", s.keys, s.depth));
  const std::string scores = fmt::format("f32[{},{}]", rows, s.keys), row = fmt::format("f32[{},1]", rows);
  const std::string result = fmt::format("f32[{},{}]", rows, s.out);
  std::string mask, input;
  if (s.mask == Mask::kOfRows) input = fmt::format(", %mask: f32[{},{}]", s.queries, s.keys);
  if (s.mask == Mask::kOfColumns) input = fmt::format(", %mask: f32[{},1,1,1,{}]", s.batch, s.keys);
  if (s.mask >= Mask::kCausal) {
    std::vector<std::string> elements;
    for (int64_t r = 0; r < s.queries; ++r)
      for (int64_t c = 0; c < s.keys; ++c) {
        const int64_t last = s.mask == Mask::kCausal ? r : s.mask == Mask::kAhead ? r + s.keys / 2 : (r * 7) % s.keys;
        elements.emplace_back(c <= last ? "0" : "-inf");
      }
    mask = fmt::format("  %mask = constant {{value = dense<f32[{0},{1}] {2}>}} : f32[{0},{1}]\n", s.queries, s.keys,
                       fmt::join(elements, " "));
  }
  const auto given = [&](const char* name, const std::string& dims) {
    return fmt::format("%{}{}: f32[{}]", name, s.narrow.empty() ? "" : ".wide", dims);
  };
  std::string wider;
  if (!s.narrow.empty())
    for (const auto& [name, dims] : {std::pair("q", fmt::format("{},{}", rows, s.depth)), std::pair("k", keys),
                                     std::pair("v", fmt::format("{},1,{},{}", outer, s.keys, s.out))})
      wider += fmt::format(
          "  %{0}.narrow = cast(%{0}.wide) {{to = {2}}} : {2}[{1}]\n  %{0} = cast(%{0}.narrow) {{to = f32}} : "
          "f32[{1}]\n",
          name, dims, s.narrow);
  std::string text = fmt::format(
      "graph @g({0}, {1}, {2}{3}) -> (%y: {4}) {{\n{5}"
      "  %scale = constant {{value = dense<f32[] 0.375>}} : f32[]\n{6}"
      "  %p = matmul(%q, %k) {{transpose_b = {7}}} : {8}\n  %c = mul(%p, %scale) : {8}\n",
      given("q", fmt::format("{},{}", rows, s.depth)), given("k", keys),
      given("v", fmt::format("{},1,{},{}", outer, s.keys, s.out)), input, result, wider, mask,
      s.turned ? "false" : "true", scores);
  std::string last = "%c";
  if (s.mask != Mask::kNone) text += fmt::format("  %s = add(%c, %mask) : {}\n", scores), last = "%s";
  text += fmt::format(
      "  %m = reduce({0}) {{axes = [4], keepdims = true, kind = \"max\"}} : {1}\n  %d = sub({0}, %m) : {2}\n"
      "  %e = exp(%d) : {2}\n  %l = reduce(%e) {{axes = [4], keepdims = true, kind = \"sum\"}} : {1}\n"
      "  %w = div(%e, %l) : {2}\n  %y = matmul(%w, %v) : {3}\n}}\n",
      last, row, scores, result);
  return text;
}

class GpuAttention : public testing::Test {
 protected:
  Program program_of(const std::string& text) const {
    return lower_graph(fuse_groups(parse_graph(text, standard_ops()), {standard_ops(), interpreter_, target_, 3}));
  }
  // Of a program in which that is one kernel.
  void check(const Shape& shape, const GpuLimits& limits) {
    SCOPED_TRACE(text_of(shape).substr(0, 200));
    Program program = program_of(text_of(shape));
    Remarks remarks;
    join_attention_on_gpus(program, [&](const Kernel&) { return &limits; }, &remarks);
    const size_t casts = shape.narrow.empty() ? 0 : 3;
    ASSERT_EQ(program.calls.size(), 1 + casts) << (remarks.list().empty() ? "" : remarks.list()[0].text);
    const KernelCall& call = program.calls.back();
    const Kernel& kernel = program.kernels[static_cast<size_t>(call.kernel)];
    EXPECT_EQ(kernel.rule, kGpuAttention);
    const LoopProgram naive = naive_loops(*kernel.joined);
    std::vector<Tensor> given = random_params(kernel.program, random_);
    for (size_t i = 0; i < given.size(); ++i)
      if (const auto& data = program.buffers[static_cast<size_t>(call.args[i])].data)
        given[i] = reshaped(*data, *kernel.program.params[i]);
    std::vector<Tensor> shaped;
    for (size_t i = 0; i < given.size(); ++i) shaped.push_back(reshaped(given[i], *naive.params[i]));
    // Threads wait for a piece as a whole, also where each reads only what it has stored. Exponentials are rounded to
    // what values are.
    const double tolerance = shape.narrow == "bf16" ? 8e-3 : shape.narrow == "f16" ? 1e-3 : 1e-5;
    expect_threads_agree(kernel.program, given, by_loops(naive, shaped), counts_, false, tolerance);
    for (const Launch& launch : thread_form(kernel.program).launches) {
      EXPECT_LE(launch.shared_bytes, std::max(limits.shared_bytes, limits.staged_bytes));
      copies_ += static_cast<int>(launch.copies.size());
      warps_ += launch.threads[0] == 32 && launch.threads[1] == 4;
      // exp is the device's instruction, and products are.
      const std::string loops = print(kernel.program);
      for (const char* intrinsic : {"cuda.exp.f32", "cuda.mma."})
        EXPECT_EQ(loops.find(intrinsic) != std::string::npos, !shape.narrow.empty()) << intrinsic;
    }
  }

  std::mt19937 random_{20261127};
  Counts counts_;
  int copies_ = 0, warps_ = 0;  // nests with asynchronous copies; kernels on tensor cores
  mutable GraphInterpreter interpreter_;
  const Target target_;
};

TEST_F(GpuAttention, RandomShapes) {
  const auto below = [&](int64_t most) { return static_cast<int64_t>(1 + random_() % static_cast<uint64_t>(most)); };
  for (int i = 0; i < 18 && !HasFatalFailure(); ++i) {
    Shape shape;
    shape.batch = below(2), shape.heads = below(2), shape.group = below(2);
    shape.queries = 1 + below(i % 3 == 0 ? 4 : 40), shape.keys = 1 + below(i % 4 == 0 ? 3 : 90);
    shape.depth = below(i % 5 == 0 ? 40 : 9), shape.out = below(i % 5 == 1 ? 40 : 9);
    shape.turned = random_() % 2 == 0;
    shape.mask = static_cast<Mask>(i % 6);
    GpuLimits limits;
    limits.threads = random_() % 2 == 0 ? 64 : 256;
    limits.multiprocessors = 1 << (random_() % 6);
    check(shape, limits);
  }
  EXPECT_GT(counts_.barriers, 100);
}

// On tensor cores: queries, keys and values of 16 bits.
TEST_F(GpuAttention, OfWarps) {
  const auto below = [&](int64_t most) { return static_cast<int64_t>(1 + random_() % static_cast<uint64_t>(most)); };
  for (int i = 0; i < 6 && !HasFatalFailure(); ++i) {
    Shape shape;
    shape.heads = below(2);
    shape.queries = 1 + below(i == 0 ? 100 : 40), shape.keys = i % 2 == 0 ? 8 * below(9) : 1 + below(70);
    shape.depth = 16 * below(2), shape.out = 16 * below(i == 1 ? 4 : 2);
    shape.turned = i % 2 == 0;
    shape.mask = static_cast<Mask>(i % 6);
    shape.narrow = i % 2 == 0 ? "bf16" : "f16";
    GpuLimits limits;
    limits.warp_products = true;
    limits.staged_bytes = i == 3 ? 0 : 99 << 10;
    limits.multiprocessors = i == 0 ? 1 : 132;
    check(shape, limits);
  }
  EXPECT_EQ(warps_, 6);
  EXPECT_GT(copies_, 12);
  EXPECT_GT(counts_.waits, 5);
}

// Tiles that no row of a block sees are not gone through.
TEST_F(GpuAttention, MasksLeaveTilesOut) {
  GpuLimits limits;
  limits.threads = 64;
  limits.multiprocessors = 1;
  const auto loops_of = [&](Mask mask) {
    Program program = program_of(text_of({.queries = 64, .keys = 64, .mask = mask}));
    join_attention_on_gpus(program, [&](const Kernel&) { return &limits; });
    return print(program.kernels[static_cast<size_t>(program.calls[0].kernel)].program);
  };
  EXPECT_THAT(loops_of(Mask::kOfRows), testing::HasSubstr("for key_tile in 0..2 "));
  EXPECT_THAT(loops_of(Mask::kCausal), testing::HasSubstr("for key_tile in 0..(query_tile + 1) "));
}

// Why what looks like attention is none is said.
TEST_F(GpuAttention, SaysWhyNot) {
  const auto reason_of = [&](const Shape& shape, int64_t shared_bytes) {
    Program program = program_of(text_of(shape));
    GpuLimits limits;
    limits.shared_bytes = shared_bytes;
    Remarks remarks;
    join_attention_on_gpus(program, [&](const Kernel&) { return &limits; }, &remarks);
    return remarks.list().empty() ? "" : remarks.list()[0].text;
  };
  EXPECT_EQ(reason_of({}, 2048), "the operands' pieces do not fit in shared memory");
  EXPECT_EQ(reason_of({.out = 600}, 32 << 10), "a row of values is too long for the registers of a block");
  EXPECT_EQ(reason_of({.heads = 3, .queries = 1}, 32 << 10), "keys differ from query to query");
  EXPECT_EQ(reason_of({}, 32 << 10), "");
}

}  // namespace
}  // namespace tessera
