// Kernels of open sizes on GPUs: one program for all sizes of a range, which computes what the kernel says at each of
// them, as loops and as threads in three orders.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "arith/simplify.h"
#include "codegen/gpu/gpu_codegen.h"
#include "graph/parser.h"
#include "graph_passes/fusion/fuse_groups.h"
#include "interp/graph_interp.h"
#include "loop/naive_loops.h"
#include "lower/lower.h"
#include "ops/op_table.h"
#include "schedule/dynamic/axis_sizes.h"
#include "schedule/dynamic/kernel_at.h"
#include "schedule/gpu/gpu_attention.h"
#include "schedule/gpu/gpu_rows.h"
#include "schedule/gpu/gpu_rules.h"
#include "thread_checks.h"

namespace tessera {
namespace {

// Of one open size n from 1 to 40.
const std::vector<std::pair<std::string, std::string>> kGraphs = {
    {"elementwise",
     "(%x: f32[n,5], %w: f32[5]) -> (%y: f32[n,5]) {\n"
     "  %a = add(%x, %w) : f32[n,5]\n  %y = tanh(%a) : f32[n,5]\n}\n"},
    {"turned",
     "(%x: f32[3,n,7]) -> (%y: f32[n,7,3]) {\n"
     "  %y = transpose(%x) {perm = [1, 2, 0]} : f32[n,7,3]\n}\n"},
    {"rows of a product",
     "(%x: f32[n,19], %w: f32[19,23]) -> (%y: f32[n,23]) {\n"
     "  %a = matmul(%x, %w) : f32[n,23]\n  %y = tanh(%a) : f32[n,23]\n}\n"},
    {"columns of a product",
     "(%x: f32[9,19], %w: f32[19,n]) -> (%y: f32[9,n]) {\n"
     "  %y = matmul(%x, %w) : f32[9,n]\n}\n"},
    {"steps of a product",
     "(%x: f32[9,n], %w: f32[n,11]) -> (%y: f32[9,11]) {\n"
     "  %y = matmul(%x, %w) : f32[9,11]\n}\n"},
    {"products of a batch",
     "(%x: f32[n,9,4], %w: f32[n,4,11]) -> (%y: f32[n,9,11]) {\n"
     "  %y = matmul(%x, %w) : f32[n,9,11]\n}\n"},
    {"vector by matrix",
     "(%x: f32[1,n], %w: f32[n,40]) -> (%y: f32[1,40]) {\n"
     "  %y = matmul(%x, %w) : f32[1,40]\n}\n"},
    {"sums of rows",
     "(%x: f32[3,n]) -> (%y: f32[3]) {\n"
     "  %y = reduce(%x) {axes = [1], keepdims = false, kind = \"sum\"} : f32[3]\n}\n"},
    {"sums of columns",
     "(%x: f32[8,n,40]) -> (%y: f32[40]) {\n"
     "  %y = reduce(%x) {axes = [0, 1], keepdims = false, kind = \"max\"} : f32[40]\n}\n"},
    {"all of it",
     "(%x: f32[n,40]) -> (%y: f32[]) {\n"
     "  %y = reduce(%x) {axes = [0, 1], keepdims = false, kind = \"sum\"} : f32[]\n}\n"},
    {"softmax of fixed rows",
     "(%x: f32[n,2,33]) -> (%y: f32[n,2,33]) {\n"
     "  %m = reduce(%x) {axes = [2], keepdims = true, kind = \"max\"} : f32[n,2,1]\n  %d = sub(%x, %m) : f32[n,2,33]\n"
     "  %e = exp(%d) : f32[n,2,33]\n  %s = reduce(%e) {axes = [2], keepdims = true, kind = \"sum\"} : f32[n,2,1]\n"
     "  %y = div(%e, %s) : f32[n,2,33]\n}\n"},
    {"attention",
     "(%q: f32[2,n,7], %k: f32[2,n,7], %v: f32[2,n,9], %mask: f32[n,n]) -> (%y: f32[2,n,9]) {\n"
     "  %p = matmul(%q, %k) {transpose_b = true} : f32[2,n,n]\n  %x = add(%p, %mask) : f32[2,n,n]\n"
     "  %m = reduce(%x) {axes = [2], keepdims = true, kind = \"max\"} : f32[2,n,1]\n  %d = sub(%x, %m) : f32[2,n,n]\n"
     "  %e = exp(%d) : f32[2,n,n]\n  %s = reduce(%e) {axes = [2], keepdims = true, kind = \"sum\"} : f32[2,n,1]\n"
     "  %w = div(%e, %s) : f32[2,n,n]\n  %y = matmul(%w, %v) : f32[2,n,9]\n}\n"},
    {"attention of bf16",
     "(%a: f32[n,16], %b: f32[n,16], %c: f32[n,32]) -> (%y: f32[n,32]) {\n"
     "  %f = cast(%a) {to = bf16} : bf16[n,16]\n  %g = cast(%b) {to = bf16} : bf16[n,16]\n"
     "  %h = cast(%c) {to = bf16} : bf16[n,32]\n  %q = cast(%f) {to = f32} : f32[n,16]\n"
     "  %k = cast(%g) {to = f32} : f32[n,16]\n  %v = cast(%h) {to = f32} : f32[n,32]\n"
     "  %x = matmul(%q, %k) {transpose_b = true} : f32[n,n]\n"
     "  %m = reduce(%x) {axes = [1], keepdims = true, kind = \"max\"} : f32[n,1]\n  %d = sub(%x, %m) : f32[n,n]\n"
     "  %e = exp(%d) : f32[n,n]\n  %s = reduce(%e) {axes = [1], keepdims = true, kind = \"sum\"} : f32[n,1]\n"
     "  %w = div(%e, %s) : f32[n,n]\n  %y = matmul(%w, %v) : f32[n,32]\n}\n"},
};

// A joined kernel at a size.
JoinedProgram joined_at(JoinedProgram joined, const std::vector<SymbolRange>& symbols, int64_t n) {
  for (TensorParam& value : joined.values) {
    Shape shape;
    for (const Expr& extent : value.buffer->shape)
      shape.push_back(substitute(extent, {{symbols[0].var.get(), Expr(n)}}));
    value.buffer = make_buffer(value.buffer->name, value.buffer->dtype, shape);
  }
  for (JoinedMember& member : joined.members) member.program = kernel_at(member.program, symbols, {n});
  return joined;
}

class GpuOpenSizes : public testing::Test {
 protected:
  // A program of one open size against loops for each size.
  void check(LoopProgram program, const Var& symbol, const std::function<LoopProgram(int64_t)>& naive_at,
             const std::vector<int64_t>& sizes = {1, 2, 31, 32, 33, 40}, double tolerance = 1e-5) {
    program.symbols = {symbol};
    ASSERT_EQ(no_gpu_code(program), "");
    for (const int64_t n : sizes) {
      SCOPED_TRACE(fmt::format("n = {}", n));
      LoopProgram fixed = with_values(program, {{symbol.get(), Expr(n)}});
      fixed.symbols.clear();
      const LoopProgram want = naive_at(n);
      const std::vector<Tensor> given = random_params(want, random_);
      expect_threads_agree(fixed, given, by_loops(want, given), counts_, false, tolerance);
      if (HasFatalFailure()) return;
    }
  }

  std::mt19937 random_{20261127};
  Counts counts_;
};

TEST_F(GpuOpenSizes, OneProgramForAllSizes) {
  GraphInterpreter interpreter;
  const Target target;
  const PassContext ctx{standard_ops(), interpreter, target, 3};
  int joined = 0;
  for (const auto& [name, text] : kGraphs) {
    SCOPED_TRACE(name);
    const Graph graph = parse_graph("graph @g[n in 1..40]" + text, standard_ops());
    const KnownSymbols known(graph.symbols);
    Program program = lower_graph(fuse_groups(graph, ctx));
    GpuLimits limits;
    limits.threads = 64;
    const bool is_narrow = name == std::string("attention of bf16");
    if (is_narrow) limits.warp_products = true, limits.staged_bytes = 99 << 10;
    const auto limits_of = [&](const Kernel&) { return &limits; };
    const std::vector<SymbolRange> symbols = program.symbols;
    ASSERT_EQ(symbols.size(), 1U);
    for (const Kernel& kernel : program.kernels) {
      if (!kernel.definition) continue;
      int taken = 0;
      for (const GpuRule& rule : gpu_rules()) {
        GpuRuleResult answer = rule.apply(*kernel.definition, limits);
        auto* loops = std::get_if<LoopProgram>(&answer);
        if (!loops) continue;
        SCOPED_TRACE(rule.name);
        ++taken;
        ++counts_.taken[std::string(rule.name)];
        check(std::move(*loops), symbols[0].var,
              [&](int64_t n) { return naive_loops(kernel_at(*kernel.definition, symbols, {n})); });
        if (HasFatalFailure()) return;
      }
      EXPECT_GT(taken, 0);
    }
    join_attention_on_gpus(program, limits_of);
    join_rows_on_gpus(program, limits_of);
    for (const Kernel& kernel : program.kernels) {
      if (!kernel.joined) continue;
      ++joined;
      ++counts_.taken[kernel.rule];
      check(
          kernel.program, symbols[0].var, [&](int64_t n) { return naive_loops(joined_at(*kernel.joined, symbols, n)); },
          is_narrow ? std::vector<int64_t>{1, 40} : std::vector<int64_t>{1, 2, 31, 32, 33, 40},
          is_narrow ? 8e-3 : 1e-5);
      if (HasFatalFailure()) return;
    }
  }
  for (const char* rule : {"gpu_tile", "gpu_columns", "gpu_reduce", "gpu_map", "gpu_rows", "gpu_attention"})
    EXPECT_GT(counts_.taken[rule], 0) << rule;
  EXPECT_EQ(joined, 3);
  EXPECT_GT(counts_.waits, 0);  // of the narrow one
  EXPECT_GT(counts_.barriers, 50);
}

}  // namespace
}  // namespace tessera
