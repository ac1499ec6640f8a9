// Loops, masks, gathers, reductions, register tiles, scratch memory and parallel loops: native code against the
// interpreter. Random inputs; sizes are odd, so that tails run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "codegen_harness.h"
#include "loop/intrinsic.h"
#include "loop/parser.h"
#include "support/error.h"

namespace tessera {
namespace {

TEST(CodegenLoops, SerialElementwise) {
  expect_agrees(R"(kernel @k(x: f32[5,7], b: f32[7]) -> (y: f32[5,7]) {
    for i in 0..5 { for j in 0..7 { y[i, j] = max((x[i, j] + b[j]), 0:f32) } } })");
}

TEST(CodegenLoops, VectorizedWithTail) {
  for (const int n : {1, 2, 3, 7, 8, 15, 16, 29, 31, 64, 67, 200}) {
    const std::string size = std::to_string(n);
    expect_agrees("kernel @k(x: f32[3," + size + "], s: f32[3]) -> (y: f32[3," + size +
                  "]) { for i in 0..3 { vectorized for j in 0.." + size +
                  " { y[i, j] = (x[i, j] * s[i] - (x[i, j] / 3:f32)) } } }");
  }
}

TEST(CodegenLoops, VectorBeginAndShape) {
  expect_agrees(R"(kernel @k(x: f32[40]) -> (y: f32[40]) {
    vectorized for j in 0..5 { y[j] = 1:f32 }
    vectorized for j in 5..35 { y[j] = (x[(j + 1)] + x[(j - 5)]) }
    vectorized for j in 35..40 { y[j] = cast:f32(j) } })");
}

TEST(CodegenLoops, StridedReversedAndNearest) {
  expect_agrees(R"(kernel @k(x: f32[100]) -> (a: f32[33], b: f32[33], c: f32[33], d: f32[33], e: f32[33]) {
    vectorized for j in 0..33 { a[j] = x[(j * 2)] }
    vectorized for j in 0..33 { b[j] = x[(j * 3 + 1)] }
    vectorized for j in 0..33 { c[j] = x[(99 - j)] }
    vectorized for j in 0..33 { d[j] = x[floordiv(j, 2)] }
    vectorized for j in 0..33 { e[j] = x[floormod((j * 7), 50)] } })");
}

TEST(CodegenLoops, ScatterStores) {
  expect_agrees(R"(kernel @k(x: f32[33]) -> (a: f32[66], b: f32[33], t: f32[3,11]) {
    for i in 0..66 { a[i] = 0:f32 }
    vectorized for j in 0..33 { a[(j * 2)] = x[j] }
    vectorized for j in 0..33 { b[(32 - j)] = x[j] }
    vectorized for j in 0..33 { t[floormod(j, 3), floordiv(j, 3)] = x[j] } })");
}

TEST(CodegenLoops, BlockedLayout) {
  // NCHW -> NCHW16c and back, the channel in vectors.
  expect_agrees(R"(kernel @k(x: f32[40,6]) -> (y: f32[3,6,16], z: f32[40,6]) {
    for p in 0..6 { vectorized for c in 0..48 {
      y[floordiv(c, 16), p, floormod(c, 16)] = select((c < 40), x[min(c, 39), p], 0:f32) } }
    for p in 0..6 { vectorized for c in 0..40 { z[c, p] = y[floordiv(c, 16), p, floormod(c, 16)] } } })");
}

// Channels in blocks of 16 that move by other numbers than whole blocks: every lane's place in its block is known while
// compiling, and which of the operands it is from.
TEST(CodegenLoops, LanesOfSeveralBlocks) {
  for (const char* dtype : {"f32", "f64", "u8", "bf16"}) {
    const std::string t(dtype);
    // A shuffle of two groups of 58 channels, of two operands; a slice from channel 58 on; a seam within a block.
    expect_agrees("kernel @k(a: " + t + "[8,5,16], b: " + t + "[4,5,16]) -> (y: " + t + "[8,5,16], s: " + t +
                  "[4,5,16], c: " + t + R"([8,5,16]) {
      for q in 0..8 { for p in 0..5 { vectorized for l in 0..16 { y[q, p, l] = a[0, 0, 0] } } }
      for q in 0..4 { for p in 0..5 { vectorized for l in 0..16 { s[q, p, l] = a[0, 0, 1] } } }
      for q in 0..8 { for p in 0..5 { vectorized for l in 0..16 { c[q, p, l] = a[0, 0, 2] } } }
      for q in 0..7 { for p in 0..5 { vectorized for l in 0..16 {
        y[q, p, l] = select((((q * 8) + floordiv(l, 2)) + (floormod(l, 2) * 58) < 58),
          a[floordiv(((q * 8) + floordiv(l, 2)), 16), p, floormod(((q * 8) + floordiv(l, 2)), 16)],
          b[floordiv(((q * 8) + floordiv(l, 2) + (floormod(l, 2) * 58) - 58), 16), p,
            floormod(((q * 8) + floordiv(l, 2) + (floormod(l, 2) * 58) - 58), 16)]) } } }
      for q in 0..4 { for p in 0..5 { vectorized for l in 0..16 { if (((q * 16) + l) < 58) {
        s[q, p, l] = a[floordiv(((q * 16) + l + 58), 16), p, floormod((l + 58), 16)] } } } }
      for q in 3..8 { for p in 0..5 { vectorized for l in 0..16 { if (((q * 16) + l) < 116) {
        c[q, p, l] = select((((q * 16) + l) < 58), a[q, p, l],
          b[floordiv(((q * 16) + l - 58), 16), p, floormod(((q * 16) + l - 58), 16)]) } } } } })");
  }
}

TEST(CodegenLoops, LanesOfOneRunAreLoadedUnderTheirMask) {
  // The upper lanes are the beginning of a block, the lower ones would lie before the buffer.
  const std::string text = R"(kernel @k(x: f32[2,3,16]) -> (y: f32[3,16]) {
    for i in 0..3 { vectorized for l in 0..16 {
      y[i, l] = select((l < 8), 1:f32, (x[(floordiv((l + 8), 16) - 1), i, floormod((l + 8), 16)] * 2:f32)) } } })";
  expect_agrees(text);
  CodegenOptions options;
  options.want_ir = true;
  const Program program = program_of(parse_loop_programs(text)[0]);
  const std::string ir = generate_llvm(program, parse_target("x86-64-v4"), options).llvm_ir;
  EXPECT_THAT(ir, testing::HasSubstr("llvm.masked.load.v16f32"));
}

TEST(CodegenLoops, LanesFarApartUnderKnownMasks) {
  expect_agrees(R"(kernel @k(x: f32[700]) -> (a: f32[3,16], b: f32[3,16], c: f32[3,16], d: f32[3,16]) {
    for i in 0..3 { vectorized for l in 0..16 { a[i, l] = select((floormod(l, 2) == 0), x[((l * 37) + i)], 1:f32) } }
    for i in 0..3 { vectorized for l in 0..16 {
      b[i, l] = select((l < 5), x[((floordiv(l, 3) * 300) + floormod(l, 3) + i)], 2:f32) } }
    for i in 0..3 { vectorized for l in 0..16 {
      c[i, l] = select((l == 7), x[((l * l) + i)], x[(660 + floormod((l * 5), 16) + i)]) } }
    for i in 0..3 { vectorized for l in 0..16 { d[i, l] = x[((floordiv(l, 4) * 150) + floormod(l, 4) + i)] } } })");
}

TEST(CodegenLoops, PaddingSelect) {
  expect_agrees(R"(kernel @k(x: f32[5,37]) -> (y: f32[7,39]) {
    for i in 0..7 { vectorized for j in 0..39 {
      y[i, j] = select(((((i >= 1) & (i < 6)) & (j >= 1)) & (j < 38)), x[(i - 1), (j - 1)], 0:f32) } } })");
}

TEST(CodegenLoops, PaddingSelectScalar) {
  expect_agrees(R"(kernel @k(x: f32[5,9]) -> (y: f32[7,11]) {
    for i in 0..7 { for j in 0..11 {
      y[i, j] = select(((((i >= 1) & (i < 6)) & (j >= 1)) & (j < 10)), x[(i - 1), (j - 1)], -1:f32) } } })");
}

TEST(CodegenLoops, SelectWithUniformAndStridedLoadsUnderMask) {
  expect_agrees(R"(kernel @k(x: f32[20], s: f32[1], i: i64[40]) -> (y: f32[40], z: f32[40], w: f32[40]) {
    vectorized for j in 0..40 { y[j] = select((j < 3), s[0], select((j < 23), x[(j - 3)], s[0])) }
    vectorized for j in 0..40 { z[j] = select((j < 10), x[(j * 2)], 5:f32) }
    vectorized for j in 0..40 { w[j] = select(((i[j] >= 0) & (i[j] < 9)), x[(i[j] * 2)], -1:f32) } })");
}

constexpr int kLevels = 26;  // of selects in each other: what is emitted twice per level is so 2^26 times

TEST(CodegenLoops, SelectsThatShareLoadsStaySmall) {
  // Each arm repeats what was loaded.
  std::string text = "kernel @k(x: f32[20], i: i64[20]) -> (y: f32[20], z: f32[20]) { for j in 0..20 { let $0 = x[j] ";
  const auto chain = [](const std::string& index) {
    std::string lets;
    for (int level = 1; level <= kLevels; ++level) {
      const std::string last = "$" + std::to_string(level - 1);
      lets += " let $" + std::to_string(level) + " = select((" + last + " < " + std::to_string(level) + ":f32), (" +
              last + " + " + index + "), (" + last + " - 1:f32))";
    }
    return lets;
  };
  text += chain("x[j]") + " y[j] = $26 } vectorized for j in 0..20 { let $0 = x[j]" + chain("x[j]") + " z[j] = $26 } }";
  expect_agrees(text);
}

TEST(CodegenLoops, SelectsThatShareConditionalLoadsStaySmall) {
  // An integer power by squaring in a branch: each level has the one before in both arms, and none of the loads is
  // certain to be done.
  const auto power = [](const std::string& base) {
    std::string lets = " let $0 = 1:i32 let $100 = " + base;
    for (int level = 1; level <= kLevels; ++level) {
      const std::string last = "$" + std::to_string(level - 1);
      const std::string square = "$" + std::to_string(99 + level);
      lets += " let $" + std::to_string(level) + " = select(((e[j] & " + std::to_string(1 << (level % 20)) +
              ":i32) != 0:i32), (" + last + " * " + square + "), " + last + ") let $" + std::to_string(100 + level) +
              " = (" + square + " * " + square + ")";
    }
    return lets;
  };
  const std::string open =
      "kernel @k(x: i32[20], e: i32[20], c: i32[20]) -> (y: i32[20], z: i32[20]) { for j in 0..20 {";
  for (const std::string base : {"x[j]", "select((c[j] > 0:i32), x[j], e[(19 - j)])"})
    expect_agrees(open + power(base) + " y[j] = select((c[j] > 1:i32), $26, 3:i32) } vectorized for j in 0..20 {" +
                  power(base) + " z[j] = select((c[j] > 1:i32), $26, 3:i32) } }");
}

TEST(CodegenLoops, PrefetchesMayLieOutsideOfTheBuffer) {
  expect_agrees(R"(kernel @k(x: f32[6,20], w: f32[20,16]) -> (y: f32[6,16]) {
    parallel for i in 0..6 {
      alloc acc: f32[16] register
      vectorized for l in 0..16 { acc[l] = 0:f32 }
      for k in 0..20 prefetch w[((i * 100000) + k), (k - 9)] {
        vectorized for l in 0..16 { acc[l] = fma(x[i, k], w[k, l], acc[l]) }
      }
      vectorized for l in 0..16 { y[i, l] = acc[l] } } })");
  // Several in one step: loops that run once.
  expect_agrees(R"(kernel @k(x: f32[6], w: f32[16]) -> (y: f32[6,16]) {
    for i in 0..6 prefetch w[(i * 32)] {
      for z in 0..1 prefetch w[((i * 32) + (z + 16))] {
        for u in 3..4 prefetch w[(i - u)] {
          vectorized for l in 0..16 { y[i, l] = (x[i] * w[(l + (u - 3))]) } } } } })");
}

TEST(CodegenLoops, SelectBetweenSeveralLoads) {
  // Operands of a concatenation along blocked channels: an arm that no lane needs is jumped over.
  expect_agrees(R"(kernel @k(x: f32[24,5], s: f32[24], y: f32[12,5], t: f32[1]) -> (z: f32[3,5,16]) {
    for b in 0..3 { for p in 0..5 { vectorized for l in 0..16 {
      z[b, p, l] = select(((b * 16 + l) < 24), (x[(b * 16 + l), p] * s[(b * 16 + l)]),
                          select(((b * 16 + l) < 36), (y[(b * 16 + l - 24), p] + (t[0] * y[(b * 16 + l - 24), 0])), 0:f32)) } } } })");
}

TEST(CodegenLoops, MaskedIf) {
  expect_agrees(R"(kernel @k(x: f32[45], b: bool[45]) -> (y: f32[45], z: f32[90], c: bool[45]) {
    for i in 0..90 { z[i] = 7:f32 }
    vectorized for j in 0..45 {
      if (x[j] < 0:f32) { y[j] = (x[j] * 2:f32)  z[(j * 2)] = x[j] } else { y[j] = 1:f32 }
      if b[j] { if (x[j] > 1:f32) { y[j] = (y[j] + 100:f32) } else { y[j] = (y[j] - 100:f32) } }
      c[j] = (b[j] | (x[j] < 2:f32))
    } })");
}

TEST(CodegenLoops, UniformIfInsideVectorLoop) {
  expect_agrees(R"(kernel @k(x: f32[4,19]) -> (y: f32[4,19]) {
    for i in 0..4 { vectorized for j in 0..19 {
      if (i < 2) { y[i, j] = x[i, j] } else { y[i, j] = (0:f32 - x[i, j]) } } } })");
}

TEST(CodegenLoops, GatherRows) {
  expect_agrees(R"(kernel @k(x: f32[10,21], i: i64[6]) -> (y: f32[6,21]) {
    for r in 0..6 { vectorized for c in 0..21 { y[r, c] = x[min(max(i[r], 0), 9), c] } } })");
}

TEST(CodegenLoops, GatherWithinVector) {
  expect_agrees(R"(kernel @k(x: f32[10], i: i32[37]) -> (y: f32[37]) {
    vectorized for c in 0..37 { y[c] = x[min(max(cast:i64(i[c]), 0), 9)] } })");
}

TEST(CodegenLoops, RegisterTileFromPlainLoops) {
  expect_agrees(R"(kernel @k(a: f32[11,6], b: f32[11,29]) -> (y: f32[6,29]) {
    alloc acc: f32[6,29] register
    unrolled for i in 0..6 { vectorized for l in 0..29 { acc[i, l] = 0:f32 } }
    for k in 0..11 { unrolled for i in 0..6 { vectorized for l in 0..29 {
      acc[i, l] = fma(a[k, i], b[k, l], acc[i, l]) } } }
    unrolled for i in 0..6 { vectorized for l in 0..29 { y[i, l] = max(acc[i, l], 0:f32) } } })");
}

TEST(CodegenLoops, ScalarAccumulator) {
  expect_agrees(R"(kernel @k(a: f32[5,33]) -> (y: f32[5]) {
    for i in 0..5 { alloc acc: f32[1] register
      acc[0] = 0:f32
      for k in 0..33 { acc[0] = (acc[0] + (a[i, k] * a[i, k])) }
      y[i] = acc[0] } })");
}

TEST(CodegenLoops, PrivateAccumulators) {
  // The accumulators are allocated inside the vector loop: one per lane.
  expect_agrees(R"(kernel @k(a: f32[7,37], m: i32[37]) -> (y: f32[37], z: f32[37]) {
    vectorized for l in 0..37 {
      alloc acc: f32[1] register
      acc[0] = 0:f32
      for k in 0..7 { if (cast:i64(m[l]) > k) { acc[0] = (acc[0] + a[k, l]) } }
      y[l] = acc[0] }
    vectorized for l in 0..37 {
      alloc t: f32[8] local
      for k in 0..7 { t[k] = (a[k, l] * 2:f32) }
      t[7] = 1:f32
      for k in 0..7 { t[7] = max(t[7], t[(6 - k)]) }
      z[l] = t[7] } })");
}

TEST(CodegenLoops, VectorReductions) {
  for (const int n : {1, 3, 16, 37, 64, 100, 130, 517}) {
    const std::string size = std::to_string(n);
    expect_agrees(
        "kernel @k(x: f32[3," + size + "], w: f32[" + size + "], v: i32[3," + size +
            "]) -> (s: f32[3], p: f32[3], lo: f32[3], hi: f32[3], d: f32[3], c: i32[3]) {"
            "for i in 0..3 { s[i] = 1:f32 p[i] = 1:f32 lo[i] = inf:f32 hi[i] = -inf:f32 d[i] = 0:f32 c[i] = 5:i32 "
            "vectorized for j in 0.." +
            size +
            " { s[i] = (s[i] + x[i, j]) } "
            "vectorized for j in 0.." +
            size +
            " { p[i] = (p[i] * (x[i, j] * 0.01:f32 + 1:f32)) } "
            "vectorized for j in 0.." +
            size +
            " { lo[i] = min(x[i, j], lo[i]) hi[i] = max(hi[i], x[i, j]) } "
            "vectorized for j in 0.." +
            size +
            " { d[i] = fma(x[i, j], w[j], d[i]) } "
            "vectorized for j in 0.." +
            size + " { c[i] = (c[i] + v[i, j]) } } }",
        2e-5);
  }
}

TEST(CodegenLoops, VectorReductionIntoRegister) {
  expect_agrees(R"(kernel @k(x: f32[3,70], m: bool[70]) -> (s: f32[3], t: f32[3]) {
    for i in 0..3 {
      alloc acc: f32[2] register
      acc[0] = 0:f32
      acc[1] = 0:f32
      vectorized for j in 0..70 { acc[0] = (acc[0] + x[i, j]) }
      vectorized for j in 0..70 { if m[j] { acc[1] = (acc[1] + x[i, j]) } }
      s[i] = acc[0]
      t[i] = acc[1] } })");
}

TEST(CodegenLoops, ReductionOverInnerLoop) {
  expect_agrees(R"(kernel @k(x: f32[5,70]) -> (s: f32[1]) {
    s[0] = 0:f32
    vectorized for j in 0..70 { for i in 0..5 { s[0] = (s[0] + x[i, j]) } } })");
}

// Where no iteration runs, the partial results have no element to join.
TEST(CodegenLoops, ReductionsThatDoNotRunTouchNothing) {
  expect_agrees(R"(kernel @k(x: f32[6,20], n: i64[1]) -> (y: f32[6], z: f32[3]) {
    for i in 0..6 { y[i] = 2:f32 }
    for i in 0..3 { z[i] = -1:f32 }
    for i in 0..5000 { vectorized for j in 0..20 { if (i < 6) { y[i] = (y[i] + x[i, j]) } } }
    for i in 0..5000 { vectorized for j in 0..20 {
      for k in 0..2 { if (((i * 2) + k) < 6) { z[i] = max(z[i], (x[i, j] * cast:f32(k))) } } } } })");
  expect_agrees(R"(kernel @k(x: f32[6,20]) -> (y: f32[6]) {
    alloc acc: f32[6] register
    unrolled for i in 0..16 {
      if (i < 6) { acc[i] = 0:f32 }
      vectorized for j in 0..20 { if (i < 6) { acc[i] = (acc[i] + x[i, j]) } }
      if (i < 6) { y[i] = acc[i] }
    } })");
}

TEST(CodegenLoops, RegistersUnderMasks) {
  // Lanes that do not run lie outside of the buffer, or in a cell of one that runs.
  expect_agrees(R"(kernel @k(x: f32[24]) -> (y: f32[5], z: f32[2], w: f32[16]) {
    alloc acc: f32[5] register
    alloc two: f32[2] register
    alloc turned: f32[9] register
    vectorized for l in 0..16 { if (l < 5) { acc[l] = x[l] } }
    vectorized for l in 0..16 { if (l < 5) { acc[l] = (acc[l] * x[(l + 3)]) } }
    vectorized for l in 0..16 { if (l < 5) { y[l] = acc[l] } }
    vectorized for l in 0..8 { if (l < 2) { two[floormod(l, 2)] = x[l] } }
    vectorized for l in 0..2 { z[l] = two[l] }
    vectorized for l in 0..9 { turned[(8 - l)] = x[(l * 2)] }
    vectorized for l in 0..16 { w[l] = select((l < 9), turned[(8 - l)], x[l]) } })");
  expect_agrees(R"(kernel @k(x: f32[37], n: i32[37]) -> (y: f32[37], z: f32[37]) {
    vectorized for l in 0..37 {
      alloc own: f32[3] local
      for k in 0..3 { own[k] = (x[l] * cast:f32(k)) }
      y[l] = x[l]
      z[l] = x[l]
      for k in 0..7 { y[l] = (y[l] + select((k < 3), own[k], 1:f32)) }
      for k in 0..7 { z[l] = (z[l] + select((((k + l) < 3) & (n[l] > 0:i32)), own[k], 1:f32)) }
    } })");
}

TEST(CodegenLoops, LanesThatDoNotRunDivideByNothingUndefined) {
  expect_agrees(R"(kernel @k(n: i32[13]) -> (y: i32[13]) {
    for o in 0..1 { vectorized for l in 0..16 { if (l < 13) {
      alloc p: i32[1] local
      p[0] = (cast:i32(l) + 3:i32)
      y[l] = ((n[l] + 500:i32) / p[0])
    } } } })");
  expect_agrees(R"(kernel @k(n: i32[13]) -> (y: i32[13]) {
    alloc p: i32[13] register
    vectorized for l in 0..16 { if (l < 13) { p[l] = (cast:i32(l) + 3:i32) } }
    vectorized for l in 0..16 { if (l < 13) { y[l] = ((n[l] + 500:i32) / p[l]) } } })");
}

TEST(CodegenLoops, RegistersOutsideOfTheirBufferUnderConditionsOfMemory) {
  expect_agrees(R"(kernel @k(n: i32[9]) -> (y: f32[8]) {
    alloc acc: f32[8] register
    vectorized for j in 0..8 { acc[j] = 1:f32 }
    vectorized for j in 0..9 { if ((j < 8) & (n[j] > 0:i32)) { acc[j] = 2:f32 } }
    vectorized for j in 0..8 { y[j] = acc[j] } })");
}

TEST(CodegenLoops, NotVectorizableRunsSerially) {
  const std::string text = R"(kernel @k(x: f32[30]) -> (s: f32[30], y: f32[1]) {
    vectorized for j in 0..30 { for i in 0..3 { s[i] = x[j] } }
    y[0] = 0:f32
    vectorized for j in 0..30 { y[0] = (x[j] - y[0]) }
    for i in 3..30 { s[i] = 0:f32 } })";
  expect_agrees(text);
  const NativeModule module(program_of(parse_loop_program(text)), parse_target("x86-64-v2"));
  EXPECT_THAT(module.code().remarks,
              testing::ElementsAre(
                  "kernel k: loop j runs without vectors: all iterations store to one element of s and the value is no "
                  "sum, product, minimum or maximum",
                  "kernel k: loop j runs without vectors: all iterations store to one element of y and the value is no "
                  "sum, product, minimum or maximum"));
}

// Ranges are read once: iterations that store to what they were loaded from move nothing.
TEST(CodegenLoops, RangesLoadedFromWhatTheBodyStores) {
  for (const std::string kind : {"", "unrolled ", "vectorized ", "parallel "}) {
    const std::string extent = kind.empty() ? "(3 + floormod(cast:i64(q[1]), 4))" : "20";
    const std::string store = kind.empty() || kind == "unrolled " ? "p[0] = 5:i32 " : "";
    expect_agrees(
        "kernel @k(q: i32[2], x: f32[40]) -> (y: f32[40], p: i32[40]) { for i in 0..40 { y[i] = 0:f32 p[i] "
        "= floormod(q[0], 9:i32) } " +
        kind + "for j in cast:i64(p[0])..+" + extent + " { " + store + "y[j] = x[j] p[j] = 7:i32 } }");
  }
  expect_agrees(R"(kernel @k(x: f32[4]) -> (y: f32[4], p: i64[1]) {
    p[0] = 2
    for j in 0..4 { y[j] = 0:f32 }
    for j in p[0]..+1 { p[0] = 3  y[j] = x[0]  y[0] = x[j] } })");
}

// What each lane computes for itself is no index that all share, and no range.
TEST(CodegenLoops, IndicesComputedByEachIteration) {
  expect_agrees(R"(kernel @k(n: i32[37], x: f32[64]) -> (y: f32[37], z: f32[37], s: f32[37], w: f32[64]) {
    for i in 0..64 { w[i] = 0:f32 }
    vectorized for j in 0..37 {
      alloc p: i64[2] local
      p[0] = floormod(cast:i64(n[j]), 64)
      p[1] = floormod(j, 3)
      y[j] = x[p[0]]
      z[j] = x[(p[1] + j)]
      s[j] = 0:f32
      for k in 0..p[1] { s[j] = s[j] + x[k] }
    }
    vectorized for j in 0..21 {
      alloc p: i64[1] local
      p[0] = (j * 3)
      w[p[0]] = x[j]
    } })");
  // The same in every lane.
  expect_agrees(R"(kernel @k(x: f32[64]) -> (y: f32[37], s: f32[4]) {
    for i in 0..4 { s[i] = 0:f32 }
    vectorized for j in 0..37 {
      alloc p: i64[1] local
      p[0] = 2
      y[j] = x[p[0]]
      for k in 0..p[0] { y[j] = y[j] + x[k] }
      s[p[0]] = s[p[0]] + x[j]
    } })");
  // Where only some lanes store.
  expect_agrees(R"(kernel @k(n: i32[37], x: f32[64]) -> (y: f32[37], z: f32[37]) {
    vectorized for j in 0..37 {
      alloc p: i64[1] local
      p[0] = 3
      y[j] = x[p[0]]
      if (n[j] > 0:i32) { p[0] = 5 }
      z[j] = x[p[0]]
    } })");
  expect_agrees(R"(kernel @k(x: f32[32]) -> (y: f32[32]) {
    alloc acc: f32[32] register
    vectorized for i in 0..4 { unrolled for j in (i * 8)..+8 { acc[j] = x[j] } }
    vectorized for j in 0..32 { y[j] = acc[j] } })");
}

// Iterations of a vectorized loop may fold into one element in any order, but each of them must.
TEST(CodegenLoops, LanesThatMeetInOneElement) {
  expect_agrees(R"(kernel @k(x: f32[64], n: i32[64]) -> (y: f32[4], h: i32[16], t: f32[8,8]) {
    for i in 0..16 { h[i] = 0:i32 }
    for i in 0..4 { y[i] = 0:f32 }
    for i in 0..8 { for j in 0..8 { t[i, j] = 1:f32 } }
    vectorized for j in 0..64 { y[floordiv(j, 16)] = y[floordiv(j, 16)] + x[j] }
    vectorized for j in 0..64 { h[floormod(cast:i64(n[j]), 16)] = h[floormod(cast:i64(n[j]), 16)] + 1:i32 }
    vectorized for j in 0..64 { t[floordiv(j, 8), floormod(j, 8)] = t[floordiv(j, 8), floormod(j, 8)] + x[j] }
    vectorized for j in 0..64 { if (x[j] > y[floordiv(j, 16)]) { y[floordiv(j, 16)] = x[j] } }
    vectorized for j in 0..64 {
      alloc p: i32[1] local
      p[0] = h[floordiv(j, 16)] + n[j]
      h[floordiv(j, 16)] = p[0]
    } })");
  const NativeModule module(program_of(parse_loop_program(R"(kernel @k(x: f32[64]) -> (t: f32[4,2,8]) {
      for i in 0..4 { for j in 0..2 { for k in 0..8 { t[i, j, k] = 1:f32 } } }
      vectorized for j in 0..64 {
        t[floordiv(j, 16), floormod(floordiv(j, 8), 2), floormod(j, 8)] =
          t[floordiv(j, 16), floormod(floordiv(j, 8), 2), floormod(j, 8)] + x[j] } })")),
                            parse_target("x86-64-v2"));
  EXPECT_THAT(module.code().remarks, testing::IsEmpty()) << "parts of one number tell the iterations apart";
}

// One lane of each vector stores, under a mask, to the element that the vector has.
TEST(CodegenLoops, OneLaneOfSeveralStores) {
  for (const std::string lane : {"0", "3", "15"})
    for (const std::string dtype : {"f32", "u8", "i4", "bool"}) {
      const std::string value = dtype == "bool" ? "(x[i, floormod(f, 16)] > 0:f32)" : "cast:" + dtype + "(x[i, l])";
      expect_agrees("kernel @k(x: f32[5,16]) -> (y: " + dtype + "[5]) { for i in 0..5 { y[i] = cast:" + dtype +
                    "(0:i32) } for i in 0..5 { vectorized for l in 0..16 { if ((l == " + lane +
                    ") & (x[i, l] < 1e9:f32)) { y[i] = " + (dtype == "bool" ? "(x[i, l] > 0:f32)" : value) +
                    " } } } }");
    }
  expect_agrees(R"(kernel @k(x: f32[4,16]) -> (y: f32[4]) {
    alloc acc: f32[4] register
    unrolled for i in 0..4 { acc[i] = 0:f32 }
    unrolled for i in 0..4 { vectorized for l in 0..16 { if ((l == 7) & (x[i, 0] < 1e9:f32)) { acc[i] = x[i, l] } } }
    unrolled for i in 0..4 { y[i] = acc[i] } })");
}

// While it lives, this thread's stack does not grow beyond so many bytes, and new threads have no larger ones.
class SmallStack {
 public:
  explicit SmallStack(rlim_t bytes) {
    getrlimit(RLIMIT_STACK, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_STACK, &limit);
  }
  ~SmallStack() { setrlimit(RLIMIT_STACK, &before_); }
  SmallStack(const SmallStack&) = delete;
  SmallStack& operator=(const SmallStack&) = delete;

 private:
  rlimit before_{};
};

// Copies of an allocation that unrolling makes use one piece of the stack: apart they would be 3 MB.
TEST(CodegenLoops, UnrolledCopiesOfAnAllocation) {
  const SmallStack limit(2 << 20);
  expect_agrees(R"(kernel @k(x: f32[3900]) -> (y: f32[192]) {
    unrolled for i in 0..192 {
      alloc t: f32[3900] local
      for j in 0..3900 { t[j] = x[j] * 2:f32 }
      y[i] = t[(i + 5)]
    } })");
}

// Allocations after each other in one piece of scratch memory.
TEST(CodegenLoops, SiblingsInScratchMemory) {
  expect_agrees(R"(kernel @k(x: f32[9000]) -> (y: f32[9000], z: f32[9000]) {
    for i in 0..2 {
      alloc s: f32[9000] local
      for j in 0..9000 { s[j] = x[j] * 2:f32 }
      for j in 0..9000 { y[j] = s[(8999 - j)] }
    }
    for i in 0..2 {
      alloc t: f32[9000] local
      for j in 0..9000 { t[j] = y[j] + 2:f32 }
      for j in 0..9000 { z[j] = t[(8999 - j)] }
    } })");
}

std::string tile_text(const std::string& intrinsic, int v, int p, int lanes, const std::string& dtype, bool depthwise) {
  const auto s = [](int i) { return std::to_string(i); };
  const std::string a = depthwise ? "a[k, (p + k), (v * " + s(lanes) + " + l)]" : "a[k, p]";
  const std::string a_type = depthwise ? s(9) + "," + s(p + 9) + "," + s(v * lanes) : s(9) + "," + s(p);
  return "kernel @tile(a: " + dtype + "[" + a_type + "], b: " + dtype + "[9," + s(v) + "," + s(lanes) +
         "]) -> (y: " + dtype + "[" + s(p) + "," + s(v) + "," + s(lanes) + "]) { alloc acc: " + dtype + "[" + s(v) +
         "," + s(p) + "," + s(lanes) + "] register " + "unrolled for v in 0.." + s(v) + " { unrolled for p in 0.." +
         s(p) + " { vectorized for l in 0.." + s(lanes) + " { acc[v, p, l] = 0:" + dtype +
         " } } } for k in 0..9 { tensorized \"" + intrinsic + "\" { unrolled for v in 0.." + s(v) +
         " { unrolled for p in 0.." + s(p) + " { vectorized for l in 0.." + s(lanes) + " { acc[v, p, l] = fma(" + a +
         ", b[k, v, l], acc[v, p, l]) } } } } } unrolled for v in 0.." + s(v) + " { unrolled for p in 0.." + s(p) +
         " { vectorized for l in 0.." + s(lanes) + " { y[p, v, l] = acc[v, p, l] } } } }";
}

TEST(CodegenLoops, TensorizedTiles) {
  expect_agrees(tile_text("x86.avx512.fma.f32", 2, 14, 16, "f32", false));
  expect_agrees(tile_text("x86.fma.f32", 2, 6, 8, "f32", false));
  expect_agrees(tile_text("x86.sse.mul_add.f32", 3, 4, 4, "f32", false));
  expect_agrees(tile_text("x86.avx512.fma.f64", 2, 5, 8, "f64", false));
  expect_agrees(tile_text("x86.avx512.fma.f32", 1, 7, 16, "f32", true));
}

TEST(CodegenLoops, TransposedTiles) {
  for (const auto& [intrinsic, lanes] : std::vector<std::pair<std::string, std::string>>{
           {"x86.avx512.transpose.f32", "16"}, {"x86.avx2.transpose.f32", "8"}, {"x86.sse.transpose.f32", "4"}})
    expect_agrees("kernel @k(x: f32[64,48]) -> (y: f32[48,64]) { parallel for i in 0..(48 / " + lanes +
                      ") { for j in 0..(64 / " + lanes + ") { tensorized \"" + intrinsic +
                      "\" { unrolled for r in 0.." + lanes + " { vectorized for l in 0.." + lanes + " { y[((i * " +
                      lanes + ") + r), ((j * " + lanes + ") + l)] = x[((j * " + lanes + ") + l), ((i * " + lanes +
                      ") + r)] } } } } } }",
                  0);
}

TEST(CodegenLoops, TileThatLeavesTapsOut) {
  expect_agrees(R"(kernel @k(a: f32[20,16], w: f32[3,16]) -> (y: f32[5,16]) {
    alloc acc: f32[1,5,16] register
    unrolled for p in 0..5 { vectorized for l in 0..16 { acc[0, p, l] = 0:f32 } }
    tensorized "x86.avx512.fma.f32" { unrolled for v in 0..1 { unrolled for p in 1..5 { vectorized for l in 0..16 {
      acc[v, p, l] = fma(a[(p - 1), l], w[0, l], acc[v, p, l]) } } } }
    tensorized "x86.avx512.fma.f32" { unrolled for v in 0..1 { unrolled for p in 0..5 { vectorized for l in 0..16 {
      acc[v, p, l] = fma(a[p, l], w[1, l], acc[v, p, l]) } } } }
    unrolled for p in 0..5 { vectorized for l in 0..16 { y[p, l] = acc[0, p, l] } } })");
}

TEST(CodegenLoops, ParallelLoops) {
  expect_agrees(R"(kernel @k(x: f32[64,1000]) -> (y: f32[64,1000], z: f32[64]) {
    parallel for i in 0..64 { vectorized for j in 0..1000 { y[i, j] = (x[i, j] * 2:f32 + 1:f32) } }
    parallel for i in 0..64 { z[i] = 0:f32 for j in 0..1000 { z[i] = (z[i] + y[i, j]) } } })",
                1e-4);
}

TEST(CodegenLoops, ParallelLoopUsesWhatIsAroundIt) {
  const std::string text = R"(kernel @k(x: f32[3,64,2000]) -> (y: f32[3,64,2000]) {
    alloc t: f32[64,2000] global
    alloc small: f32[4] local
    for n in 0..3 {
      small[1] = cast:f32(n)
      parallel for i in 0..64 { vectorized for j in 0..2000 { t[i, j] = (x[n, i, j] + small[1]) } }
      unrolled for part in 0..16 {
        parallel for i in 0..4 { vectorized for j in 0..2000 {
          y[n, (part * 4 + i), j] = t[(63 - (part * 4 + i)), j] } } } } })";
  expect_agrees(text);
  int calls = 0;
  const LoopProgram loops = parse_loop_program(text);
  const NativeModule module(program_of(loops), parse_target("x86-64-v2"));
  EXPECT_EQ(module.code().scratch_bytes, 64 * 2000 * 4);
  HostOptions host;
  host.threads = 2;
  host.parallel_calls = &calls;
  module.run(random_inputs(loops, 1), host);
  EXPECT_EQ(calls, 3) << "the copies are large enough to be split, the parts are not";
}

// The task of each copy has the copy's constant in it, and its allocation the same place.
TEST(CodegenLoops, ParallelLoopInsideUnrolledOne) {
  expect_agrees(R"(kernel @k(x: f32[2,64,8]) -> (y: f32[2,64]) {
    unrolled for u in 0..2 {
      parallel for i in 0..64 {
        alloc acc: f32[1] local
        acc[0] = 0:f32
        for j in 0..8 { acc[0] = (acc[0] + x[u, i, j]) }
        y[u, i] = acc[0]
      }
    }
  })");
}

TEST(CodegenLoops, ScratchPerWorker) {
  // 40 KB per task: too large for the stack. The tasks of two workers must not share it.
  expect_agrees(R"(kernel @k(x: f32[40,10000]) -> (y: f32[40,10000]) {
    parallel for i in 0..40 {
      alloc t: f32[10000] local
      vectorized for j in 0..10000 { t[j] = (x[i, j] + 1:f32) }
      vectorized for j in 0..10000 { y[i, j] = t[(9999 - j)] } } })");
}

TEST(CodegenLoops, NarrowTypes) {
  for (const char* type : {"f16", "bf16", "f64", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"}) {
    const std::string t = type;
    expect_agrees("kernel @k(x: " + t + "[3,43], w: " + t + "[43]) -> (y: " + t + "[3,43], s: " + t +
                      "[3]) { for i in 0..3 { s[i] = 0:" + t +
                      " vectorized for j in 0..43 { y[i, j] = ((x[i, j] * w[j]) - x[i, (42 - j)]) } for j in 0..43 { "
                      "s[i] = max(s[i], y[i, j]) } } }",
                  0);
  }
}

TEST(CodegenLoops, MixedTypes) {
  expect_agrees(
      R"(kernel @k(q: u8[77], h: f16[77], d: f64[77], b: bool[77]) -> (y: f32[77], r: u8[77], e: f64[77], c: bool[77]) {
    vectorized for j in 0..77 { y[j] = ((cast:f32(q[j]) - 3:f32) * 0.5:f32 + cast:f32(h[j])) }
    vectorized for j in 0..77 { r[j] = cast:u8(min(max(round(y[j]), 0:f32), 255:f32)) }
    vectorized for j in 0..77 { e[j] = (d[j] + cast:f64(y[j])) }
    vectorized for j in 0..77 { c[j] = (b[j] & (d[j] < 0:f64)) } })",
      0);
}

TEST(CodegenLoops, EmptyAndZeroRank) {
  expect_agrees(
      "kernel @k(x: f32[]) -> (y: f32[], z: f32[1]) { y[] = (x[] + 1:f32) for i in 0..0 { z[i] = 1:f32 } z[0] = 2:f32 "
      "}");
}

TEST(CodegenLoops, InPlace) {
  // Input and output of the second kernel are the same arena bytes.
  const LoopProgram first = parse_loop_program(
      "kernel @a(x: f32[50]) -> (y: f32[50]) { vectorized for i in 0..50 { y[i] = (x[i] + 1:f32) } }");
  const LoopProgram second =
      parse_loop_program("kernel @b(x: f32[50]) -> (y: f32[50]) { for i in 0..50 { y[i] = (x[i] * 2:f32) } }");
  Program program = program_of(first);
  ProgramBuffer buffer = program.buffers[0];
  buffer.kind = BufferKind::kArena;
  buffer.bytes = 200;
  buffer.offset = 0;
  program.buffers.push_back(buffer);  // 2: result of the first kernel
  buffer.alias_of = 2;
  buffer.offset = -1;
  program.buffers.push_back(buffer);  // 3: the same bytes, result of the second
  program.arena_bytes = 256;
  program.kernels.push_back({.program = second, .definition = {}, .loc = {}});
  program.kernels.push_back({.program = first, .definition = {}, .loc = {}});
  program.calls = {{0, {0, 2}, ""}, {1, {2, 3}, ""}, {2, {3, 1}, ""}};
  const std::vector<Tensor> inputs = random_inputs(first, 3);
  const NativeModule module(program, native_target());
  const Tensor got = module.run(inputs)[0];
  for (int64_t i = 0; i < 50; ++i)
    EXPECT_FLOAT_EQ(static_cast<float>(got.get_double(i)), (static_cast<float>(inputs[0].get_double(i)) + 1) * 2 + 1);
}

}  // namespace
}  // namespace tessera
