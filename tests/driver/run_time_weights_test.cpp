// Products and convolutions whose weights are inputs, compiled: random shapes, types and levels of x86-64, one and two
// threads, against the interpreter. And where the packing stands in the program.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <random>

#include "graph/parser.h"
#include "interp/graph_interp.h"
#include "ops/op_table.h"
#include "program/steps.h"
#include "support/compiled_graph.h"
#include "support/watched_compile.h"

namespace tessera {
namespace {

using Ints = std::vector<int64_t>;

class RandomCase : public RandomGraphCase {
 public:
  using RandomGraphCase::RandomGraphCase;

  GraphCase conv() {
    const size_t dims = static_cast<size_t>(pick({1, 2, 2, 2, 3}));
    const bool depthwise = random_() % 4 == 0;
    int64_t groups = depthwise ? pick({3, 8, 16, 24, 40}) : pick({1, 1, 1, 2, 3});
    const int64_t per_group = depthwise ? 1 : pick({1, 3, 7, 8, 16, 32, 33});
    const int64_t out = depthwise ? groups * pick({1, 1, 2}) : groups * pick({1, 5, 8, 16, 17, 32, 48});
    Ints x = {pick({1, 1, 2}), groups * per_group}, w = {out, per_group}, strides, dilations, pads, ones(dims, 1);
    for (size_t d = 0; d < dims; ++d) {
      const int64_t window = pick({1, 1, 2, 3, 3, 5});
      dilations.push_back(pick({1, 1, 1, 2}));
      strides.push_back(pick({1, 1, 2}));
      pads.push_back(random_() % 2 ? window / 2 : 0);
      w.push_back(window);
      x.push_back((window - 1) * dilations.back() + pick({1, 2, 5, 6, 9, 14}));
    }
    const ValueId image = input("x", DType::kF32, x), weights = input("w", DType::kF32, w);
    ValueId y = add("conv", {image, weights},
                    {{"strides", strides},
                     {"pads_begin", pads},
                     {"pads_end", pads},
                     {"dilations", dilations},
                     {"input_dilations", coin() || dims != 2 ? ones : Ints(dims, pick({2, 2, 3}))},
                     {"groups", groups}});
    if (coin()) y = add("abs", {y});
    return done(y, fmt::format("conv {} * {}, groups {}", fmt::join(x, "x"), fmt::join(w, "x"), groups));
  }

  GraphCase matmul(DType dtype) {
    const bool transposed = coin();
    const int64_t m = pick({1, 7, 30, 100, 130, 150}), k = pick({1, 16, 256, 257, 300}),
                  n = pick({3, 16, 17, 129, 200});
    const ValueId a = input("x", dtype, {m, k});
    const ValueId b = input("w", dtype, transposed ? Ints{n, k} : Ints{k, n});
    ValueId x = a, w = b;
    // What models do with narrow numbers: sums of f32 and i32.
    const bool wide = dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kI8;
    if (wide) {
      const DType sum = dtype == DType::kI8 ? DType::kI32 : DType::kF32;
      x = add("cast", {x}, {{"to", sum}});
      w = add("cast", {w}, {{"to", sum}});
    }
    ValueId y = add("matmul", {x, w}, {{"transpose_b", transposed}});
    if (coin()) y = add("neg", {y});
    return done(y, fmt::format("matmul {} {}x{}x{}{}", dtype_name(dtype), m, k, n, transposed ? " transposed" : ""));
  }
};

constexpr Tolerance kTolerance{.f32 = 1e-4};
constexpr int64_t kOpen = 137;

int count_packs(const Program& program) {
  int count = 0;
  for (const KernelCall& call : program.calls)
    count += program.kernels[static_cast<size_t>(call.kernel)].rule == "pack";
  return count;
}

// How many of the cases had their weights packed.
int run_cases(unsigned first, int count, const std::function<GraphCase(RandomCase&, int)>& make) {
  int packed = 0;
  GraphInterpreter interpreter;
  for (int i = 0; i < count && !testing::Test::HasFailure(); ++i) {
    RandomCase random(first + static_cast<unsigned>(i));
    const GraphCase test = make(random, i);
    SCOPED_TRACE(fmt::format("seed {}: {}", first + static_cast<unsigned>(i), test.text));
    std::mt19937 numbers(7);
    std::vector<Tensor> inputs;
    for (const TensorType& type : test.inputs) inputs.push_back(random_tensor(type, numbers));
    const Tensor want = interpreter.evaluate(test.graph, inputs).at(0);
    std::vector<std::string> levels = levels_that_run();
    levels.emplace_back("native");
    for (const std::string& level : levels) {
      const int threads = 1 + (i + static_cast<int>(level.back())) % 2;
      DriverOptions options = options_for(level, threads);
      // The numbers are such that rounding them changes none.
      if (i % 3 == 0) options.compile.precision = i % 2 == 0 ? "bf16" : "f16";
      const CompiledRun got = run_compiled(test.graph, inputs, options);
      packed += count_packs(got.program) > 0;
      EXPECT_EQ(difference(want, got.results.at(0), kTolerance), "") << level << ", threads: " << threads;
    }
  }
  return packed;
}

TEST(RunTimeWeights, Convolutions) {
  EXPECT_GT(run_cases(100, 40, [](RandomCase& random, int) { return random.conv(); }), 30);
}

TEST(RunTimeWeights, Products) {
  constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kI8, DType::kF64, DType::kF16};
  EXPECT_GT(run_cases(300, 40, [&](RandomCase& random, int i) { return random.matmul(kTypes[i % 5]); }), 4);
}

// The kernels that calls run, in order, with what loops and branches are around them.
std::string outline(const Program& program, const StepBlock& steps) {
  std::string text;
  for (const ProgramStep& step : steps) {
    for (size_t c = step.first_call; c < step.first_call + step.num_calls; ++c)
      text += program.kernels[static_cast<size_t>(program.calls[c].kernel)].rule + " ";
    if (step.kind == StepKind::kLoop) text += "loop( " + outline(program, step.blocks[0]) + ") ";
    if (step.kind == StepKind::kBranch)
      text += "if( " + outline(program, step.blocks[0]) + ": " + outline(program, step.blocks[1]) + ") ";
  }
  return text;
}

// The graph's program, its outline; and its results on numbers, against the interpreter's.
std::string outline_of(const std::string& text) {
  const Graph graph = parse_graph(text, standard_ops());
  DriverOptions options = options_for("x86-64-v3", 1);
  std::string result;
  OnProgram see_program([&](std::string_view step, const Program& program) {
    if (step == "schedule") result = outline(program, steps_of(program));
  });
  options.observers.add(see_program);
  std::mt19937 numbers(3);
  std::vector<Tensor> inputs;
  for (const ValueId input : graph.inputs)
    inputs.push_back(random_tensor(graph.type(input), numbers, 16, 0x1p-10, kOpen));
  const CompiledRun got = run_compiled(graph, inputs, options);
  const std::vector<Tensor> want = GraphInterpreter().evaluate(graph, inputs);
  for (size_t i = 0; i < got.results.size(); ++i) EXPECT_EQ(difference(want[i], got.results[i], kTolerance), "") << i;
  return result;
}

TEST(RunTimeWeights, ArePackedOnceForCallsThatReadTheSame) {
  EXPECT_EQ(outline_of(R"(graph @main(%x: f32[128,256], %w: f32[256,144]) -> (%y: f32[128,144], %z: f32[128,144]) {
    %y = matmul(%x, %w) : f32[128,144]
    %a = exp(%x) : f32[128,256]
    %z = matmul(%a, %w) : f32[128,144]
  })"),
            "pack register_tile injective register_tile ");
}

// What an iteration of many reads is packed before the first one; what it changes, in each.
TEST(RunTimeWeights, ArePackedBeforeTheLoopThatDoesNotChangeThem) {
  EXPECT_EQ(outline_of(R"(graph @main(%h: f32[100,272], %w: f32[272,272]) -> (%y: f32[100,272]) {
    %y = loop(%h, %w) {max_trip = [20], num_carried = 1} ({
      graph @step(%i: i64[], %c: f32[100,272], %v: f32[272,272]) -> (%d: f32[100,272]) {
        %p = matmul(%c, %v) : f32[100,272]
        %d = tanh(%p) : f32[100,272]
      }
    }) : f32[100,272]
  })"),
            "injective pack loop( register_tile ) ");
  EXPECT_EQ(outline_of(R"(graph @main(%h: f32[100,272], %w: f32[272,272]) -> (%y: f32[100,272], %z: f32[272,272]) {
    %y, %z = loop(%h, %w) {max_trip = [20], num_carried = 2} ({
      graph @step(%i: i64[], %c: f32[100,272], %v: f32[272,272]) -> (%d: f32[100,272], %u: f32[272,272]) {
        %p = matmul(%c, %v) : f32[100,272]
        %d = tanh(%p) : f32[100,272]
        %u = tanh(%v) : f32[272,272]
      }
    }) : f32[100,272], f32[272,272]
  })"),
            "injective injective loop( pack register_tile injective ) ");
}

// What only a branch reads is packed there.
TEST(RunTimeWeights, ArePackedInTheBranchThatReadsThem) {
  EXPECT_EQ(outline_of(R"(graph @main(%c: bool[], %x: f32[100,272], %w: f32[272,144]) -> (%y: f32[100,144]) {
    %y = if(%c, %x, %w) ({
      graph @yes(%a: f32[100,272], %b: f32[272,144]) -> (%p: f32[100,144]) {
        %p = matmul(%a, %b) : f32[100,144]
      }
      graph @no(%a: f32[100,272], %b: f32[272,144]) -> (%q: f32[100,144]) {
        %e = exp(%a) : f32[100,272]
        %q = matmul(%e, %b) : f32[100,144]
      }
    }) : f32[100,144]
  })"),
            "if( pack register_tile : injective pack register_tile ) ");
}

// A batch's own values are no weights: what attention multiplies is read as it is.
TEST(RunTimeWeights, AreNotWhatABatchHasOfItsOwn) {
  EXPECT_EQ(outline_of(R"(graph @main(%q: f32[4,128,256], %k: f32[4,256,144]) -> (%y: f32[4,128,144]) {
    %y = matmul(%q, %k) : f32[4,128,144]
  })"),
            "register_tile ");
}

// What the program computes is packed as well, and rows that are joined first (a softmax) change nothing about it.
TEST(RunTimeWeights, ThatAProgramComputesAreWeightsBehindJoinedRows) {
  EXPECT_EQ(
      outline_of(
          R"(graph @main(%s: f32[100,272], %x: f32[128,272], %w: f32[272,144]) -> (%z: f32[100,272], %y: f32[128,144]) {
    %m = reduce(%s) {axes = [1], keepdims = true, kind = "max"} : f32[100,1]
    %d = sub(%s, %m) : f32[100,272]
    %e = exp(%d) : f32[100,272]
    %t = reduce(%e) {axes = [1], keepdims = true, kind = "sum"} : f32[100,1]
    %z = div(%e, %t) : f32[100,272]
    %v = tanh(%w) : f32[272,144]
    %y = matmul(%x, %v) : f32[128,144]
  })"),
      "fuse_rows injective pack register_tile ");
}

// Fixed weights beside an open size.
TEST(RunTimeWeights, BesideOpenSizes) {
  EXPECT_EQ(outline_of(R"(graph @main[n in 50..2000](%x: f32[n,256], %w: f32[256,144]) -> (%y: f32[n,144]) {
    %y = matmul(%x, %w) : f32[n,144]
  })"),
            "pack register_tile ");
}

}  // namespace
}  // namespace tessera
