// The module as a whole: the entry function's contract with the host, objects without undefined symbols, weights and
// arena, and the time it takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "codegen/common/local_plan.h"
#include "codegen/common/vector_plan.h"
#include "codegen/common/work_estimate.h"
#include "codegen_harness.h"
#include "loop/intrinsic.h"
#include "loop/parser.h"
#include "support/error.h"

namespace tessera {
namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

using testing::ElementsAre;
using testing::HasSubstr;

const char* const kScale =
    "kernel @scale(x: f32[50], w: f32[50]) -> (y: f32[50]) { vectorized for i in 0..50 { y[i] = (x[i] * w[i]) } }";

// y = x * w * w with the weights in the module, through the arena.
Program two_kernels() {
  const LoopProgram loops = parse_loop_program(kScale);
  Program program;
  program.kernels.emplace_back().program = loops;
  program.kernels.emplace_back().program = loops;
  const auto add = [&](BufferKind kind) -> ProgramBuffer& {
    ProgramBuffer buffer;
    buffer.kind = kind;
    buffer.type.dtype = DType::kF32;
    buffer.type.shape = {Expr(50)};
    buffer.bytes = 200;
    program.buffers.push_back(buffer);
    return program.buffers.back();
  };
  add(BufferKind::kInput).index = 0;
  ProgramBuffer& weight = add(BufferKind::kWeight);
  weight.offset = 256;
  Tensor values(DType::kF32, {50});
  for (int i = 0; i < 50; ++i) values.set_double(i, i);
  weight.data = std::make_shared<Tensor>(values);
  add(BufferKind::kArena).offset = 64;
  add(BufferKind::kOutput).index = 0;
  program.weight_bytes = 512;
  program.arena_bytes = 320;
  program.inputs = {0};
  program.outputs = {3};
  program.calls = {{0, {0, 1, 2}, "first"}, {1, {2, 1, 3}, "second"}};
  return program;
}

TEST(CodegenModule, WeightsArenaAndTrace) {
  const NativeModule module(two_kernels(), native_target());
  Tensor x(DType::kF32, {50});
  for (int i = 0; i < 50; ++i) x.set_double(i, 2);
  std::vector<std::pair<int, int>> trace;
  HostOptions host;
  host.trace = &trace;
  const Tensor y = module.run({x}, host)[0];
  for (int i = 0; i < 50; ++i) EXPECT_EQ(y.get_double(i), 2.0 * i * i);
  EXPECT_THAT(trace, ElementsAre(std::pair{0, 0}, std::pair{0, 1}, std::pair{1, 0}, std::pair{1, 1}));
  EXPECT_EQ(module.run({x})[0].get_double(7), 98) << "without trace";
}

TEST(CodegenModule, Symbols) {
  const LoopProgram loops = parse_loop_program(
      "kernel @k<n>(x: f32[n]) -> (y: f32[n]) { parallel for i in 0..n { y[i] = (x[i] + cast:f32(n)) } }");
  const NativeModule module(program_of(loops), native_target());
  for (const int64_t n : {0, 1, 3, 200000}) {
    Tensor x(DType::kF32, {n});
    int calls = 0;
    HostOptions host;
    host.threads = 2;
    host.parallel_calls = &calls;
    const Tensor y = module.run({x}, host, {n})[0];
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(y.get_double(i), static_cast<double>(n));
    EXPECT_EQ(calls, n == 200000 ? 1 : 0);
  }
}

TEST(CodegenModule, IrAndAssemblyOnRequest) {
  const Program program = two_kernels();
  CodegenOptions options;
  EXPECT_EQ(generate_llvm(program, parse_target("x86-64-v3"), options).llvm_ir, "");
  options.want_ir = options.want_asm = true;
  const ObjectCode code = generate_llvm(program, parse_target("x86-64-v3"), options);
  EXPECT_TRUE(contains(code.llvm_ir, "i32 @tessera_module_run(ptr"));
  EXPECT_TRUE(contains(code.llvm_ir, "define internal void @k0_scale("));
  EXPECT_TRUE(contains(code.assembly, "tessera_module_run:"));
  EXPECT_TRUE(contains(code.assembly, "ymm"));
  EXPECT_FALSE(contains(code.assembly, "zmm"));
  EXPECT_TRUE(contains(generate_llvm(program, parse_target("x86-64-v4"), options).assembly, "zmm"));
  EXPECT_FALSE(code.object.empty());
}

TEST(CodegenModule, SameProgramSameObject) {
  const ObjectCode first = generate_llvm(two_kernels(), parse_target("x86-64-v3"), {});
  const ObjectCode second = generate_llvm(two_kernels(), parse_target("x86-64-v3"), {});
  EXPECT_EQ(first.object, second.object);
}

TEST(CodegenModule, SeveralAtOnce) {
  const std::vector<std::byte> want = generate_llvm(two_kernels(), parse_target("x86-64-v4"), {}).object;
  std::vector<std::vector<std::byte>> got(4);
  std::vector<std::thread> threads;
  for (auto& object : got)
    threads.emplace_back([&object] { object = generate_llvm(two_kernels(), parse_target("x86-64-v4"), {}).object; });
  for (std::thread& thread : threads) thread.join();
  for (const auto& object : got) EXPECT_EQ(object, want);
}

// Rounding, conversions and masks are where a target without the instruction would call a library. Linking refuses
// undefined symbols; so this is also the test of the plainest x86-64.
TEST(CodegenModule, NoLibraryCallsOnAnyTarget) {
  const LoopProgram loops = parse_loop_program(R"(kernel @k(x: f32[37], h: f16[37], b: bf16[37], d: f64[37], i: i64[37])
      -> (r: f32[37], h2: f16[37], b2: bf16[37], u: u64[37], q: i64[37], m: f32[37], e: f64[37]) {
    vectorized for j in 0..37 {
      r[j] = (round(x[j]) + floor((ceil(x[j]) + trunc(fma(x[j], x[j], 1:f32)))))
      h2[j] = (h[j] * cast:f16(x[j]))
      b2[j] = (b[j] + cast:bf16(d[j]))
      u[j] = cast:u64(x[j])
      q[j] = floordiv(i[j], (i[j] - 3))
      m[j] = select((j > 3), sqrt(abs(x[(j - 3)])), 0:f32)
      e[j] = (cast:f64(u[j]) + round(d[j]))
    } })");
  const std::vector<Tensor> inputs = random_inputs(loops, 4);
  const std::vector<Tensor> want = run_interpreted(loops, inputs);
  for (const char* spec : {"x86_64-unknown-linux-gnu", "x86-64-v2", "x86-64-v3", "x86-64-v4"}) {
    const Target target = parse_target(spec);
    if (!runs_here(target)) {
      std::cout << "[ SKIPPED  ] " << spec << ": this machine lacks some of its instructions\n";
      continue;
    }
    const std::vector<Tensor> got = NativeModule(program_of(loops), target).run(inputs);
    for (size_t k = 0; k < want.size(); ++k)
      EXPECT_EQ(difference(got[k], want[k], 1e-6), "") << spec << " output " << k;
  }
}

TEST(CodegenModule, MathThatWasNotExpandedIsABug) {
  const LoopProgram loops =
      parse_loop_program("kernel @k(x: f32[8]) -> (y: f32[8]) { for i in 0..8 { y[i] = exp(x[i]) } }");
  EXPECT_THROW(generate_llvm(program_of(loops), native_target(), {}), InternalError);
}

TEST(CodegenModule, RegistersIndexedAtRunTimeAreABug) {
  const LoopProgram loops = parse_loop_program(
      "kernel @k(x: f32[8]) -> (y: f32[8]) { alloc r: f32[8] register for i in 0..8 { r[i] = x[i] } for i2 in 0..8 { "
      "y[i2] = r[i2] } }");
  EXPECT_THROW(generate_llvm(program_of(loops), native_target(), {}), InternalError);
}

TEST(CodegenPlans, LocalsOnTheStackAndInScratch) {
  const LoopProgram loops = parse_loop_program(R"(kernel @k(x: f32[8]) -> (y: f32[8]) {
    alloc small: f32[1000] local
    alloc big: f32[5000] local
    if (x[0] < 0:f32) { alloc one: f32[10000] local one[0] = x[0] small[0] = one[0] }
    else { alloc two: f32[20000] local alloc three: f32[1000] local two[0] = x[0] three[0] = two[0] }
    big[0] = small[0]
    for i in 0..8 { y[i] = big[0] } })");
  const LocalPlan plan = plan_locals(loops);
  std::map<std::string, LocalPlace> places;
  walk(
      loops.body,
      [&](const Stmt& s) {
        if (s->kind == StmtKind::kAlloc) places[s->buffer->name] = plan.places.at(s->buffer.get());
      },
      nullptr);
  EXPECT_TRUE(places["small"].on_stack);
  EXPECT_TRUE(places["three"].on_stack);
  EXPECT_EQ(places["big"].offset, 0);
  EXPECT_EQ(places["one"].offset, 20032) << "after big";
  EXPECT_EQ(places["two"].offset, 20032) << "shares with one: never alive together";
  EXPECT_EQ(plan.scratch_bytes, 20032 + 80000);
}

TEST(CodegenPlans, Chunks) {
  const auto text = [](int64_t extent, int lanes) {
    std::string s;
    for (const Chunk& chunk : chunks_of(extent, lanes))
      s += std::to_string(chunk.begin) + ":" + std::to_string(chunk.lanes) + " ";
    return s;
  };
  EXPECT_EQ(text(29, 16), "0:16 16:8 24:4 28:1 ");
  EXPECT_EQ(text(32, 16), "0:16 16:16 ");
  EXPECT_EQ(text(3, 16), "0:2 2:1 ");
  EXPECT_EQ(text(0, 16), "");
}

TEST(CodegenPlans, WorkEstimateGrowsWithTheWork) {
  const Target target = parse_target("x86-64-v3");
  const auto ns = [&](const std::string& n, const std::string& value) {
    return estimate_ns(parse_loop_program("kernel @k(x: f32[100000]) -> (y: f32[100000]) { vectorized for i in 0.." +
                                          n + " { y[i] = " + value + " } }")
                           .body,
                       target);
  };
  EXPECT_LT(ns("1000", "x[i]"), kSerialBelowNs);
  EXPECT_GT(ns("1000000", "x[i]"), kSerialBelowNs);
  EXPECT_GT(ns("1000", "exp(x[i])"), 3 * ns("1000", "x[i]"));
}

// 60 kernels of the kind that a convolutional network has: a tile, a tail, an epilogue, a padded pooling.
TEST(CodegenModule, ManyKernels) {
  const Target target = parse_target("x86-64-v4");
  Program program;
  for (int k = 0; k < 60; ++k) {
    const std::string depth = std::to_string(64 + k);
    const LoopProgram loops = parse_loop_program("kernel @conv" + depth + "(x: f32[4,56," + depth + ",16], w: f32[8," +
                                                 depth + R"(,16,2,16], bias: f32[8,2,16])
        -> (y: f32[4,8,56,2,16]) {
      parallel for n in 0..32 { for q in 0..4 {
        alloc acc: f32[2,14,16] register
        unrolled for v in 0..2 { unrolled for p in 0..14 { vectorized for l in 0..16 {
          acc[v, p, l] = bias[floormod(n, 8), v, l] } } }
        for c in 0..)" + depth + R"( { unrolled for b in 0..4 { tensorized "x86.avx512.fma.f32" {
          unrolled for v in 0..2 { unrolled for p in 0..14 { vectorized for l in 0..16 {
            acc[v, p, l] = fma(x[floordiv(n, 8), (q * 14 + p), c, b],
              w[floormod(n, 8), c, b, v, l], acc[v, p, l]) } } } } } }
        unrolled for v in 0..2 { unrolled for p in 0..14 { vectorized for l in 0..16 {
          y[floordiv(n, 8), floormod(n, 8), (q * 14 + p), v, l] = min(max(acc[v, p, l], 0:f32), 6:f32) } } } } } })");
    program.kernels.emplace_back().program = loops;
    KernelCall call{k, {}, ""};
    for (const BufferPtr& param : loops.params) {
      ProgramBuffer buffer;
      buffer.kind = BufferKind::kArena;
      buffer.offset = static_cast<int64_t>(program.buffers.size()) << 20;
      buffer.bytes = 64;
      buffer.type.shape = param->shape;
      call.args.push_back(static_cast<BufferId>(program.buffers.size()));
      program.buffers.push_back(buffer);
    }
    program.calls.push_back(call);
  }
  const ObjectCode code = generate_llvm(program, target, {});
  // A loop that is unrolled by mistake would show.
  EXPECT_GT(code.object.size(), 60U << 10);
  EXPECT_LT(code.object.size(), 300U << 10);
}

}  // namespace
}  // namespace tessera
