// Each primitive on a small program: what it gives, and what its refusals say. That schedules keep results is the
// business of random_schedule_test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <fstream>
#include <set>
#include <sstream>

#include "loop/parser.h"
#include "loop/printer.h"
#include "loop/verify.h"
#include "schedule/primitives/trace.h"
#include "support/error.h"

namespace tessera {
namespace {

using testing::HasSubstr;

constexpr char kMatmul[] = R"(kernel @m(A: f32[8,12], B: f32[12,16]) -> (C: f32[8,16]) {
  for i in 0..8 {
    for j in 0..16 {
      C[i, j] = 0:f32
      for k in 0..12 { C[i, j] = (C[i, j] + (A[i, k] * B[k, j])) }
    }
  }
}
)";

constexpr char kStages[] = R"(kernel @s(x: f32[10]) -> (y: f32[8]) {
  alloc t: f32[10] local
  for a in 0..10 { t[a] = (x[a] * 2:f32) }
  for b in 0..8 { y[b] = ((t[b] + t[(b + 1)]) + t[(b + 2)]) }
}
)";

std::string scheduled(const std::string& program, const std::string& trace) {
  const auto result = apply_trace(parse_loop_program(program), trace);
  if (const auto* error = std::get_if<Diagnostic>(&result)) return error->to_string();
  const std::string text = print(std::get<LoopProgram>(result));
  EXPECT_EQ(print(parse_loop_program(text)), text);
  return text;
}

TEST(Primitives, SplitGuardsWhatDoesNotDivide) {
  EXPECT_EQ(scheduled("kernel @k(x: f32[10]) -> (y: f32[10]) { for i in 0..10 { y[i] = x[i] } }", "split(i, [_, 4])"),
            R"(kernel @k(x: f32[10]) -> (y: f32[10]) {
  for i_0 in 0..3 {
    for i_1 in 0..4 {
      if (((i_0 * 4) + i_1) < 10) {
        y[((i_0 * 4) + i_1)] = x[((i_0 * 4) + i_1)]
      }
    }
  }
}
)");
}

TEST(Primitives, FuseUndoesSplit) {
  const std::string copy = "kernel @k(x: f32[12]) -> (y: f32[12]) { for i in 0..12 { y[i] = x[i] } }";
  EXPECT_EQ(scheduled(copy, "a, b = split(i, [3, 4])\nf = fuse([a, b])\n"), R"(kernel @k(x: f32[12]) -> (y: f32[12]) {
  for f in 0..12 { y[f] = x[f] }
}
)");
}

TEST(Primitives, DecomposeThenReorder) {
  EXPECT_EQ(scheduled(kMatmul, "decompose_reduction(C, i)\nreorder([k, j])\nvectorize(j)\n"),
            R"(kernel @m(A: f32[8,12], B: f32[12,16]) -> (C: f32[8,16]) {
  for i_init in 0..8 { for j_init in 0..16 { C[i_init, j_init] = 0:f32 } }
  for i in 0..8 { for k in 0..12 { vectorized for j in 0..16 { C[i, j] = (C[i, j] + (A[i, k] * B[k, j])) } } }
}
)");
}

TEST(Primitives, ComputeAtKeepsTheWindow) {
  EXPECT_EQ(scheduled(kStages, "compute_at(t, b)"), R"(kernel @s(x: f32[10]) -> (y: f32[8]) {
  for b in 0..8 {
    alloc t: f32[3] local
    for a in 0..3 { t[a] = (x[(b + a)] * 2:f32) }
    y[b] = ((t[0] + t[1]) + t[2])
  }
}
)");
}

TEST(Primitives, ComputeInline) {
  EXPECT_EQ(scheduled(kStages, "compute_inline(t)"), R"(kernel @s(x: f32[10]) -> (y: f32[8]) {
  for b in 0..8 { y[b] = (((x[b] * 2:f32) + (x[(b + 1)] * 2:f32)) + (x[(b + 2)] * 2:f32)) }
}
)");
}

TEST(Primitives, CacheWriteAndReverseComputeAt) {
  EXPECT_EQ(scheduled(kMatmul, "acc = cache_write(C, local)\nreverse_compute_at(C, i)\n"),
            R"(kernel @m(A: f32[8,12], B: f32[12,16]) -> (C: f32[8,16]) {
  for i in 0..8 {
    alloc acc: f32[1,16] local
    for j in 0..16 {
      acc[0, j] = 0:f32
      for k in 0..12 { acc[0, j] = (acc[0, j] + (A[i, k] * B[k, j])) }
    }
    for C_0 in 0..1 { for C_1 in 0..16 { C[i, C_1] = acc[0, C_1] } }
  }
}
)");
}

TEST(Primitives, CacheReadAndTransformLayout) {
  EXPECT_THAT(
      scheduled(kMatmul,
                "Bp = cache_read(B, local)\ntransform_layout(Bp, (k, j) -> [floordiv(j, 4), k, floormod(j, 4)])\n"),
      HasSubstr("alloc Bp: f32[4,12,4] local\n  for Bp_0 in 0..12 { for Bp_1 in 0..16 { Bp[floordiv(Bp_1, 4), Bp_0, "
                "floormod(Bp_1, 4)] = B[Bp_0, Bp_1] } }\n"));
}

TEST(Primitives, Rfactor) {
  EXPECT_EQ(scheduled("kernel @r(x: f32[12]) -> (y: f32[1]) { y[0] = 0:f32 for k in 0..12 { y[0] = (y[0] + x[k]) } }",
                      "k0, k1 = split(k, [3, 4])\np = rfactor(y.update, k1)\n"),
            R"(kernel @r(x: f32[12]) -> (y: f32[1]) {
  y[0] = 0:f32
  alloc p: f32[4] local
  for k1_init in 0..4 { p[k1_init] = 0:f32 }
  for k1 in 0..4 { for k0 in 0..3 { p[k1] = (p[k1] + x[((k0 * 4) + k1)]) } }
  for k1_final in 0..4 { y[0] = (y[0] + p[k1_final]) }
}
)");
}

TEST(Primitives, RfactorOfSumsThatAreThere) {
  // Sums beyond the ones there are have no partial results.
  EXPECT_EQ(scheduled("kernel @r(x: f32[3,4]) -> (y: f32[3]) { for i in 0..3 { y[i] = 0:f32 } for i in 0..8 { for k in "
                      "0..4 { if (i < 3) { y[i] = (y[i] + x[i, k]) } } } }",
                      "p = rfactor(y.update, k)\n"),
            R"(kernel @r(x: f32[3,4]) -> (y: f32[3]) {
  for i in 0..3 { y[i] = 0:f32 }
  alloc p: f32[4,3] local
  for k_init in 0..4 {
    for i_1_init in 0..8 {
      if (i_1_init < 3) {
        p[k_init, i_1_init] = 0:f32
      }
    }
  }
  for k in 0..4 {
    for i_1 in 0..8 {
      if (i_1 < 3) {
        p[k, i_1] = (p[k, i_1] + x[i_1, k])
      }
    }
  }
  for i_1_final in 0..8 {
    for k_final in 0..4 {
      if (i_1_final < 3) {
        y[i_1_final] = (y[i_1_final] + p[k_final, i_1_final])
      }
    }
  }
}
)");
  // Two iterations of `i_k_fused`, or of x and r together, would fold one element's partial results in twice.
  const std::string fused = R"(kernel @f(x: f32[3,2,4]) -> (y: f32[3]) {
    for i in 0..3 { y[i] = 0:f32 }
    for i_k_fused in 0..6 { for r in 0..4 {
      y[floordiv(i_k_fused, 2)] = (y[floordiv(i_k_fused, 2)] + x[floordiv(i_k_fused, 2), floormod(i_k_fused, 2), r]) } } })";
  EXPECT_THAT(scheduled(fused, "p = rfactor(y.update, r)"),
              HasSubstr("iterations of 'serial for i_k_fused in 0..+6' may fold"));
  const std::string scattered = R"(kernel @s(x: f32[5,4], w: f32[3,4]) -> (y: f32[7]) {
    for i in 0..7 { y[i] = 0:f32 }
    for i in 0..5 { for k in 0..3 { for c in 0..4 { y[(i + k)] = (y[(i + k)] + (x[i, c] * w[k, c])) } } } })";
  EXPECT_THAT(scheduled(scattered, "p = rfactor(y.update, c)"),
              HasSubstr("iterations of 'serial for i_1 in 0..+5' may fold"));
}

TEST(Primitives, ARunningSumIsNotComputedInParts) {
  const std::string scan = R"(kernel @c(x: f32[9]) -> (y: f32[9]) {
    alloc s: f32[9] local
    { alloc total: f32[1] local
      total[0] = 0:f32
      for i in 0..9 { total[0] = (total[0] + x[i]) s[i] = total[0] } }
    for o in 0..9 { y[o] = s[o] } })";
  EXPECT_THAT(scheduled(scan, "compute_at(s, o)"), HasSubstr("a part of s needs more than its part of"));
}

TEST(Primitives, FuseCountsIterations) {
  EXPECT_THAT(scheduled(kMatmul, "pad(i, 1099511627776)\npad(j, 1099511627776)\nfuse([i, j])\n"),
              HasSubstr("more than 64 bits can count"));
}

TEST(Primitives, StoreAtAndFission) {
  const std::string lowered = R"(kernel @l(x: f32[4,6]) -> (y: f32[4]) {
    for i in 0..4 {
      alloc acc: f32[1] register
      acc[0] = 0:f32
      for k in 0..6 { acc[0] = (acc[0] + x[i, k]) }
      y[i] = acc[0]
    } })";
  EXPECT_EQ(scheduled(lowered,
                      "store_at(acc, i)\nset_scope(acc, local)\nfission(i, y)\ndecompose_reduction(acc, "
                      "i_before)\nreorder([k, i_before])\n"),
            R"(kernel @l(x: f32[4,6]) -> (y: f32[4]) {
  alloc acc: f32[4] local
  for i_before_init in 0..4 { acc[i_before_init] = 0:f32 }
  for k in 0..6 { for i_before in 0..4 { acc[i_before] = (acc[i_before] + x[i_before, k]) } }
  for i in 0..4 { y[i] = acc[i] }
}
)");
}

TEST(Primitives, VirtualThreadInterleaves) {
  EXPECT_EQ(scheduled("kernel @v(x: f32[2,3]) -> (y: f32[2]) { for i in 0..2 { y[i] = 0:f32 for k in 0..3 { y[i] = "
                      "(y[i] + x[i, k]) } } }",
                      "virtual_thread(i)"),
            R"(kernel @v(x: f32[2,3]) -> (y: f32[2]) {
  unrolled for i in 0..2 { y[i] = 0:f32 }
  for k in 0..3 { unrolled for i_1 in 0..2 { y[i_1] = (y[i_1] + x[i_1, k]) } }
}
)");
}

TEST(Primitives, SoftwarePipelineRunsOneIterationAhead) {
  EXPECT_EQ(scheduled(R"(kernel @p(x: f32[8]) -> (y: f32[8]) {
    for i in 0..8 { alloc t: f32[1] local t[0] = (x[i] * 2:f32) y[i] = t[0] } })",
                      "software_pipeline(i, 1)"),
            R"(kernel @p(x: f32[8]) -> (y: f32[8]) {
  alloc t: f32[2,1] local
  t[0, 0] = (x[0] * 2:f32)
  for i in 0..7 {
    t[floormod((i + 1), 2), 0] = (x[(i + 1)] * 2:f32)
    y[i] = t[floormod(i, 2), 0]
  }
  y[7] = t[1, 0]
}
)");
}

TEST(Primitives, TensorizeMatchesThePattern) {
  const std::string tile = R"(kernel @t(a: f32[9,6], b: f32[9,2,8]) -> (y: f32[2,6,8]) {
    alloc acc: f32[2,6,8] register
    unrolled for v0 in 0..2 { unrolled for p0 in 0..6 { vectorized for l0 in 0..8 { acc[v0, p0, l0] = 0:f32 } } }
    for k in 0..9 { for v in 0..2 { for p in 0..6 { for l in 0..8 {
      acc[v, p, l] = acc[v, p, l] + a[k, p] * b[k, v, l] } } } }
    unrolled for v1 in 0..2 { unrolled for p1 in 0..6 { vectorized for l1 in 0..8 { y[v1, p1, l1] = acc[v1, p1, l1] } } } })";
  EXPECT_THAT(scheduled(tile, "unroll(v)\nunroll(p)\nvectorize(l)\ntensorize(v, \"x86.fma.f32\")\n"),
              HasSubstr("tensorized \"x86.fma.f32\""));
  EXPECT_THAT(scheduled(tile, "unroll(v)\nunroll(p)\nvectorize(l)\ntensorize(v, \"x86.avx512.fma.f32\")\n"),
              HasSubstr("is 8, where the pattern has 16"));
  EXPECT_THAT(scheduled(tile, "tensorize(v, \"x86.fma.f64x\")"), HasSubstr("did you mean"));
}

TEST(Primitives, SampledNumbersStandForTheirValues) {
  EXPECT_THAT(scheduled(kMatmul, "f0, f1 = sample_perfect_tile(j, 2, 8) decided [4, 4]\nj0, j1 = split(j, [f0, f1])\n"),
              HasSubstr("for j1 in 0..4"));
  EXPECT_THAT(scheduled(kMatmul, "f0, f1 = sample_perfect_tile(j, 2, 8) decided [4, 5]\n"),
              HasSubstr("whose product is 16"));
  Schedule schedule(parse_loop_program(kMatmul));
  std::mt19937_64 random(3);
  const std::vector<int64_t> factors = schedule.sample_perfect_tile("j", 3, 4, &random);
  EXPECT_EQ(factors[0] * factors[1] * factors[2], 16);
  EXPECT_LE(factors[2], 4);
  EXPECT_EQ(print_trace(parse_trace(schedule.trace())), schedule.trace());
}

TEST(Primitives, ANumberOfSeveralIsSampled) {
  EXPECT_THAT(scheduled(kMatmul, "u = sample_categorical([2, 4]) decided [4]\nj0, j1 = split(j, [_, u])\n"),
              HasSubstr("for j1 in 0..4"));
  EXPECT_THAT(scheduled(kMatmul, "u = sample_categorical([2, 4]) decided [3]\n"), HasSubstr("is not one of 2, 4"));
  EXPECT_THAT(scheduled(kMatmul, "u = sample_categorical([2, 4])\n"), HasSubstr("nothing was decided"));
  Schedule schedule(parse_loop_program(kMatmul));
  std::mt19937_64 random(3);
  const int64_t chosen = schedule.sample_categorical({2, 4}, &random);
  EXPECT_TRUE(chosen == 2 || chosen == 4);
  EXPECT_EQ(print_trace(parse_trace(schedule.trace())), schedule.trace());
}

constexpr const char* kTwoStages = R"(kernel @two(x: f32[8,20]) -> (y: f32[8,20]) {
  alloc t: f32[8,20] local
  for a in 0..8 { for b in 0..20 { t[a, b] = x[a, b] * 2:f32 } }
  for i in 0..8 { for j in 0..20 { y[i, j] = t[i, j] + 1:f32 } } })";

TEST(Primitives, APlaceForAStageIsSampled) {
  const std::string inside = scheduled(kTwoStages, "at = sample_compute_location(t) decided [0]\ncompute_at(t, at)\n");
  EXPECT_EQ(inside, scheduled(kTwoStages, "compute_at(t, i)\n"));
  EXPECT_EQ(scheduled(kTwoStages, "at = sample_compute_location(t) decided [1]\ncompute_at(t, at)\n"),
            scheduled(kTwoStages, "compute_at(t, j)\n"));
  EXPECT_EQ(scheduled(kTwoStages, "at = sample_compute_location(t) decided [-1]\ncompute_at(t, at)\n"),
            scheduled(kTwoStages, ""));
  EXPECT_THAT(scheduled(kTwoStages, "sample_compute_location(t) decided [2]\n"), HasSubstr("a loop of i, j"));
  std::set<std::string> places;
  std::mt19937_64 random(3);
  for (int i = 0; i < 30; ++i) {
    Schedule schedule(parse_loop_program(kTwoStages));
    places.insert(schedule.sample_compute_location("t", &random));
  }
  EXPECT_EQ(places, (std::set<std::string>{"i", "j", "root"}));
}

TEST(Primitives, WhatAddsNothingIsLeftOut) {
  constexpr const char* kPadded = R"(kernel @padded(x: f32[8], w: f32[3]) -> (y: f32[8]) {
  for i in 0..8 { y[i] = 0:f32 for k in 0..3 {
    y[i] = y[i] + select((1 <= i + k) & (i + k < 9), x[i + k - 1], 0:f32) * w[k] } } })";
  const std::string text = scheduled(kPadded, "predicate(y.update)");
  EXPECT_THAT(text, HasSubstr("if"));
  EXPECT_THAT(text, testing::Not(HasSubstr("select")));
  // A condition goes out of the loops that it does not depend on.
  constexpr const char* kRows = R"(kernel @rows(x: f32[8,4], w: f32[3]) -> (y: f32[8,4]) {
  for i in 0..8 { for j in 0..4 { y[i, j] = 0:f32 } }
  for i in 0..8 { for k in 0..3 { for j in 0..4 {
    y[i, j] = y[i, j] + select(1 <= i + k, x[i + k - 1, j], 0:f32) * w[k] } } } })";
  EXPECT_THAT(scheduled(kRows, "predicate(y.update)"), testing::ContainsRegex("if [^\n]* \\{\n *for j"));
  EXPECT_THAT(scheduled(kRows, "predicate(y.init)"), HasSubstr("does not fold in a value"));
  // Of a maximum, zero is not nothing.
  constexpr const char* kMax = R"(kernel @top(x: f32[8]) -> (y: f32[1]) {
  y[0] = -inf:f32 for k in 0..9 { y[0] = max(y[0], select(1 <= k, x[k - 1], 0:f32)) } })";
  EXPECT_THAT(scheduled(kMax, "predicate(y.update)"), HasSubstr("select"));
}

TEST(Primitives, ConstantParametersAreStoredOtherwise) {
  const LoopProgram program = parse_loop_program(kMatmul);  // B has 12 x 16 elements
  const auto apply = [&](const std::string& mapping, bool constant) -> std::string {
    Schedule schedule(program);
    if (constant) schedule.set_constants({"B"});
    try {
      replay(schedule, parse_trace("transform_layout(B, " + mapping + ")"));
    } catch (const UserError& error) {
      return error.diagnostic().message;
    }
    return print(schedule.program());
  };
  EXPECT_THAT(apply("(k, j) -> [j, k]", false), HasSubstr("is a parameter of the kernel"));
  EXPECT_THAT(apply("(k, j) -> [floordiv(j, 4), k, floormod(j, 4)]", true), HasSubstr("B: f32[4,12,4]"));
  EXPECT_THAT(apply("(k, j) -> [floordiv(j, 6), k, floormod(j, 6)]", true), HasSubstr("B: f32[3,12,6]"));
  EXPECT_THAT(apply("(k, j) -> [j, k, floormod(j, 4)]", true), HasSubstr("more than once"));
  EXPECT_THAT(apply("(k, j) -> [floordiv(j, 4), k]", true), HasSubstr("would meet at one place"));
  EXPECT_THAT(apply("(k, j) -> [floordiv(j, 4000000), k, floormod(j, 4000000)]", true), HasSubstr("B: f32[1,12,16]"));
  // The elements where the new index has them, with zeros behind the end.
  Schedule schedule(program);
  schedule.set_constants({"B"});
  replay(schedule, parse_trace("transform_layout(B, (k, j) -> [floordiv(j, 6), k, floormod(j, 6)])"));
  ASSERT_EQ(schedule.packed().size(), 1u);
  Tensor b(DType::kF32, {12, 16});
  for (int64_t i = 0; i < b.num_elements(); ++i) b.set_double(i, static_cast<double>(i + 1));
  const Tensor packed = pack(b, schedule.packed()[0]);
  ASSERT_EQ(packed.num_elements(), 3 * 12 * 6);
  for (int64_t j = 0; j < 18; ++j)
    for (int64_t k = 0; k < 12; ++k)
      EXPECT_EQ(packed.get_double((j / 6 * 12 + k) * 6 + j % 6), j < 16 ? static_cast<double>(k * 16 + j + 1) : 0);
}

struct Refusal {
  const char* program;
  const char* trace;
  std::vector<std::string> says;
};

TEST(Primitives, RefusalsNameTheLoopAndTheChoices) {
  const Refusal refusals[] = {
      {kMatmul,
       "parallel(k)",
       {"TSR-3408", "'C[i, j] = ...' folds values of different iterations", "legal: parallel of i, j", "<trace>:1:1"}},
      {kMatmul,
       "// first\n\nvectorize(i)\nvectorize(j)",
       {"TSR-3407", "'serial for j in 0..+16' stands inside 'vectorized for i", "<trace>:4:1"}},
      {kMatmul, "reorder([k, j])", {"TSR-3407", "'C[i, j] = ...' stands beside 'serial for k"}},
      {kMatmul, "split(jj, [_, 4])", {"TSR-3404", "there is no loop 'jj'", "the loops are i, j, k", "did you mean j"}},
      {kMatmul,
       "split(i, [_, 4611686018427387904])",
       {"TSR-3403", "that is too large", "legal: factors whose product is at most 1099511627776"}},
      {kMatmul, "split(i, [_, 0])", {"TSR-3403", "legal: factors of 1 or more"}},
      {kMatmul, "pad(i, 9223372036854775807)", {"TSR-3403", "that is too large", "legal: 1 to 1099511627776"}},
      {kMatmul, "pad(i, 0)", {"TSR-3403", "that is too small", "legal: 1 to 1099511627776"}},
      {"kernel @k(x: f32[9]) -> (y: f32[1]) { for i in 0..9223372036854775807 { y[0] = y[0] + x[0] } }",
       "split(i, [_, 4])",
       {"TSR-3403: split", "a multiple of 4, are more than 64 bits can count", "end at 9223372036854775803"}},
      {"kernel @k(x: f32[9]) -> (y: f32[1]) { for i in 9223372036854775800..+6 { y[0] = y[0] + x[0] } }",
       "pad(i, 8)",
       {"TSR-3403: pad", "a multiple of 8, are more than 64 bits can count"}},
      {"kernel @k(x: f32[9]) -> (y: f32[9]) { for i in 0..9 { y[i] = 0:f32 } for i in 0..9 { y[i] = y[i] + x[i] } }",
       "pad(i, 2147483648)\ncache_write(y, local)\nstore_at(y_local, i)",
       {"TSR-"}},
      {"kernel @k(q: i64[1]) -> (y: f32[9], p: i64[1]) { p[0] = 2 for j in 0..p[0] { p[0] = 5 y[j] = 1:f32 } }",
       "split(j, [_, 4])",
       {"TSR-3407: split: the range of 'serial for j in 0..+p[0]' is loaded from what the loop stores to"}},
      {"kernel @k(q: i64[1]) -> (y: f32[9], p: i64[1]) { p[0] = 2 for j in 0..p[0] { p[0] = 5 y[j] = 1:f32 } }",
       "pad(j, 4)",
       {"TSR-3407: pad: the range of"}},
      {"kernel @k(x: f32[9]) -> (y: f32[9]) { for i in 0..9 { y[i] = x[i] } for k in 0..12 { } }",
       "tensorize(k, \"x86.amx.dot.u8u8\")",
       {"TSR-3410: tensorize: the nest at 'serial for k in 0..+12' is not x86.amx.dot.u8u8: a step has no products"}},
      {"kernel @k(x: f32[9,9,9]) -> (y: f32[9,9,9]) { for i in 1..9 { for j in 0..8 { for k in 0..9 { y[i, j, k] = "
       "y[(i - 1), (j + 1), k] + x[i, j, k] } } } }",
       "reorder([j, k, i])",
       {"TSR-3408: reorder: the order j, k, i changes", "legal: reorder of [i, k, j], [k, i, j]"}},
      {"kernel @k(x: f32[9]) -> (y: f32[9]) { for i in 0..9 { for j in 0..i { for k in 0..2 { y[j] = x[k] } } } }",
       "fuse([i, j])",
       {"TSR-3407: fuse: the range of 'serial for j in 0..+i' depends on i", "legal: fuse of [j, k]"}},
      {"kernel @k(x: f32[9,4]) -> (y: f32[9,4]) { for i in 1..9 { for j in 0..4 { y[i, j] = y[(i - 1), j] + x[i, j] } "
       "} "
       "}",
       "virtual_thread(i)",
       {"TSR-3408: virtual_thread: iterations of 'serial for i in 1..+8' are not", "legal: virtual_thread of j"}},
      {"kernel @k(x: i64[40]) -> (y: i64[4]) { for i in 0..4 { for k in y[1]..+3 { y[i] = y[i] + x[k] } } }",
       "rfactor(y.update, k)",
       {"TSR-3407: rfactor: the range of 'serial for k in y[1]..+3' is loaded from what loop i stores to"}},
      {"kernel @k(x: f32[40]) -> (y: f32[40], p: i64[1]) { for i in p[0]..+4 { alloc t: f32[1] local t[0] = x[i] p[0] "
       "= "
       "30 y[i] = t[0] } }",
       "store_at(t, i)",
       {"TSR-3407: store_at: the range of 'serial for i in p[0]..+4' is loaded from what the loop stores to"}},
      {"kernel @k(x: f32[40]) -> (y: f32[40], p: i64[1]) { for i in p[0]..+4 { y[i] = x[i] p[0] = 30 } }",
       "fission(i, p)",
       {"TSR-3407: fission: the range of 'serial for i in p[0]..+4' is loaded from what the loop stores to"}},
      {kMatmul,
       "a, b, c = split(i, [_, 4])",
       {"TSR-3403", "3 names are given for 2 results", "legal: 2 names, or none"}},
      {kMatmul,
       "tile(i, k, 8, 8)",
       {"TSR-3407: tile: loops j and k are not directly in each other: 'C[i, j] = ...' stands beside 'serial for k"}},
      {kMatmul, "tile(i, j, 8, 0)", {"TSR-3403: tile of j by 0"}},
      {kMatmul, "vectorize(j)\ntile(i, j, 4, 4)", {"TSR-3407: tile:", "put 'tile' before the line"}},
      {kMatmul,
       "software_pipeline(k, 1)",
       {"TSR-3407", "the body of loop k has one statement only, 'C[i, j] = ...'",
        "legal: a loop whose body has two statements or more"}},
      {kMatmul, "software_pipeline(j, 2)", {"TSR-3407", "2 of them are to run ahead", "legal: 1"}},
      {kMatmul,
       "Ap = cache_read(A, local)\ntransform_layout(Ap, (i) -> [i])",
       {"TSR-3403", "Ap has 2 dimensions, 1 are named", "legal: (..) -> [..] with 2 names before the arrow"}},
      {"kernel @k(x: f32[8,8]) -> (y: f32[8,8]) { for i in 0..8 { for j in 0..8 { y[i, j] = 0:f32 } for k in 0..8 { "
       "for "
       "l in 0..8 { y[i, k] = (y[i, k] + x[k, l]) } } } }",
       "decompose_reduction(y, k)",
       {"TSR-3407: decompose_reduction: loop k is not around 'y[i, j] = ...'", "legal: loop i"}},
      {"kernel @k(x: f32[8]) -> (y: f32[8]) { alloc s: f32[8] local alloc t: f32[8] local for a in 0..8 { t[a] = x[a] "
       "} "
       "for b in 0..8 { s[b] = x[b] } for c in 0..8 { y[c] = (t[c] + s[c]) } }",
       "reverse_compute_at(y, a)",
       {"TSR-3408: reverse_compute_at: s, which y reads, is stored to in between",
        "legal: a stage whose operands do not change on the way"}},
      {kMatmul, "split(j, [3, 5])", {"TSR-3403", "15 iterations do not cover the 16"}},
      {kMatmul, "split(j, [_, _])", {"TSR-3403", "at most one '_'"}},
      {kMatmul, "split(j)", {"TSR-3403", "expected a list of factors", "i0, i1 = split(i, [_, 32])"}},
      {kMatmul, "k, l = split(j, [4, 4])", {"TSR-3406", "the name 'k' is taken"}},
      {kMatmul, "split(j, [4, 4]) unroll(k)", {"TSR-3401", "one primitive a line"}},
      {kMatmul, "vectorise(j)", {"TSR-3402", "there is no primitive 'vectorise'", "vectorize or "}},
      {kMatmul, "fission(i, C)", {"TSR-3405", "'C' may be 2 statements", "C#0: C[i, j] = ..."}},
      {kMatmul, "compute_at(C, k)", {"TSR-3407", "C is a parameter of the kernel", "cache_write"}},
      {kMatmul, "bind(i, thread.x)", {"TSR-3411", "thread.x is no axis of threads", "blockIdx.x, ", "threadIdx.z"}},
      {kMatmul,
       "bind(k, threadIdx.x)",
       {"TSR-3408", "iterations of 'serial for k in 0..+12' are not independent", "bind of i, j"}},
      {kMatmul,
       "bind(i, blockIdx.x)\nbind(j, blockIdx.x)",
       {"TSR-3407", "'blockIdx.x for j in 0..+16' stands inside 'blockIdx.x for i",
        "legal: bind of j to blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z"}},
      {kMatmul,
       "bind(i, threadIdx.x)\nbind(j, blockIdx.x)",
       {"TSR-3407", "for j in 0..+16' stands inside 'threadIdx.x for i",
        "legal: bind of j to threadIdx.y, threadIdx.z"}},
      {kMatmul,
       "bind(j, blockIdx.x)\nbind(i, threadIdx.x)",
       {"TSR-3407", "'blockIdx.x for j in 0..+16' stands inside 'threadIdx.x for i",
        "legal: bind of i to blockIdx.y, blockIdx.z"}},
      {kMatmul,
       "bind(i, blockIdx.x)\nbind(j, threadIdx.x)\nreorder([j, i])",
       {"TSR-3407", "'blockIdx.x for i in 0..+8' stands inside 'threadIdx.x for j"}},
      {kMatmul, "bind(i, blockIdx.x)\nparallel(j)", {"TSR-3407", "for j in 0..+16' stands inside 'blockIdx.x for i"}},
      {kMatmul, "bind(i, blockIdx.x)\nvectorize(i)", {"TSR-3407", "is blockIdx.x already"}},
      {kMatmul, "transform_layout(A, (i, k) -> [k, i])", {"TSR-3407", "A is a parameter"}},
      {kMatmul,
       "Ap = cache_read(A, local)\ntransform_layout(Ap, (i, k) -> [k, floormod(i, 4)])",
       {"TSR-3409", "would meet at one place"}},
      {kMatmul,
       "a = cache_write(C, register)",
       {"TSR-3412", "in registers, at a place that 'serial for i in 0..+8' chooses", "unroll(i)"}},
      {kMatmul, "a = cache_write(C, shared)", {"TSR-3403", "no memory scope 'shared'"}},
      {kMatmul, "a = cache_write(C, local)\nreverse_compute_at(C, k)", {"TSR-3407"}},
      {kMatmul,
       "a = cache_write(C, local)\ndecompose_reduction(a, i)\nreorder([k, j])\nreorder([k, i])\nreverse_compute_at(C, "
       "k)",
       {"TSR-3407", "uses a outside of loop k"}},
      {kStages, "compute_at(t, a)", {"TSR-3407", "loop a computes t itself"}},
      {kStages,
       "a0, a1 = split(a, [2, 5])\ncompute_at(t, b)",
       {"TSR-3409", "is not one loop's variable", "split and fuse its loops after this line"}},
      {"kernel @k(x: f32[4]) -> (y: f32[9]) { for i in 0..9 { y[i] = select(i < 4, x[i], 0:f32) } }",
       "t = cache_read(x, local)\nreverse_compute_at(y, t_0)",
       {"TSR-3409", "y reads t only where a condition holds"}},
      {"kernel @k(x: f32[9]) -> (y: f32[9]) { y[0] = x[0] for i in 1..9 { y[i] = y[(i - 1)] + x[i] } }",
       "vectorize(i)",
       {"TSR-3408", "iterations of 'serial for i in 1..+8' are not independent", "no loop of this program"}},
      {"kernel @k(x: f32[9,9]) -> (y: f32[9,9]) { for i in 1..9 { for j in 0..8 { y[i, j] = y[(i - 1), (j + 1)] + x[i, "
       "j] } } }",
       "reorder([j, i])",
       {"TSR-3408", "the order j, i changes the result"}},
  };
  for (const Refusal& refusal : refusals) {
    const std::string said = scheduled(refusal.program, refusal.trace);
    for (const std::string& part : refusal.says) EXPECT_THAT(said, HasSubstr(part)) << refusal.trace;
  }
}

// Copies of an unrolled loop count from its begin.
TEST(Primitives, RegistersThroughTheBeginsOfCopies) {
  const std::string program =
      "kernel @k(x: f32[16]) -> (y: f32[8]) { alloc r: f32[16] register unrolled for a in 0..16 { r[a] = x[a] } "
      "KIND for s in 0..8 { y[s] = 0:f32 unrolled for u in s..+4 { y[s] = y[s] + r[u] } } }";
  const auto finished = [&](const std::string& kind) -> std::string {
    std::string text = program;
    text.replace(text.find("KIND"), 4, kind);
    try {
      Schedule(parse_loop_program(text)).check_finished();
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(finished(""), HasSubstr("TSR-3412: 'y[s] = ...' uses r, which is in registers, at a place that "
                                      "'serial for s in 0..+8' chooses"));
  EXPECT_EQ(finished("unrolled"), "");
}

TEST(Primitives, ProgramsDoNotGrowWithoutBound) {
  std::string trace;
  for (int i = 0; i < 200; ++i)
    trace += "a" + std::to_string(i + 1) + ", b" + std::to_string(i) + " = split(" +
             (i == 0 ? "i" : "a" + std::to_string(i)) + ", [_, 1])\n";
  EXPECT_THAT(scheduled(kMatmul, trace),
              testing::AllOf(HasSubstr("TSR-3413"), HasSubstr("up to 2000 statements, 100 in each other")));
}

TEST(Primitives, OnlyNearNamesAreSuggested) {
  EXPECT_THAT(scheduled(kMatmul, "unroll(x)"), testing::Not(HasSubstr("did you mean")));
  EXPECT_THAT(scheduled(kMatmul, "unroll(k1)"), HasSubstr("did you mean k?"));
}

TEST(Primitives, CopiesAreLimited) {
  const std::string large = R"(kernel @m(A: f32[100,60], B: f32[60,72]) -> (C: f32[100,72]) {
  for i in 0..100 {
    for j in 0..72 {
      C[i, j] = 0:f32
      for k in 0..60 { C[i, j] = (C[i, j] + (A[i, k] * B[k, j])) }
    }
  }
})";
  EXPECT_THAT(scheduled(large, "unroll(i)\nunroll(j)"),
              testing::AllOf(HasSubstr("TSR-3413: unroll: there would be 14400 copies of 2 statements, 7200 of them of "
                                       "'C[i, j] = ...' in unrolled loops i, j"),
                             HasSubstr("<trace>:2:1"), HasSubstr("legal: up to 4096 copies of statements"),
                             HasSubstr("split loop j, and unroll the inner part")));
  // A choice that fits is offered; the bound itself is legal.
  EXPECT_THAT(scheduled(large, "a, b = split(j, [_, 30])\nunroll(i)\nunroll(b)"),
              HasSubstr("in a program: unroll of a\n"));
  const std::string copy =
      "kernel @k(x: f32[64,64]) -> (y: f32[64,64]) { for i in 0..64 { for j in 0..64 { y[i, j] = "
      "x[i, j] } } }";
  EXPECT_THAT(scheduled(copy, "unroll(i)\nunroll(j)"), HasSubstr("unrolled for j in 0..64"));
  EXPECT_THAT(scheduled(copy, "virtual_thread(i)\nvirtual_thread(j)"), HasSubstr("unrolled for j in 0..64"));
  EXPECT_THAT(
      scheduled(large, "a, b = split(i, [_, 50])\nc, d = split(j, [_, 60])\nvirtual_thread(b)\nvirtual_thread(d)"),
      testing::AllOf(HasSubstr("TSR-3413: virtual_thread: there would be 6000 copies of 2 statements"),
                     HasSubstr("<trace>:4:1")));
  EXPECT_THAT(scheduled("kernel @k(x: f32[5000]) -> (y: f32[5000]) { for i in 0..5000 { y[i] = x[i] } }", "unroll(i)"),
              HasSubstr("TSR-3413"));
}

TEST(Primitives, BindPutsLoopsOnAxesOfThreads) {
  EXPECT_EQ(
      scheduled("kernel @k(x: f32[8,60]) -> (y: f32[8,60]) { for i in 0..8 { for j in 0..60 { y[i, j] = x[i, j] } } }",
                "a, b = split(j, [_, 16])\nbind(i, blockIdx.y)\nbind(a, blockIdx.x)\nbind(b, threadIdx.x)"),
      R"(kernel @k(x: f32[8,60]) -> (y: f32[8,60]) {
  blockIdx.y for i in 0..8 {
    blockIdx.x for a in 0..4 {
      threadIdx.x for b in 0..16 {
        if (((a * 16) + b) < 60) {
          y[i, ((a * 16) + b)] = x[i, ((a * 16) + b)]
        }
      }
    }
  }
}
)");
  const std::string large =
      "kernel @k(x: f32[64,64]) -> (y: f32[64,64]) { for i in 0..64 { for j in 0..64 { y[i, j] = x[i, j] } } }";
  EXPECT_THAT(scheduled(large, "bind(i, threadIdx.y)\nbind(j, threadIdx.x)"),
              testing::AllOf(
                  HasSubstr("TSR-3413: bind: blocks of 'threadIdx.y for i in 0..+64' have 4096 threads, 64 x 64 x 1"),
                  HasSubstr("legal: up to 1024 threads of a block: no loop"),
                  HasSubstr("split loop j, and bind the inner part")));
  EXPECT_THAT(scheduled(large, "a, b = split(j, [_, 16])\nbind(i, threadIdx.y)\nbind(b, threadIdx.x)"),
              HasSubstr("threadIdx.x for b in 0..16"));
  // What other threads compute is not in this one's registers, nor fused into its loop.
  EXPECT_THAT(scheduled(kStages, "bind(b, threadIdx.x)\ncompute_at(t, b)\nset_scope(t, register)\nunroll(a)"),
              HasSubstr("alloc t: f32[3] register"));
  EXPECT_THAT(scheduled(kStages, "set_scope(t, register)\nbind(b, threadIdx.x)"),
              HasSubstr("uses t, which is in registers of the thread outside of it"));
  EXPECT_THAT(scheduled(kStages, "bind(b, threadIdx.x)\nset_scope(t, register)"), HasSubstr("uses t on other threads"));
  EXPECT_THAT(scheduled(kStages, "bind(b, threadIdx.x)\nsplit(b, [_, 2])"), HasSubstr("is threadIdx.x already"));
}

TEST(Primitives, ConcurrentLoopsStayIndependentAndKeepTheirRegisters) {
  // With equal k, iterations of i are independent: only while k is outside.
  const std::string diagonal =
      "kernel @k(x: f32[9]) -> (A: f32[9,101]) { for a in 0..9 { for b in 0..101 { A[a, b] = x[a] } } "
      "for k in 0..8 { for i in 0..96 { A[(k + 1), (i + 1)] = (A[k, i] + 1:f32) } } }";
  for (const char* first : {"parallel(i)", "bind(i, blockIdx.x)", "vectorize(i)"}) {
    EXPECT_THAT(scheduled(diagonal, fmt::format("{}\nreorder([i, k])", first)),
                testing::AllOf(HasSubstr("TSR-3408: reorder: iterations of '"), HasSubstr("would not be independent")));
  }
  const std::string planes =
      "kernel @k(x: f32[9]) -> (A: f32[9,101,8]) { for a in 0..9 { for b in 0..101 { for e in 0..8 { A[a, b, e] = x[a] "
      "} } } "
      "for k in 0..8 { for i in 0..96 { for c in 0..8 { A[(k + 1), (i + 1), c] = (A[k, i, c] + 1:f32) } } } }";
  for (const char* first : {"parallel(i)", "bind(i, blockIdx.x)"})
    EXPECT_THAT(scheduled(planes, fmt::format("{}\ntile(k, c, 4, 2)", first)),
                testing::AllOf(HasSubstr("TSR-3408: tile: iterations of '"), HasSubstr("would not be independent")));
  EXPECT_THAT(scheduled(kMatmul, "bind(i, blockIdx.x)\nvectorize(j)\nreorder([j, i])"),
              testing::AllOf(HasSubstr("TSR-3407"), HasSubstr("stands inside 'vectorized for j")));
  const std::string scalar =
      "kernel @k(x: f32[], z: f32[4]) -> (y: f32[64], w: f32[1]) { for i in 0..64 { y[i] = (x[] * z[2]) } "
      "for o in 0..1 { w[o] = x[] } }";
  for (const char* concurrent : {"parallel(i)", "bind(i, threadIdx.x)"})
    EXPECT_THAT(
        scheduled(scalar, fmt::format("{}\ncache_read(x, register)", concurrent)),
        testing::AllOf(HasSubstr("TSR-3407: cache_read"), HasSubstr("uses x_register, which is in registers of the")));
  const std::string copied =
      "kernel @k(x: f32[64]) -> (y: f32[64]) { alloc R: f32[1] register R[0] = x[0] alloc t: f32[64] local "
      "for i in 0..64 { t[i] = (R[0] * x[i]) } for j in 0..64 { y[j] = t[j] } }";
  for (const char* primitive : {"compute_at(t, j)", "compute_inline(t)"})
    EXPECT_THAT(
        scheduled(copied, fmt::format("bind(j, blockIdx.x)\n{}", primitive)),
        testing::AllOf(HasSubstr("TSR-3407"), HasSubstr("uses R, which is in registers of the thread outside")));
}

TEST(Primitives, ARefusedStepLeavesTheScheduleAsItWas) {
  Schedule schedule(parse_loop_program(kMatmul));
  schedule.split("j", {std::nullopt, 4});
  const std::string before = print(schedule.program());
  EXPECT_THROW(schedule.parallel("k"), UserError);
  EXPECT_EQ(print(schedule.program()), before);
  EXPECT_EQ(schedule.trace(), "j_0, j_1 = split(j, [_, 4])\n");
}

TEST(Primitives, TheDocumentsLoopProgramIsLegal) {
  std::ifstream file(std::string(TESSERA_SOURCE_DIR) + "/docs/schedules.md");
  std::stringstream text;
  text << file.rdbuf();
  const std::string fence = "```loop\n";
  const size_t begin = text.str().find(fence) + fence.size();
  const LoopProgram program = parse_loop_program(text.str().substr(begin, text.str().find("```", begin) - begin));
  EXPECT_EQ(program.params.size(), 4u);
  EXPECT_THAT(verify(program), testing::IsEmpty());
}

TEST(Primitives, TheDocumentHasEachOfTheTable) {
  std::ifstream file(std::string(TESSERA_SOURCE_DIR) + "/docs/schedules.md");
  std::stringstream text;
  text << file.rdbuf();
  for (const SchedulePrimitive& primitive : schedule_primitives()) {
    EXPECT_THAT(text.str(), HasSubstr("| `" + std::string(primitive.usage) + "` |"));
    // What the table shows is what the language reads.
    const std::vector<TraceStep> steps = parse_trace(primitive.usage);
    ASSERT_EQ(steps.size(), 1u);
    EXPECT_EQ(to_string(steps[0]), primitive.usage);
  }
}

}  // namespace
}  // namespace tessera
