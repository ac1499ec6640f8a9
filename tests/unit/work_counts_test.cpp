// Floating-point operations and bytes of kernels against computations by hand, and the roofline that is made of them.
#include <gtest/gtest.h>

#include <climits>

#include "diagnose/roofline.h"
#include "graph/parser.h"
#include "loop_passes/expand_math.h"
#include "lower/lower.h"
#include "ops/op_table.h"

namespace tessera {
namespace {

struct Work {
  int64_t flops = 0, bytes = 0;
};

// Of the one kernel that the graph becomes.
Work work_of(const std::string& text) {
  const Program program = lower_graph(parse_graph(text, standard_ops()));
  EXPECT_EQ(program.kernels.size(), 1u) << text;
  return {program.kernels.at(0).flops, program.kernels.at(0).bytes};
}

void expect_work(const std::string& text, int64_t flops, int64_t bytes) {
  const Work work = work_of(text);
  EXPECT_EQ(work.flops, flops) << text;
  EXPECT_EQ(work.bytes, bytes) << text;
}

TEST(WorkCounts, Convolution) {
  // 4 x 6 x 6 results of 3 x 3 x 3 multiplications and additions.
  expect_work(R"(
graph @main(%x: f32[1,3,8,8], %w: f32[4,3,3,3]) -> (%y: f32[1,4,6,6]) {
  %y = conv(%x, %w) {dilations = [1, 1], groups = 1, input_dilations = [1, 1], pads_begin = [0, 0],
                     pads_end = [0, 0], strides = [1, 1]} : f32[1,4,6,6]
})",
              4 * 36 * 27 * 2, 4 * (3 * 64 + 4 * 27 + 4 * 36));
}

TEST(WorkCounts, DepthwiseConvolution) {
  // Each of 8 channels has its own 3 x 3 filter; padding is counted as if it were there.
  expect_work(R"(
graph @main(%x: f32[2,8,5,5], %w: f32[8,1,3,3]) -> (%y: f32[2,8,5,5]) {
  %y = conv(%x, %w) {dilations = [1, 1], groups = 8, input_dilations = [1, 1], pads_begin = [1, 1],
                     pads_end = [1, 1], strides = [1, 1]} : f32[2,8,5,5]
})",
              2 * 8 * 25 * 9 * 2, 4 * (2 * 8 * 25 * 2 + 8 * 9));
}

TEST(WorkCounts, MatrixProduct) {
  expect_work(R"(
graph @main(%a: f32[5,7], %b: f32[7,11]) -> (%y: f32[5,11]) {
  %y = matmul(%a, %b) : f32[5,11]
})",
              5 * 11 * 7 * 2, 4 * (35 + 77 + 55));
}

TEST(WorkCounts, AdditionThatBroadcasts) {
  // One addition a result; the row is read once.
  expect_work(R"(
graph @main(%a: f32[6,10], %b: f32[1,10]) -> (%y: f32[6,10]) {
  %y = add(%a, %b) : f32[6,10]
})",
              60, 4 * (60 + 10 + 60));
}

TEST(WorkCounts, Exponential) {
  // A function counts what its evaluation takes; doubles have eight bytes.
  expect_work(R"(
graph @main(%x: f64[9]) -> (%y: f64[9]) {
  %y = exp(%x) : f64[9]
})",
              9 * function_flops(UnaryOp::kExp), 8 * 18);
}

TEST(WorkCounts, FunctionsCountTheCodeThatStandsForThem) {
  const auto expanded = [](UnaryOp function, DType dtype) {
    return count_flops(expand_math(unary(function, make_var("x", dtype))));
  };
  for (const UnaryOp function : {UnaryOp::kExp, UnaryOp::kLog, UnaryOp::kTanh, UnaryOp::kErf})
    EXPECT_EQ(function_flops(function), expanded(function, DType::kF32)) << static_cast<int>(function);
  for (const UnaryOp function :
       {UnaryOp::kSin, UnaryOp::kCos, UnaryOp::kTan, UnaryOp::kAsin, UnaryOp::kAcos, UnaryOp::kAtan, UnaryOp::kSinh,
        UnaryOp::kCosh, UnaryOp::kAsinh, UnaryOp::kAcosh, UnaryOp::kAtanh})
    EXPECT_EQ(function_flops(function), expanded(function, DType::kF64)) << static_cast<int>(function);
  const Expr x = make_var("x", DType::kF64), y = make_var("y", DType::kF64);
  EXPECT_EQ(count_flops(binary(BinaryOp::kPow, x, y)), count_flops(expand_math(binary(BinaryOp::kPow, x, y))));
  for (const UnaryOp own : {UnaryOp::kSqrt, UnaryOp::kAbs, UnaryOp::kFloor}) EXPECT_EQ(function_flops(own), 1);
}

TEST(WorkCounts, SumAlongAnAxis) {
  expect_work(R"(
graph @main(%x: f32[4,13]) -> (%y: f32[4,1]) {
  %y = reduce(%x) {axes = [1], keepdims = true, kind = "sum"} : f32[4,1]
})",
              4 * 13, 4 * (52 + 4));
}

TEST(WorkCounts, TransposedConvolution) {
  // Every pixel of the input meets every weight once: 3 channels of 4x4, 2 outputs, 4x4 weights.
  expect_work(R"(
graph @main(%x: f32[1,3,4,4], %w: f32[2,3,4,4]) -> (%y: f32[1,2,8,8]) {
  %y = conv(%x, %w) {dilations = [1, 1], groups = 1, input_dilations = [2, 2], pads_begin = [2, 2], pads_end = [2, 2],
                     strides = [1, 1]} : f32[1,2,8,8]
})",
              2 * (3 * 16) * (2 * 16), 4 * (48 + 96 + 128));
}

TEST(WorkCounts, MaximumPooling) {
  // Three candidates for each of two results.
  expect_work(R"(
graph @main(%x: f32[1,1,6]) -> (%y: f32[1,1,2]) {
  %y = reduce_window(%x) {dilations = [1], kind = "max", pads_begin = [0], pads_end = [0], strides = [3], window = [3]} : f32[1,1,2]
})",
              2 * 3, 4 * (6 + 2));
}

TEST(WorkCounts, Transposition) {
  expect_work(R"(
graph @main(%x: f32[3,5]) -> (%y: f32[5,3]) {
  %y = transpose(%x) {perm = [1, 0]} : f32[5,3]
})",
              0, 4 * 30);
}

TEST(WorkCounts, Concatenation) {
  expect_work(R"(
graph @main(%a: f32[2,3], %b: f32[2,4]) -> (%y: f32[2,7]) {
  %y = concat(%a, %b) {axis = 1} : f32[2,7]
})",
              0, 4 * (6 + 8 + 14));
}

TEST(WorkCounts, IntegersAreNoFloatingPointOperations) {
  expect_work(R"(
graph @main(%a: i32[50], %b: i32[50]) -> (%y: i32[50]) {
  %y = mul(%a, %b) : i32[50]
})",
              0, 4 * 150);
}

TEST(WorkCounts, Cast) {
  expect_work(R"(
graph @main(%x: f32[16]) -> (%y: f16[16]) {
  %y = cast(%x) {to = f16} : f16[16]
})",
              0, 16 * (4 + 2));
}

TEST(WorkCounts, FusedEpilogueCountsBothParts) {
  // The product, then an addition and a maximum with a constant for each result.
  expect_work(R"(
graph @main(%a: f32[5,7], %b: f32[7,11], %c: f32[5,11]) -> (%y: f32[5,11]) {
  %y = group(%a, %b, %c) ({
    graph @group(%a: f32[5,7], %b: f32[7,11], %c: f32[5,11]) -> (%r: f32[5,11]) {
      %p = matmul(%a, %b) : f32[5,11]
      %s = add(%p, %c) : f32[5,11]
      %z = constant {value = dense<f32[] 0>} : f32[]
      %r = max(%s, %z) : f32[5,11]
    }
  }) : f32[5,11]
})",
              5 * 11 * (7 * 2 + 2), 4 * (35 + 77 + 55 + 55));
}

MachinePeaks made_up_machine() {
  MachinePeaks peaks;
  peaks.threads = 2;
  peaks.fma_f32 = {"f32 multiply-add", "none", 100e9, 200e9};
  peaks.levels = {{"L1", 1000, 500, 400e9, 800e9}, {"memory", INT64_MAX, 1 << 20, 10e9, 15e9}};
  return peaks;
}

TEST(Roofline, ArithmeticBound) {
  // 1e6 operations on 1e4 bytes in 20 us: arithmetic needs 10 us, memory 1 us.
  const Roofline roof = roofline_of({1000000, 10000}, 0, 20e-6, made_up_machine(), 1);
  EXPECT_TRUE(roof.compute_bound);
  EXPECT_DOUBLE_EQ(roof.gflops, 50);
  EXPECT_DOUBLE_EQ(roof.gbytes, 0.5);
  EXPECT_DOUBLE_EQ(roof.percent_of_peak, 50);
  EXPECT_DOUBLE_EQ(roof.percent_of_bound, 50);
  EXPECT_EQ(roof.level, "memory");
}

// Tiles of bytes are measured against tiles of bytes, and what no peak is known of against memory alone.
TEST(Roofline, TheKernelsOwnUnitIsTheMeasure) {
  MachinePeaks peaks = made_up_machine();
  peaks.amx_i8 = {"i8 tiles", "amx-int8", 1000e9, 2000e9};
  KernelWork work = {1000000, 10000};
  work.unit = "i8 tiles";
  EXPECT_DOUBLE_EQ(roofline_of(work, 0, 20e-6, peaks, 1).percent_of_peak, 5);
  work.unit = "bf16 tiles";
  const Roofline unknown = roofline_of(work, 0, 20e-6, peaks, 1);
  EXPECT_FALSE(unknown.has_peak);
  EXPECT_FALSE(unknown.compute_bound);
}

TEST(Roofline, MemoryBound) {
  // 1e5 bytes in 20 us: memory needs 10 us of them, arithmetic 1 us.
  const Roofline roof = roofline_of({100000, 100000}, 0, 20e-6, made_up_machine(), 1);
  EXPECT_FALSE(roof.compute_bound);
  EXPECT_DOUBLE_EQ(roof.percent_of_peak, 5);
  EXPECT_DOUBLE_EQ(roof.percent_of_bound, 50);
}

TEST(Roofline, WeightsThatNoCacheHoldsComeFromMemory) {
  // 500 bytes of weights at 10 GB/s take 50 ns, 400 others of the first level 1 ns.
  const KernelWork work = {1000, 900, 500};
  const Roofline streams = roofline_of(work, 1 << 20, 102e-9, made_up_machine(), 1);
  EXPECT_DOUBLE_EQ(streams.percent_of_bound, 50);
  EXPECT_EQ(streams.level, "memory");
  // A model whose weights stay in the cache.
  const Roofline kept = roofline_of(work, 1000, 102e-9, made_up_machine(), 1);
  EXPECT_EQ(kept.level, "L1");
  EXPECT_TRUE(kept.compute_bound);
}

TEST(Roofline, ArgumentsComeFromTheLevelThatTheirDistanceLeaves) {
  // 400 bytes that were just written, 1 ns; 500 of which 600 others were touched since, 50 ns.
  const KernelWork work = {1000, 900, 0, {{400, 0}, {500, 600}}};
  const Roofline roof = roofline_of(work, 0, 102e-9, made_up_machine(), 1);
  EXPECT_DOUBLE_EQ(roof.percent_of_bound, 50);
  EXPECT_EQ(roof.level, "memory");
  EXPECT_FALSE(roof.compute_bound);
}

// Other machines drive out of a shared cache what this one does not touch.
TEST(Roofline, WhatTheCacheNoLongerKeepsComesFromMemory) {
  MachinePeaks peaks = made_up_machine();
  peaks.levels[0].keeps = 2e-3;
  const std::vector<CallTraffic> traffic = {{400, 0, 1}, {500, 0, 20}};
  EXPECT_EQ(aged(traffic, 1e-4, peaks)[1].distance, 0);
  const KernelWork work = {1000, 900, 0, aged(traffic, 1.1e-4, peaks)};
  EXPECT_EQ(work.traffic[0].distance, 0);
  EXPECT_LT(work.traffic[1].distance, 1'000'000'000'000'000);  // what a worker takes (tune/worker_protocol.cpp)
  const Roofline roof = roofline_of(work, 0, 102e-9, peaks, 1);
  EXPECT_DOUBLE_EQ(roof.percent_of_bound, 50);  // 400 bytes in 1 ns, 500 in 50
  EXPECT_EQ(roof.level, "memory");
}

TEST(Roofline, ThreadsHaveMoreOfEverything) {
  const Roofline roof = roofline_of({1000000, 1500}, 0, 20e-6, made_up_machine(), 2);
  EXPECT_EQ(roof.level, "L1");  // of two cores
  EXPECT_DOUBLE_EQ(roof.percent_of_peak, 25);
  EXPECT_EQ(roofline_of({}, 0, 1e-6, made_up_machine(), 1).gflops, 0);
}

}  // namespace
}  // namespace tessera
